"""Hostile names, files, links and texts: data stays data, and nothing leaves the output folder."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
import yaml

from tests.bad_inputs.sessions import tree
from tests.e2e.work import LOSSES, Work, scores, write
from tests.helpers import some_quick

# Signs that mean something to SQL, shells, paths, terminals and people.
SIGNS = [
    "a'b",
    'a"b',
    "a`b",
    "a;b",
    "x'; DROP TABLE t; --",
    'x" or "1"="1',
    "${a}",
    "$(touch pwned)",
    "../../up",
    "a/b",
    "a\\b",
    "a.b",
    "a%2fb",
    "a=b,c",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "é ü 漢字 💥",
    ".txt",
    "[0]",
    "a" * 200,
]
TABLES = ["rows", "rows_history", "rows_metrics", "rows_patches", "rows_runs"]
GROUPS = [SIGNS[start::4] for start in range(4)]


@contextmanager
def only(folder: str, *allowed: str) -> Iterator[None]:
    """Nothing below this folder may change but what is below the allowed paths."""
    before = tree(Path(folder))
    yield
    after = tree(Path(folder))
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    # the time of a folder tells only that something was made in it
    changed -= {path for path in changed if path in before and (Path(folder) / path).is_dir()}
    assert {path for path in changed if not path.startswith(allowed)} == set()


def renamed(**names: str) -> pa.Table:
    table = scores(200)
    return table.rename_columns([names.get(name, name) for name in table.schema.names])


def written(text: str) -> str:
    """A text as a configuration has it: `${` would be a variable."""
    return text.replace("${", "$${")


def log(work: Work) -> list[Any]:
    return work.redcal("log", "--json").lines


# --- names ----------------------------------------------------------------------------------------


@pytest.fixture
def plain_log(work: Work) -> list[Any]:
    """The patches under plain names: names decide nothing."""
    write(renamed())
    work.tree["output"]["table"] = "plain/rows"
    work.ran("fit")
    found = log(work)
    assert found
    work.tree["output"]["table"] = "out/rows"
    return found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("signs", GROUPS)
@pytest.mark.parametrize("file", some_quick(["scores.parquet", "scores.csv"], 2))
def test_columns_of_any_name(file: str, signs: list[str], work: Work, plain_log: list[Any]) -> None:
    kinds = ("case", "outcome", "a", "b", "note")
    names = {name: f"{sign} {name}" for name, sign in zip(kinds, signs, strict=True)}
    table = renamed(**names)
    models: dict[int, str | list[str]] = {1: written(names["a"]), 2: written(names["b"])}
    if file == "scores.csv":
        parts: dict[str, Any] = {}
        for model in "ab":
            columns = tuple(f"{names[model]} {k}" for k in range(4))
            rows = zip(*table[names[model]].to_pylist(), strict=True)
            parts |= dict(zip(columns, rows, strict=True))
            models[1 if model == "a" else 2] = [written(name) for name in columns]
            table = table.drop_columns([names[model]])
        for name, values in parts.items():
            table = table.append_column(name, pa.array(values))
        pa.csv.write_csv(table, file)
    else:
        write(table)
    work.tree["input"] |= {
        "table": file,
        "id": written(names["case"]),
        "label": written(names["outcome"]),
        "model_1": models[1],
        "model_2": models[2],
    }
    work.tree["output"] |= {"mode": "merge"}
    with only(".", "out/", "out", "config.yaml"):
        work.ran("run")
        assert work.ran("run", "--force")["status"] == "converged"  # merges into what is there
        assert work.redcal("evaluate").code == 0
        told = work.redcal("explain", "--id", "1007")
    assert told.code == 0, told.err
    assert log(work) == plain_log
    found = {row[names["case"]]: row for row in work.table().to_pylist()}
    assert len(found) == 200
    for row in table.to_pylist():
        assert row.items() <= found[row[names["case"]]].items()
    assert not Path("pwned").exists()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("signs", GROUPS)
def test_losses_actions_and_classes_of_any_name(
    signs: list[str], work: Work, plain_log: list[Any]
) -> None:
    table = renamed()
    known = work.tree["input"]["classes"]
    classes = dict(zip(known, (f"{sign} {k}" for k, sign in enumerate(signs)), strict=False))
    labels = [classes.get(x) for x in table["outcome"].to_pylist()]
    write(table.set_column(1, "outcome", pa.array(labels, pa.string())))
    actions = [f"{sign} {k}" for k, sign in enumerate(signs[:3])]
    work.tree["input"]["classes"] = [written(classes[name]) for name in known]
    costs = LOSSES["triage"]["costs"]
    work.tree["losses"] = {
        f"{signs[4]} triage": {"costs": costs, "actions": list(map(written, actions))},
        "beds": LOSSES["beds"],
    }
    with only(".", "out/", "out", "config.yaml"):
        work.ran("run")
        for command in ("log", "audit", "evaluate", "runs"):
            assert work.redcal(command).code == 0
    found = [p | {"loss": p["loss"].removeprefix(f"{signs[4]} ")} for p in log(work)]
    assert found == plain_log
    assert set(work.table()[f"{signs[4]} triage_1_after"].to_pylist()) <= set(actions)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("sign", some_quick((s for s in SIGNS if s != "../../up"), 3))
def test_tables_of_any_name(sign: str, work: Work) -> None:
    """Each works, in the folder that it names, or is refused before anything is made."""
    write(scores(60))
    table = f"out/{sign}"
    work.tree["output"] |= {"table": written(table), "report": None}
    with only("..", f"{work.folder.name}/"):
        told = work.redcal("run")
    if told.code == 2:
        assert f"output.table: {table} cannot be written: delta-rs cannot open tables" in told.err
        assert work.files() == {"config.yaml", "scores.parquet"}
        return
    assert told.code == 0, told.err
    made = work.files() - {"config.yaml", "scores.parquet"}
    tables = {path.split("/_delta_log/")[0].rsplit("/part-", 1)[0] for path in made}
    assert tables == {f"{table}{name.removeprefix('rows')}" for name in TABLES}
    assert work.table(table).num_rows == 60


@pytest.mark.slow
def test_two_dots_in_a_table_mean_what_they_mean_to_the_system(work: Work) -> None:
    write(scores(60))
    work.tree["output"]["table"] = "out/../made/rows"
    Path("out").mkdir()
    with only("..", f"{work.folder.name}/made", f"{work.folder.name}/config.yaml"):
        assert work.redcal("run").code == 0
    work.tree["output"]["table"] = "made/../scores.parquet"
    told = work.redcal("run")
    assert told.code == 2 and "output.table: is the same table as input.table" in told.err


@pytest.mark.parametrize("key", ["input.id", "output.table", "output.suffix", "input.classes"])
@pytest.mark.parametrize("sign", ["\n", "\r", "\0", "\x1b[2J", "\x7f", "\x85", "\ud800"])
def test_names_with_control_characters_are_refused(key: str, sign: str, work: Work) -> None:
    section, name = key.split(".")
    value: Any = [f"a{sign}b", "c", "d", "e"] if name == "classes" else f"a{sign}b"
    work.tree[section][name] = value
    Path("config.json").write_text(json.dumps(work.tree))
    told = work.cli("check", "-c", "config.json")
    assert told.code == 2
    assert f"{key}" in told.err and "must be printable text" in told.err
    assert sign not in told.err.replace("\n", "") or sign == "\n"


def test_other_columns_may_have_any_sign_and_pass_through(work: Work) -> None:
    odd = {"x\ny": 1, "\x1b[2J": 2, "": 3, " ": 4, "..": 5, "'; --": 7}
    table = scores(60)
    for name, value in odd.items():
        table = table.append_column(name, pa.array([value] * 60))
    write(table)
    told = work.redcal("run")
    assert told.code == 0, told.err
    assert work.table().select(list(odd)).to_pylist() == [odd] * 60


def test_ids_and_run_ids_are_values_and_never_conditions(work: Work) -> None:
    table = scores(60)
    ids = [f"x' or '1'='1{i}" for i in range(60)]
    write(table.set_column(0, "case", pa.array(ids)))
    work.ran("run")
    assert work.redcal("explain", "--id", ids[3], "--json").json["rows"][0]
    for wrong in ("x' or '1'='1", "' or 1=1 --", '"', "%", "x*"):
        told = work.redcal("explain", "--id", wrong)
        assert (told.code, told.out) == (2, "")
        told = work.redcal("log", "--run", wrong)
        assert (told.code, told.out) == (2, "")


@pytest.mark.slow
def test_values_of_partitions_do_not_lead_out_of_the_table(work: Work) -> None:
    values = ["../../up", "/etc/x", "..", ".", "a/b", "%2e%2e%2f", "a=b", "a\nb", "a\0b", "é", None]
    table = scores(110).append_column("where", pa.array(values * 10, pa.string()))
    write(table)
    for mode in ("overwrite", "append", "merge"):
        work.tree["output"] |= {"table": f"out/{mode}", "mode": mode, "partition_by": ["where"]}
        with only("..", f"{work.folder.name}/out", f"{work.folder.name}/config.yaml"):
            work.ran("run")
        assert set(work.table(f"out/{mode}")["where"].to_pylist()) == set(values)


def test_a_partition_column_whose_name_is_a_path(work: Work) -> None:
    write(scores(60).append_column("../up", pa.array(["x"] * 60)))
    work.tree["output"]["partition_by"] = ["../up"]
    with only("..", f"{work.folder.name}/config.yaml"):
        told = work.redcal("run")
    assert (told.code, told.err) == (
        2,
        "redcal run: output.partition_by: column '../up': a folder's name cannot have a '/'\n",
    )


def test_a_partition_whose_value_is_too_long_for_a_folder(work: Work) -> None:
    """delta-rs panicked in a thread of its own, with Rust's words on the terminal."""
    write(scores(60).append_column("where", pa.array(["x" * 300] * 60)))
    work.tree["output"]["partition_by"] = ["where"]
    told = work.redcal("run", "-q")
    *_, last = told.err.splitlines()  # after warnings, if there are some
    assert (told.code, last) == (
        2,
        "redcal run: output.partition_by: column 'where' has a value of 300 signs, too long for "
        f"the name of a folder: {'x' * 40!r}...",
    )
    assert "panicked" not in told.err
    assert [name for name in os.listdir("out") if name == "rows" or name.startswith(".")] == []


def test_a_column_with_a_nul_in_its_name(work: Work) -> None:
    """Arrow hands names on up to the NUL: `a\\0b` came out as `a`."""
    write(scores(60).append_column("a\0b", pa.array([1] * 60)))
    told = work.redcal("run")
    assert (told.code, told.err) == (
        2,
        "redcal run: scores.parquet: column 'a\\x00b' has a NUL in its name, which would end "
        "there: rename it in the input\n",
    )


def test_what_a_file_says_does_not_steer_the_terminal(work: Work) -> None:
    """A header or a value may hold escape sequences; they are shown, not sent."""
    Path("scores.csv").write_text("case,\x1b[2J\x1b]0;pwned\x07,outcome\n1,2,3\n")
    told = work.redcal("check", "--set", "input.table=scores.csv")
    assert told.code == 2
    assert "\x1b" not in told.err and "\x07" not in told.err
    assert "\\x1b[2J\\x1b]0;pwned\\x07" in told.err


# --- symbolic links -------------------------------------------------------------------------------


def test_a_table_that_is_a_link_is_written_where_it_leads(work: Work, tmp_path: Path) -> None:
    """Lakes are mounted by links: they are followed, as by every other program."""
    work.tree["output"]["report"] = None
    for name in TABLES:
        Path("lake", name).mkdir(parents=True)
        Path("out").mkdir(exist_ok=True)
        Path("out", name).symlink_to(tmp_path / "lake" / name)
    run = work.ran("run")
    again = work.ran("run", "--force")
    assert run["status"] == again["status"] == "converged"
    assert work.table("lake/rows").equals(work.table("out/rows"))
    assert work.table("lake/rows").num_rows == 600
    assert all(Path("out", name).is_symlink() for name in os.listdir("out"))


def test_a_link_that_leads_nowhere_is_refused(work: Work) -> None:
    Path("out").mkdir()
    Path("out/rows").symlink_to("../nowhere")
    with only(".", "config.yaml"):
        told = work.redcal("run")
    assert (told.code, told.err) == (
        2,
        "redcal run: output.table: out/rows is a symbolic link to ../nowhere, which is not there\n",
    )


def test_links_in_a_circle_are_refused(work: Work) -> None:
    Path("one").symlink_to("two")
    Path("two").symlink_to("one")
    work.tree["output"]["table"] = "one/rows"
    told = work.redcal("run")
    assert told.code == 2
    assert "output.table: one/rows cannot be made: Too many levels of symbolic links" in told.err
    work.tree["output"]["table"] = "out/rows"
    told = work.redcal("run", "--set", "input.table=one")
    assert told.code == 2
    assert told.err.startswith("redcal run: one: no such file or folder; looked for /")


def test_a_link_in_place_of_a_half_made_table_is_not_followed(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who knows the run's id could lead its rows elsewhere."""
    monkeypatch.setattr("secrets.token_hex", lambda count=8: "0" * 2 * count)
    monkeypatch.setattr("redcal_spark.runs.ledger.datetime", _Still)
    Path("elsewhere").mkdir()
    Path("out").mkdir()
    made_beside = [name for name in TABLES if name != "rows_runs"]  # the ledger is made in place
    for name in made_beside:
        Path(f"out/.{name}.20260101T000000-000000.partial").symlink_to("../elsewhere")
    assert work.ran("run")["run_id"] == "20260101T000000-000000"
    assert os.listdir("elsewhere") == []
    assert work.table().num_rows == 600
    assert sorted(os.listdir("out")) == sorted([*TABLES, "rows_report.html"])


class _Still:
    """A clock that stands."""

    @staticmethod
    def now(zone: Any) -> Any:
        return datetime(2026, 1, 1, tzinfo=zone)


def test_an_export_replaces_a_link_and_not_what_it_leads_to(work: Work) -> None:
    work.ran("fit")
    Path("precious").write_text("keep me")
    Path("model.json").symlink_to("precious")
    assert work.redcal("export", "-o", "model.json").code == 0
    assert Path("precious").read_text() == "keep me"
    assert not Path("model.json").is_symlink()
    assert json.loads(Path("model.json").read_text())["kind"] == "redcal_spark.ReconciledPair"
    assert not list(Path().glob("*.partial"))


def test_a_report_replaces_a_link_and_not_what_it_leads_to(work: Work) -> None:
    Path("precious").write_text("keep me")
    Path("out").mkdir()
    Path("out/rows_report.html").symlink_to("../precious")
    work.ran("run")
    Path("page.html").symlink_to("precious")
    assert work.redcal("report", "-o", "page.html").code == 0
    assert Path("precious").read_text() == "keep me"
    for page in ("out/rows_report.html", "page.html"):
        assert not Path(page).is_symlink()
        assert Path(page).read_text().startswith("<!")


def test_an_export_to_a_pipe_goes_into_the_pipe(work: Work) -> None:
    """It was replaced by a file; so would root's /dev/null have been."""
    work.ran("fit")
    os.mkfifo("pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(Path("pipe").read_text()), daemon=True)
    reader.start()
    assert work.redcal("export", "-q", "-o", "pipe").code == 0
    reader.join(30)
    assert json.loads(found[0])["schema_version"] >= 1
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_links_among_input_files_do_not_loop(work: Work) -> None:
    Path("data").mkdir()
    Path("scores.parquet").rename("data/part.parquet")
    Path("data/again").symlink_to(".")
    told = work.redcal("check", "--set", "input.table=data")
    assert told.code == 0, told.err
    assert "600 rows" in told.out


# --- YAML -----------------------------------------------------------------------------------------

TAGS = [
    "!!python/object/apply:os.system ['touch pwned']",
    "!!python/object/new:os.system ['touch pwned']",
    "!!python/object:os.PathLike {}",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/tuple [1, 2]",
    "!!binary aGk=",
    "!!set {a}",
    "!!omap [a: 1]",
    "!!timestamp 2026-01-01",
    "!custom x",
    "!<tag:example.org,2026:x> y",
]


@pytest.mark.parametrize("tag", TAGS)
def test_tags_are_refused_and_never_run(tag: str, work: Work) -> None:
    Path("config.yaml").write_text(f"input: {tag}\n")
    told = work.cli("check", "-c", "config.yaml")
    assert told.code == 2
    assert told.err.startswith("redcal check: config.yaml, line 1, column 8: the tag ")
    told = work.redcal("check", "--set", f"reconcile.eta={tag}")
    assert told.code == 2 and "the tag " in told.err
    Path("losses.yaml").write_text(f"triage: {tag}\n")
    work.tree["losses"] = "losses.yaml"
    told = work.redcal("check")
    assert told.code == 2 and "the tag " in told.err
    assert not Path("pwned").exists()


def laughs(levels: int = 30) -> str:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(levels):
        text += f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n"
    return text


def merges(levels: int = 30) -> str:
    text = "a0: &a0 {x: 1}\n"
    for i in range(levels):
        text += f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 10)}]}}\n"
    return text


BOMBS = {
    "aliases": laughs(),
    "merges": merges(),
    "itself": "a: &a [*a]\n",
    "many": "a: &a [" + "x, " * 300_000 + "]\n" + "b: [" + "*a, " * 10_000 + "]\n",
    "deep": "[" * 100_000,
    "deep mappings": "{a: " * 50_000,
    "digits": "a: " + "9" * 900_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_bombs_are_refused_quickly(name: str, work: Work) -> None:
    Path("bomb.yaml").write_text(BOMBS[name])
    start = time.process_time()
    told = work.cli("check", "-c", "bomb.yaml")
    assert time.process_time() - start < 5
    assert told.code == 2
    assert told.err.startswith("redcal check: bomb.yaml")
    assert len(told.err) < 1_000


def test_yaml_is_read_with_the_safe_loader_only() -> None:
    from redcal_spark.config import yaml_reader

    assert issubclass(yaml_reader._Loader, yaml.SafeLoader)
    made = yaml_reader._Loader.yaml_constructors
    assert {tag for tag in made if tag and "python" in tag} == set()


# --- models ---------------------------------------------------------------------------------------


@pytest.fixture
def model(work: Work) -> dict[str, Any]:
    work.ran("fit")
    assert work.redcal("export", "-q", "-o", "model.json").code == 0
    found: dict[str, Any] = json.loads(Path("model.json").read_text())
    return found


def spoiled(model: dict[str, Any]) -> dict[str, str]:
    text = json.dumps(model)
    phi = json.dumps(model["log"][0]["phi"])
    return {
        "huge int": text.replace(phi, phi.replace("[", "[" + "9" * 10_000 + ", ", 1)),
        "large int": text.replace(phi, phi.replace("[", f"[{2**70}, ", 1)),
        "rows beyond int64": text.replace(f'"rows": {model["rows"]}', f'"rows": {10**300}', 1),
        "NaN": text.replace('"alpha": 0.005', '"alpha": NaN'),
        "infinity": text.replace('"alpha": 0.005', '"alpha": 1e999'),
        "infinite costs": text.replace("9.0", "Infinity", 1),
        "deep lists": "[" * 200_000,
        "deep mappings": '{"schema_version": ' * 100_000,
        "deep log": text.replace('"log": [', '"log": ' + "[" * 3_000 + "]" * 2_999 + ", [", 1),
        "half a surrogate pair": text.replace("triage", "\\ud800", 1),
        "unknown key": text.replace('"kind"', '"__reduce__": "os.system", "kind"', 1),
        "another kind": text.replace("redcal_spark.ReconciledPair", "os.system"),
        "many classes": text.replace('"n_classes": 4', '"n_classes": 100000000'),
        "fraction": text.replace('"beta": "', '"beta": "1e999999999/', 1),
        "binary": "\x80\x04\x95",
    }


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", spoiled({"log": [{"phi": []}], "rows": 1}))
def test_models_that_are_no_models(name: str, work: Work, model: dict[str, Any]) -> None:
    text = spoiled(model)[name]
    assert text != json.dumps(model)
    Path("model.json").write_text(text)
    start = time.process_time()
    with only(".", "config.yaml"):
        told = work.redcal("apply", "--model", "model.json")
    assert time.process_time() - start < 5
    assert told.code == 2, told.err
    assert told.err.startswith("redcal apply: model.json: ")
    assert len(told.err) < 2_000
