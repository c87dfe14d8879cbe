"""Every command, its exit code, and what it prints for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.demo import CONFIG
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, problem, scores, split_rows, write
from tests.helpers import log_of
from tests.oracle import FIELDS

CONF = Path(__file__).parents[2] / "conf"


def test_fit_then_log_gives_the_log_of_the_python_api(work: Work) -> None:
    told = work.redcal("fit")
    assert told.code == 0, told.err
    assert not Path("out/rows").exists()
    lines = work.redcal("log", "--json").out.splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(FIELDS)] * len(lines)
    pair = Reconciler(
        losses=LOSSES, alpha=0.005, eta=0.01, model_1="a", model_2="b", label="outcome",
        classes=CLASSES,
    ).fit(split_rows(scores(), "train"))  # fmt: skip
    assert len(lines) > 3
    assert [json.loads(line) for line in lines] == log_of(pair)
    assert log_of(pair) == oracle.fit(problem(split_rows(scores(), "train"))).log


def test_the_log_does_not_need_the_input_any_more(work: Work) -> None:
    work.ran("fit")
    before = work.redcal("log", "--json").out
    Path("scores.parquet").unlink()
    assert work.redcal("log", "--json").out == before
    assert work.redcal("runs").code == work.redcal("export").code == 0
    assert work.redcal("run").code == 2


@pytest.mark.slow
def test_log_follows_the_configuration_or_the_run_asked_for(work: Work) -> None:
    first = work.ran("fit")
    one = work.redcal("log", "--json").out
    work.tree["reconcile"]["eta"] = 0.05
    told = work.redcal("log")
    assert told.code == 2
    assert "no finished run of this configuration in out/rows_runs" in told.err
    work.ran("fit")
    two = work.redcal("log", "--json").out
    assert 0 < len(two) < len(one)
    assert work.redcal("log", "--json", "--run", first["run_id"]).out == one
    assert work.redcal("log", "--json", "--run", "latest").out == two
    assert work.redcal("log", "--run", "nobody").code == 2
    told = work.redcal("log")
    assert told.out.startswith("run ")
    assert "home / ward" in told.out


def test_apply_says_whose_model_it_takes(work: Work) -> None:
    """The latest run may be somebody's trial."""
    work.ran()
    assert "the model is that" not in work.redcal("apply", "--run", "latest").err
    tried = work.ran("fit", "--set", "reconcile.eta=0.5")
    told = work.redcal("apply", "--run", "latest")
    assert told.code == 0
    note = f"the model is that of run {tried['run_id']}, made with other settings: "
    assert f"{note}reconcile.eta is 0.01, was 0.5" in told.err
    assert "the model is that" not in work.redcal("apply").err


def test_apply_to_a_table_whose_ledger_has_no_run(work: Work) -> None:
    work.ran()
    told = work.redcal("apply", "--set", "output.table=out/new")
    assert told.code == 2
    assert "no finished run of this configuration in out/new_runs" in told.err
    assert "is taken by redcal export there and --model FILE here" in told.err
    assert work.redcal("export", "-o", "model.json").code == 0
    told = work.redcal("apply", "--set", "output.table=out/new", "--model", "model.json")
    assert told.code == 0, told.err
    assert work.table("out/new").num_rows == work.table().num_rows


def test_apply_from_a_run_from_a_model_and_latest(work: Work) -> None:
    run = work.ran()
    rows = work.table()
    exported = work.redcal("export", "-o", "model.json")
    assert (exported.code, exported.out) == (0, f"{run['patches']} patches in model.json\n")
    assert json.loads(work.redcal("export").out) == json.loads(Path("model.json").read_text())
    work.tree["output"] |= {
        "table": "again/rows", "patches": "out/rows_patches", "runs": "out/rows_runs"
    }  # fmt: skip
    assert work.redcal("apply").code == 2  # with another target it is another configuration
    for arguments in (("--run", "latest"), ("--run", run["run_id"]), ("--model", "model.json")):
        told = work.redcal("apply", *arguments)
        assert told.code == 0, told.err
        said = f"{run['patches']} patches applied to scores.parquet; rows in again/rows\n"
        assert told.out == said
        again, wanted = work.table("again/rows").sort_by("case"), rows.sort_by("case")
        if "--model" in arguments:  # a file does not say which rows it was fitted on
            assert again["split"].null_count == 600
            again, wanted = again.drop_columns(["split"]), wanted.drop_columns(["split"])
        assert again.equals(wanted)
    assert work.delta("again/rows").version() == 2
    last = work.runs()[-1]
    assert (last["command"], last["rows"], last["status"]) == ("apply", 600, "converged")
    assert json.loads(last["outputs"]) == {"again/rows": 2, "again/rows_metrics": 2}


def test_apply_needs_no_labels_and_no_split(work: Work) -> None:
    work.ran("fit")
    late = scores(50, seed=9).drop_columns(["outcome", "fold"])
    write(late)
    told = work.redcal("apply", "--json")
    assert told.code == 0, told.err
    assert told.json["outputs"]["out/rows"] == 0
    assert work.table().num_rows == 50


def test_a_failed_apply_is_in_the_ledger(work: Work) -> None:
    work.ran("fit")
    table = scores(50, seed=9)
    bad = [[0.5, 0.5, 0.0, float("nan")], *table["a"].to_pylist()[1:]]
    write(table.set_column(4, "a", pa.array(bad)))
    told = work.redcal("apply")
    assert told.code == 2
    assert "column 'a': 1 row with NaN or infinity; first: id 1000" in told.err
    last = work.runs()[-1]
    assert (last["command"], last["status"], last["outputs"]) == ("apply", "failed", None)
    assert not Path("out/rows").exists()


def test_an_exported_model_gives_the_same_rows_in_python(work: Work) -> None:
    work.ran()
    work.redcal("export", "-o", "model.json")
    pair = ReconciledPair.load("model.json")
    ours = pair.apply(scores()).sort_by("case")
    assert work.table().sort_by("case").select(ours.column_names).equals(ours)


@pytest.mark.slow
def test_evaluate_says_what_ledger_and_history_say(work: Work) -> None:
    work.ran()
    [row] = work.runs()
    metrics = json.loads(row["metrics"])
    evaluated = work.redcal("evaluate", "--json").json["splits"]
    history = work.table("out/rows_history").to_pylist()
    last = max(point["step"] for point in history)
    assert evaluated.keys() == metrics.keys() == {"fit", "holdout"}
    for split, found in evaluated.items():
        for when, step in (("before", 0), ("after", last)):
            for place, loss in enumerate(LOSSES):
                told = found[when]["losses"][place]
                for model in (1, 2):
                    [point] = [
                        p
                        for p in history
                        if (p["split"], p["step"], p["loss"], p["model"])
                        == (split, step, loss, model)
                    ]
                    [kept] = [
                        m for m in metrics[split][when] if (m["loss"], m["model"]) == (loss, model)
                    ]
                    assert kept["brier"] == point["brier"] == found[when]["brier"][model - 1]
                    assert kept["brier_sum"] == str(point["brier_sum"])
                    for name in ("decision_loss", "calibration_gap"):
                        assert kept[name] == point[name] == told[name][model - 1]
                    for name in ("disagreement", "largest_event"):
                        assert kept[name] == point[name] == told[name]
    table = work.redcal("evaluate").out
    assert "triage: cost of a" in table
    assert "holdout" in table


def test_audit_writes_nothing(work: Work) -> None:
    work.redcal("check")
    before = work.files()
    told = work.redcal("audit")
    assert told.code == 0
    assert "triage: the models disagree on" in told.out
    found = work.redcal("audit", "--json").json
    assert work.files() == before
    labelled = [label for label in scores()["outcome"].to_pylist() if label is not None]
    assert found["rows"] <= len(labelled)
    assert sum(map(sum, found["losses"][0]["rows"])) == found["rows"]
    assert found["losses"][0]["actions"] == ["home", "ward", "icu"]
    Path("taken").write_text("a file", encoding="utf-8")
    work.tree["output"]["table"] = "taken/rows"  # an audit has no use for it
    assert work.redcal("audit").code == 0
    assert work.redcal("check").code == 2


def test_check_computes_nothing(work: Work) -> None:
    told = work.redcal("check", "--ids")
    assert told.code == 0
    assert told.out.splitlines()[0] == "config.yaml: fine"
    found = work.redcal("check", "--json").json
    assert found["rows"] == 600
    assert found["outputs"]["runs"] == "out/rows_runs"
    assert not Path("out").exists()
    twice = scores()
    write(pa.concat_tables([twice, twice.slice(0, 2)]))
    assert work.redcal("check").code == 0
    told = work.redcal("check", "--ids")
    assert told.code == 2
    assert "scores.parquet" in told.err
    assert "1000, 1001" in told.err


def test_demo_and_again(work: Work) -> None:
    told = work.cli("demo", "--rows", "4000")
    assert told.code == 0, told.err
    assert "writing 4,000 patients" in told.err
    assert "redcal log -c out/demo.yaml" in told.out
    assert "triage: cost of model_vitals" in told.out
    versions = {p: work.delta(f"out/demo/{p}").version() for p in ("patients", "triage")}
    again = work.cli("demo", "--rows", "4000")
    assert again.code == 0
    assert "nothing to do: run" in again.out
    assert "writing" not in again.err
    assert {p: work.delta(f"out/demo/{p}").version() for p in versions} == versions
    forced = work.cli("demo", "--rows", "4000", "--force", "--json")
    assert forced.json["outputs"]["out/demo/triage"] == versions["triage"] + 1
    assert work.cli("demo", "--rows", "4001", "--quiet").out == ""


def test_the_demo_is_the_configuration_in_conf() -> None:
    assert (CONF / "demo.yaml").read_text(encoding="utf-8") == CONFIG


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"max_rounds": 1}, "capped"),
        ({"max_steps": 2}, "capped"),
        ({"grid_bits": 1, "eta": 0.002}, "stalled"),
    ],
)
def test_exit_3_when_it_ends_early(work: Work, changes: dict[str, float], status: str) -> None:
    work.tree["reconcile"] |= changes
    told = work.redcal("run")
    assert told.code == 3
    assert told.out.startswith(f"{status}: ")
    [row] = work.runs()
    assert row["status"] == status
    assert row["outputs"] is not None
    assert work.redcal("run").code == 3  # nothing left to do, and none the better for it
    forced = work.redcal("run", "--force", "--json")
    assert (forced.code, forced.json["status"]) == (3, status)
    assert work.redcal("fit", "--quiet").code == 3


def test_exit_2_for_wrong_use_and_1_for_failure(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work.redcal("run", "--set", "reconcile.eta=2").code == 2
    assert work.cli().code == 2
    with pytest.raises(SystemExit) as ended:
        work.cli("run", "--no-such-option")
    assert ended.value.code == 2

    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("redcal_spark.runs.run.history_table", broken)
    told = work.redcal("run")
    assert told.code == 1
    assert "unexpected ZeroDivisionError: boom" in told.err
    assert "Traceback" not in told.err
    with pytest.raises(ZeroDivisionError):
        work.redcal("run", "--verbose")
    assert work.runs()[0]["error"] == "ZeroDivisionError: boom"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("command", ["check", "run", "fit", "apply"])
def test_quiet_says_nothing_but_warnings(work: Work, command: str) -> None:
    if command == "apply":
        work.ran("fit")
    told = work.redcal(command, "--quiet")
    assert (told.code, told.out) == (0, "")
    assert all(" WARNING " in line for line in told.err.splitlines())
    if command in ("run", "fit"):
        assert work.redcal(command, "--quiet", "--force").out == ""
    told = work.redcal("run", "--quiet", "--set", "input.label=nope")
    assert (told.code, told.out) == (2, "")
    assert "column 'nope' not found in scores.parquet" in told.err


def test_quiet_says_what_went_wrong(work: Work) -> None:
    """A run that stopped early, each time; and warnings."""
    for _ in range(2):
        told = work.redcal("run", "--quiet", "--set", "reconcile.max_steps=1")
        assert (told.code, told.out) == (3, "")
        [line] = told.err.splitlines()
        assert line.startswith("redcal run: capped: 1 patch in 1 round on ")
        assert line.endswith(": max_rounds or max_steps stopped it before it was done")
    told = work.redcal("run", "--quiet", "--set", "reconcile.beta=1e-9")
    assert "times below the noise" in told.err and " WARNING " in told.err


def test_a_model_of_other_columns_or_models_is_refused(work: Work) -> None:
    work.ran("fit")
    assert work.redcal("export", "-o", "model.json").code == 0
    table = scores()
    write(table.rename_columns(["p" if name == "a" else name for name in table.column_names]))
    told = work.redcal("apply", "--model", "model.json", "--set", "input.model_1=p")
    assert told.code == 2
    assert "scores.parquet lacks columns of the model: 'a'. It was fitted on" in told.err
    write(table.append_column("c", table["a"]))
    work.tree["input"]["models"] = {"one": "a", "two": "b", "three": "c"}
    del work.tree["input"]["model_1"], work.tree["input"]["model_2"]
    told = work.redcal("apply", "--model", "model.json")
    assert (told.code, told.err) == (
        2,
        "redcal apply: the model is of 2 models, the configuration of 3\n",
    )


def test_apply_says_what_is_mostly_the_matter(work: Work) -> None:
    work.ran("fit")
    assert work.redcal("export", "-o", "model.json").code == 0
    table = scores()
    place = table.column_names.index("a")
    percent = [[100 * p for p in row] for row in table["a"].to_pylist()]
    write(table.set_column(place, "a", pa.array(percent)))
    told = work.redcal("apply", "--model", "model.json")
    assert told.code == 2
    assert "\n  (scores are probabilities: divide percentages by 100, " in told.err
    assert "\n  (input.on_bad_rows: skip passes such rows through untouched)" in told.err
    given = ("apply", "--model", "model.json", "--set", "input.on_bad_rows=skip")
    assert "those that cannot be used as they were (valid is false)\n" in work.redcal(*given).out


def test_one_log_line_a_round_without_a_terminal(work: Work) -> None:
    told = work.redcal("run")
    rounds = [line for line in told.err.splitlines() if " INFO round " in line]
    log = work.redcal("log", "--json").lines
    firsts = [patch for patch in log if patch["kind"] == "reconcile"]
    assert len(rounds) == len(firsts) > 1
    for line, first in zip(rounds, firsts, strict=True):
        assert f"round {first['round']}: {first['loss']}: " in line
        assert f"{first['rows']:,} rows, model {first['model']} patched" in line
        assert "disagree" in line
    assert " INFO scanning 600 rows" in told.err
    assert "\x1b" not in told.err + told.out


def test_verbose_tells_of_every_patch_everywhere(work: Work) -> None:
    work.tree["reconcile"]["algorithm"] = "dc_then_redcal"
    told = work.redcal("fit", "--verbose")
    everywhere = sum(patch["round"] is None for patch in work.redcal("log", "--json").lines)
    assert told.err.count("calibrating model") == everywhere > 2


def test_json_is_one_document(work: Work) -> None:
    run = work.ran()
    assert run["status"] == "converged"
    tables = ("out/rows", "out/rows_patches", "out/rows_history", "out/rows_metrics")
    assert run["outputs"] == dict.fromkeys(tables, 0)
    assert work.redcal("run", "--json").json == {
        "run_id": run["run_id"],
        "status": "converged",
        "unchanged": True,
        "report": "out/rows_report.html",
    }
    for command in ("check", "audit", "evaluate", "export", "apply"):
        assert isinstance(work.redcal(command, "--json").json, dict)
    assert [row["command"] for row in work.runs()] == ["run", "apply"]
    told = work.redcal("runs")
    assert run["run_id"] in told.out


def test_names_that_look_like_markup_are_printed_as_they_are(work: Work) -> None:
    triage = LOSSES["triage"] | {"actions": ["[red]home", ":warning:", "[/]"]}
    work.tree["losses"] = {"[b]": triage}
    assert "[red]home" in work.redcal("audit").out
    told = work.redcal("run")
    assert told.code == 0, told.err
    assert "[b]: cost of a" in told.out
    assert "[red]home / :warning:" in work.redcal("log").out


def test_demo_where_it_cannot_write(work: Work) -> None:
    Path("out").write_text("mine")
    told = work.cli("demo")
    assert told.code == 2
    assert "out/demo.yaml: cannot be written: File exists" in told.err
    Path("out").unlink()
    Path("out").mkdir()
    Path("out/demo.yaml").write_text("input: {}")
    told = work.cli("demo")
    assert told.code == 2
    assert "out/demo.yaml has changed since the demo wrote it" in told.err
    assert Path("out/demo.yaml").read_text() == "input: {}"
    with pytest.raises(SystemExit) as left:
        work.cli("demo", "--rows", "99999999999999")
    assert left.value.code == 2


def test_options_that_would_do_nothing_are_refused(work: Work) -> None:
    for arguments, text in (
        (("apply", "--switch-model"), "--switch-model needs --incremental or --follow"),
        (("runs", "--compact", "--keep", "3"), "need --prune"),
        (("runs", "--compact", "--dry-run"), "need --prune"),
    ):
        told = work.redcal(*arguments)
        assert (told.code, text in told.err) == (2, True), told.err


@pytest.mark.slow
def test_files_that_are_written_are_told_to_machines_too(work: Work) -> None:
    run_id = work.ran()["run_id"]
    told = work.redcal("export", "-o", "model.json", "--json")
    assert told.json == {"run_id": run_id, "model": "model.json"}
    for command in ("export", "report"):
        told = work.redcal(command, "-o", f"not/there/{command}")
        assert (told.code, told.err) == (0, "")
        assert Path("not/there", command).is_file()
        told = work.redcal(command, "-o", "scores.parquet/file")
        assert (told.code, told.out) == (2, "")
        assert "scores.parquet/file: " in told.err


def test_labels_that_are_all_alike_are_told(work: Work) -> None:
    table = scores()
    alike = ["grave" if x is not None else None for x in table["outcome"].to_pylist()]
    write(table.set_column(1, "outcome", pa.array(alike)))
    assert "fitting rows have the same label, 'grave'" in work.redcal("fit").err
    write(scores())
    assert "the same label" not in work.redcal("fit").err


def test_evaluate_before_any_run_says_what_to_do(work: Work) -> None:
    told = work.redcal("evaluate")
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        "redcal evaluate: nothing to evaluate: no table out/rows yet; write it with: "
        f"redcal run -c FILE; looked for {Path('out/rows').absolute()} (-C DIR starts in another "
        "folder)\n"
    )


def test_one_patch_is_told_in_the_singular(work: Work) -> None:
    work.tree["reconcile"] |= {"max_steps": 1}
    told = work.redcal("run")
    assert told.code == 3
    assert told.out.startswith("capped: 1 patch in 1 round on ")
    assert work.redcal("log").out.splitlines()[0].endswith(": capped, 1 patch, 1 round")
    assert work.redcal("export", "-o", "m.json").out == "1 patch in m.json\n"
    applied = work.redcal("apply", "--model", "m.json")
    assert applied.out == "1 patch applied to scores.parquet; rows in out/rows\n"
