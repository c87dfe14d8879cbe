"""`redcal init`: a configuration that only lacks what nobody can guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.e2e.work import CLASSES, LOSSES, Work


def costs() -> None:
    loss = LOSSES["triage"]
    rows = [["action", *CLASSES]] + [
        [a, *map(str, r)] for a, r in zip(loss["actions"], loss["costs"], strict=True)
    ]
    Path("costs.csv").write_text("\n".join(",".join(row) for row in rows) + "\n", "utf-8")


def test_with_costs_it_runs_as_it_is(work: Work) -> None:
    costs()
    told = work.cli("init", "scores.parquet", "--costs", "costs.csv", "-o", "conf/new.yaml")
    assert told.code == 0, told.err
    assert told.out.splitlines()[-1] == "next: redcal audit -c conf/new.yaml"
    made = yaml.safe_load(Path("conf/new.yaml").read_text("utf-8"))
    wanted = {k: v for k, v in work.tree["input"].items() if k != "version"}
    assert made["input"] == wanted
    assert made["output"]["table"] == "scores_reconciled" and made["reconcile"]["eta"] == "auto"
    for command in ("check", "audit", "run"):
        told = work.cli(command, "-c", "conf/new.yaml", "--engine", "local")
        assert told.code == 0, told.err
    assert work.table("scores_reconciled").num_rows == 600


def test_without_costs_check_refuses_until_they_are_there(work: Work) -> None:
    told = work.cli("init", "scores.parquet", "--json")
    assert told.code == 0, told.err
    assert told.json["next"] == "redcal check -c conf.yaml"
    text = Path("conf.yaml").read_text("utf-8")
    assert text.count("FILL IN") == 2
    told = work.cli("check", "-c", "conf.yaml", "--engine", "local")
    assert told.code == 2 and "losses.decision.costs[0][0]: must be a number" in told.err
    Path("conf.yaml").write_text(text.replace("null", "1", 3).replace("null", "2"), "utf-8")
    told = work.cli("check", "-c", "conf.yaml", "--engine", "local")
    assert told.code == 0, told.err


def test_a_file_that_is_there_stays(work: Work) -> None:
    Path("conf.yaml").write_text("mine", "utf-8")
    told = work.cli("init", "scores.parquet")
    assert told.code == 2 and "is there already" in told.err
    assert Path("conf.yaml").read_text("utf-8") == "mine"


def test_costs_of_other_classes_are_refused(work: Work) -> None:
    Path("costs.csv").write_text("0,1\n1,0\n", "utf-8")
    told = work.cli("init", "scores.parquet", "--costs", "costs.csv")
    assert told.code == 2 and "has 2 classes (columns), and a has 4" in told.err
    assert not Path("conf.yaml").exists()


def test_no_such_table(work: Work) -> None:
    told = work.cli("init", "nowhere.parquet")
    assert told.code == 2 and "nowhere.parquet" in told.err


def two_files(separator: str = ",") -> None:
    """Two models' scores of 400 patients, a file each, in another order; labels are words."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 400)
    names = ["well", "ill", "grave"]
    sharp = 0.6 * np.eye(3)[y] + 0.4 * rng.dirichlet([1, 1, 1], 400)
    lines = [["patient_id", "outcome", "p0", "p1", "p2"]]
    lines += [[f"P{i}", names[y[i]], *(f"{p:.6f}" for p in sharp[i])] for i in range(400)]
    Path("a.csv").write_text("\n".join(",".join(line) for line in lines), "utf-8")
    other = [["patient_id", "p0", "p1", "p2"]]
    blunt = 0.5 * sharp + 0.5 / 3
    other += [[f"P{i}", *(f"{p:.6f}" for p in blunt[i])] for i in rng.permutation(400)]
    Path("b.csv").write_text("\n".join(separator.join(line) for line in other), "utf-8")
    Path("c.csv").write_text(",well,ill,grave\nhome,0,2,6\nadmit,3,2,0\n", "utf-8")


def test_two_files_with_a_model_each(work: Work) -> None:
    two_files()
    told = work.cli("init", "a.csv", "b.csv", "--costs", "c.csv")
    assert told.code == 0, told.err
    assert "GUESS" not in told.out
    made = yaml.safe_load(Path("conf.yaml").read_text("utf-8"))["input"]
    assert made == {
        "table": "a.csv",
        "id": "patient_id",
        "label": "outcome",
        "classes": ["well", "ill", "grave"],
        "model_1": ["p0", "p1", "p2"],
        "model_2": {"table": "b.csv", "columns": ["p0", "p1", "p2"]},
        "split": {"holdout_fraction": 0.3},
    }
    told = work.cli("run", "-c", "conf.yaml", "--engine", "local", "--set", "reconcile.eta=0.05")
    assert told.code == 0, told.err
    assert "equal scores" not in told.err
    rows = work.table("a_reconciled").to_pylist()
    b = {line.split(",")[0]: line.split(",")[1] for line in Path("b.csv").read_text().splitlines()}
    assert {r["patient_id"]: r["model_2_p0"] for r in rows} == {
        id: float(p) for id, p in b.items() if id != "patient_id"
    }
    text = Path("conf.yaml").read_text("utf-8").replace("[well, ill, grave]", "[ill, grave, well]")
    Path("conf.yaml").write_text(text, "utf-8")
    told = work.cli("audit", "-c", "conf.yaml", "--engine", "local")
    assert told.code == 2 and "has the classes well, ill, grave, but input.classes has" in told.err
    Path("c.csv").write_text("0,2,6\n3,2,0\n", "utf-8")  # costs whose classes have no names
    told = work.cli("audit", "-c", "conf.yaml", "--engine", "local")
    better = "equal scores for all classes would have a better Brier score than"
    assert f"{better} model 1 and model 2: are the classes in the order" in told.err


@pytest.mark.parametrize("decimals", [2, 3, 4])
def test_scores_rounded_to_few_decimals(work: Work, decimals: int) -> None:
    """Their sums miss 1 by up to half a digit a score."""
    two_files()
    for name in ("a.csv", "b.csv"):
        lines = [line.split(",") for line in Path(name).read_text("utf-8").splitlines()]
        for line in lines[1:]:
            line[-3:] = (f"{float(p):.{decimals}f}" for p in line[-3:])
        Path(name).write_text("\n".join(",".join(line) for line in lines), "utf-8")
    told = work.cli("init", "a.csv", "b.csv", "--costs", "c.csv")
    assert told.code == 0 and "GUESS" not in told.out, told
    made = yaml.safe_load(Path("conf.yaml").read_text("utf-8"))["input"]
    assert made["model_1"] == ["p0", "p1", "p2"]
    assert made["model_2"] == {"table": "b.csv", "columns": ["p0", "p1", "p2"]}


def test_a_file_named_twice(work: Work) -> None:
    two_files()
    told = work.cli("init", "a.csv", "a.csv")
    assert told.code == 2 and "a.csv is named twice: give every table once" in told.err


def test_costs_that_are_no_numbers(work: Work) -> None:
    two_files()
    Path("c.csv").write_text(',well,ill,grave\nhome,0,"2,5",\nadmit,3,2,0\n', "utf-8")
    told = work.cli("init", "a.csv", "b.csv", "--costs", "c.csv")
    assert told.code == 2 and not Path("conf.yaml").exists()
    assert "c.csv: costs must be numbers, with a point; got, in row 1: '2,5'; row 1: nothing" in (
        told.err
    )


def test_two_files_that_do_not_fit_together(work: Work) -> None:
    two_files(";")
    for given, told in {
        ("a.csv",): "those of one model: p0, p1, p2; if another table has the other model's",
        ("a.csv", "b.csv"): "a.csv has ',' between columns and b.csv ';'",
        ("a.csv", "c.csv"): "c.csv has no column 'patient_id'; it has: ",
    }.items():
        ended = work.cli("init", *given)
        assert ended.code == 2 and told in ended.err
    two_files()
    ended = work.cli("init", "b.csv", "a.csv")
    assert ended.code == 2 and "seems to be 'outcome' of a.csv: give the table" in ended.err
    assert not Path("conf.yaml").exists()


def test_another_separator_is_seen(work: Work) -> None:
    two_files()
    for name in ("a.csv", "b.csv"):
        path = Path(name)
        path.write_text(path.read_text("utf-8").replace(",", ";"), "utf-8")
    assert work.cli("init", "a.csv", "b.csv", "--costs", "c.csv").code == 0
    told = work.cli("check", "-c", "conf.yaml", "--engine", "local")
    assert told.code == 0, told.err
    assert "input    a.csv joined with b.csv, 400 rows, 3 classes" in told.out
    for a, b, way_out in (
        ("0.", "0,", "scores must be numbers; first: '0,"),
        ("0,", "9.", "scores are probabilities: divide percentages by 100"),
    ):
        path.write_text(path.read_text("utf-8").replace(a, b), "utf-8")
        told = work.cli("audit", "-c", "conf.yaml", "--engine", "local")
        assert told.code == 2 and way_out in told.err and "a.csv joined with b.csv" in told.err


Change = Callable[[int, str, str], str]  # row, column, text: what is in the file


def files(*changes: Change) -> list[str]:
    """Labels, and a file for every model: alike, but for what is changed in it."""
    rng = np.random.default_rng(5)
    names = ["well", "ill", "grave"]
    y = rng.integers(0, 3, 200)
    # class `well` is scored highest everywhere: scores do not tell the order of the classes
    scores = 0.5 * np.eye(3)[0] + 0.1 * np.eye(3)[y] + 0.4 * rng.dirichlet([1, 1, 1], 200)
    lines = ["id,outcome", *(f"{i:03d},{names[k]}" for i, k in enumerate(y))]
    Path("labels.csv").write_text("\n".join(lines), "utf-8")
    made = ["labels.csv"]
    for name, change in zip("abc", changes, strict=False):
        head = ["id", "p_well", "p_ill", "p_grave"]
        rows = [[f"{i:03d}", *(f"{p:.6f}" for p in scores[i])] for i in range(200)]
        rows = [[change(i, c, t) for c, t in zip(head, r, strict=True)] for i, r in enumerate(rows)]
        rows = [[change(-1, c, c) for c in head], *rows]
        made.append(f"{name}.csv")
        Path(made[-1]).write_text("\n".join(",".join(row) for row in rows), "utf-8")
    return made


def same(row: int, column: str, text: str) -> str:
    return text


def test_names_of_score_columns_tell_the_order_of_the_classes(work: Work) -> None:
    given = files(same, same)
    told = work.cli("init", *given, "-o", "one.yaml")
    assert told.code == 0 and "GUESS" not in told.out, told
    assert "  classes  3: well, ill, grave\n" in told.out
    Path("c.csv").write_text(",grave,ill,well\nhome,6,2,0\nadmit,0,2,3\n", "utf-8")
    told = work.cli("init", *given, "--costs", "c.csv")
    assert told.code == 2 and not Path("conf.yaml").exists()
    assert "columns are p_well, p_ill, p_grave, but c.csv has the classes grave, ill" in told.err


def test_costs_alone_do_not_tell_the_order_of_the_classes(work: Work) -> None:
    numbers = {"p_well": "p0", "p_ill": "p1", "p_grave": "p2"}

    def numbered(row: int, column: str, text: str) -> str:
        return numbers.get(text, text)

    given = files(numbered, numbered)
    Path("c.csv").write_text(",grave,ill,well\nhome,6,2,0\nadmit,0,2,3\n", "utf-8")
    told = work.cli("init", *given, "--costs", "c.csv")
    assert told.code == 0, told.err
    assert "grave, ill, well   GUESS: in the order of the costs: check" in told.out
    assert told.out.splitlines()[-1] == "next: redcal check -c conf.yaml"


@pytest.mark.parametrize(
    ("costs", "problem"),
    [
        (
            ",well,ill,dead\na,0,2,6\nb,1,0,2\n",
            "has the classes well, ill, dead, but the labels",
        ),
        (",a,b,c\nwell,0,1,3\nill,2,0,2\ngrave,6,2,0\n", "its rows are the classes (well, ill, "),
        (",a,b\nwell,0,1\nill,2,0\ngrave,6,2\n", "its rows are the classes (well, ill, grave): tu"),
    ],
)
def test_costs_that_do_not_fit_the_labels(work: Work, costs: str, problem: str) -> None:
    Path("costs.csv").write_text(costs, "utf-8")
    told = work.cli("init", *files(same, same), "--costs", "costs.csv")
    assert told.code == 2 and f"--costs costs.csv: {problem}" in told.err
    assert not Path("conf.yaml").exists()


def test_three_files_of_scores_are_three_models(work: Work) -> None:
    told = work.cli("init", *files(same, same, same))
    assert told.code == 0 and "GUESS" not in told.out, told
    made = yaml.safe_load(Path("conf.yaml").read_text("utf-8"))["input"]
    columns = ["p_well", "p_ill", "p_grave"]
    assert made["models"] == {n: {"table": f"{n}.csv", "columns": columns} for n in "abc"}
    assert "model_1" not in made
    files(same, same)
    told = work.cli("init", "labels.csv", "a.csv", "b.csv", "--json", "-o", "two.yaml").json
    assert (told["model_2"], told["tables"]) == (columns, ["a.csv", "b.csv"])


def test_three_files_of_one_column_are_a_guess(work: Work) -> None:
    rng = np.random.default_rng(5)
    p = rng.random(200)
    rows = "".join(f"{i},{int(p[i] > 0.5)},{rng.random():.6f}\n" for i in range(200))
    Path("labels.csv").write_text(f"id,outcome,share\n{rows}", "utf-8")
    for name in ("1", "b", "c"):
        scores = "".join(f"{i},{p[i]:.6f}\n" for i in range(200))
        Path(f"{name}.csv").write_text(f"id,p\n{scores}", "utf-8")
    told = work.cli("init", "labels.csv", "1.csv", "b.csv", "c.csv")
    assert (
        "1        {table: 1.csv, columns: p}   GUESS: these look like scores, too: share"
        in told.out
    )
    made = yaml.safe_load(Path("conf.yaml").read_text("utf-8"))["input"]
    assert made["models"] == {n: {"table": f"{n}.csv", "columns": "p"} for n in ("1", "b", "c")}
    assert made["id"] == "id" and "GUESS: these" in Path("conf.yaml").read_text("utf-8")


def test_columns_in_another_order_are_matched_by_name(work: Work) -> None:
    given = files(same, same)
    rows = [line.split(",") for line in Path("b.csv").read_text("utf-8").splitlines()]
    Path("b.csv").write_text("\n".join(",".join([r[0], *r[:0:-1]]) for r in rows), "utf-8")
    assert work.cli("init", *given).code == 0
    made = yaml.safe_load(Path("conf.yaml").read_text("utf-8"))["input"]
    assert made["model_2"] == {"table": "b.csv", "columns": ["p_well", "p_ill", "p_grave"]}


def test_an_empty_cell_hides_no_scores(work: Work) -> None:
    told = work.cli("init", *files(same, lambda i, c, t: "" if (i, c) == (5, "p_ill") else t))
    assert told.code == 0 and "b.csv, columns: [p_well, p_ill, p_grave]}" in told.out, told


def number(change: Callable[[float], str]) -> Change:
    return lambda i, c, t: t if i < 0 or c == "id" else change(float(t))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda i, c, t: "NA" if (i, c) == (5, "p_ill") else t,
            "column 'p_ill' of b.csv holds text; scores must be numbers; first: 'NA'; leave such",
        ),
        (
            number(lambda p: f"{100 * p:.4f}%"),
            "column 'p_well' of b.csv holds text; scores must be numbers; first: '6",
        ),
        (
            number(lambda p: f'"{p:.6f}"'.replace(".", ",")),
            "write 0.5 for '0,5' and for '50%'",
        ),
        (
            number(lambda p: f"{100 * p:.6f}"),
            "columns p_well, p_ill, p_grave of b.csv sum to 100; scores are probabilities: divide",
        ),
        (
            lambda i, c, t: str(int(t)) if i >= 0 and c == "id" else t,
            "ids have different types: 'id' is string in labels.csv, 'id' is int64 in b.csv; cast",
        ),
        (
            lambda i, c, t: "case" if t == "id" else t,
            "b.csv has no column 'id'; it has: case, p_well, p_ill, p_grave; name the column 'id'",
        ),
    ],
)
def test_why_a_file_of_scores_is_none(work: Work, change: Change, problem: str) -> None:
    told = work.cli("init", *files(same, change))
    assert told.code == 2 and problem in told.err and "model_1_" not in told.err
    if "different types" not in problem and "no column" not in problem:
        assert "What looks like scores: p_well, ... of a.csv; " in told.err


@pytest.mark.parametrize("vectors", [False, True])
def test_a_label_without_a_name_that_says_so(work: Work, vectors: bool) -> None:
    """Arrow's views of texts are texts; arrays are taken where nothing else could be."""
    rng = np.random.default_rng(1)
    classes = [k % 3 for k in range(60)]
    x = np.eye(3)[classes].tolist() if vectors else [CLASSES[k] for k in classes]
    table = pa.table({"case": [f"c{k}" for k in range(60)], "x": x})
    for name in ("a", "b"):
        table = table.append_column(name, pa.array(rng.dirichlet(np.ones(3), 60).tolist()))
    views = [0] if vectors else [0, 1]
    for place in views:
        column = table.column(place).cast(pa.string_view())
        table = table.set_column(place, table.column_names[place], column)
    pq.write_table(table, "odd.parquet")
    told = work.cli("init", "odd.parquet", "--json")
    assert told.code == 0, told.err
    assert yaml.safe_load(Path("conf.yaml").read_text("utf-8"))["input"]["label"] == "x"
