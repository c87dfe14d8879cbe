"""What `${NAME}` in a configuration stands for is neither printed nor written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from tests.e2e.test_resume import killed
from tests.e2e.work import CLASSES, LOSSES, Told, Work, scores

# Long and short ones, and such as addresses, JSON and Python spell otherwise.
SECRETS = {
    "IN_KEY": "in-7f3a9c5e",
    "OUT_KEY": "töken 'x' 91d2",
    "LOSS_KEY": "loss-55aa77",
    "RARE": "classified-r2",
    "DESK": "bureau-of-4711",
    "TIER": "q9z",
}


@pytest.fixture
def secret(work: Work, monkeypatch: pytest.MonkeyPatch) -> Work:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    table = scores()
    labels = [SECRETS["RARE"] if x == "rare" else x for x in table["outcome"].to_pylist()]
    Path("data").mkdir()
    table = table.set_column(1, "outcome", pa.array(labels))
    write_deltalake(f"data/{SECRETS['IN_KEY']}/s{SECRETS['TIER']}", table)
    Path(f"{SECRETS['LOSS_KEY']}.yaml").write_text(yaml.safe_dump(LOSSES["triage"]))
    work.tree["input"] |= {
        "table": "data/${IN_KEY}/s${TIER}",
        "classes": [*CLASSES[:2], "${RARE}", CLASSES[3]],
    }
    beds = LOSSES["beds"] | {"actions": ["${DESK}", "elsewhere"]}
    work.tree["losses"] = {"triage": {"file": "${LOSS_KEY}.yaml"}, "beds": beds}
    work.tree["output"]["table"] = "out/${OUT_KEY}/rows"
    return work


def found_in(text: str) -> list[str]:
    spelt = {
        name: {value, json.dumps(value)[1:-1], repr(value)[1:-1], value.replace(" ", "%20")}
        for name, value in SECRETS.items()
    }
    return [name for name, forms in spelt.items() if any(form in text for form in forms)]


def shows_nothing(told: Told) -> Told:
    assert found_in(told.out) == [] and found_in(told.err) == [], told
    return told


def written(folder: Path) -> dict[str, bytes]:
    """What we wrote: not the input, the losses, and the rows, which are data."""
    target = Path("out", SECRETS["OUT_KEY"], "rows")
    own = [Path("data"), target, Path(f"{SECRETS['LOSS_KEY']}.yaml"), Path("scores.parquet")]
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not any(path.is_relative_to(folder / x) for x in own)
    }


def commits(table: str) -> list[str]:
    """What a table's commits say of themselves."""
    logs = sorted(Path(table, "_delta_log").glob("*.json"))
    lines = [line for log in logs for line in log.read_text("utf-8").splitlines()]
    return [line for line in lines if "commitInfo" in json.loads(line)]


LOUD = ("--verbose", "--log-format", "json")


@pytest.mark.parametrize(
    "how", [(), pytest.param(LOUD, marks=pytest.mark.slow)], ids=["text", "json"]
)
def test_no_command_prints_or_writes_a_value(secret: Work, how: tuple[str, ...]) -> None:
    def does(command: str, *more: str, code: int = 0) -> Told:
        told = shows_nothing(secret.redcal(command, *how, *more))
        assert told.code == code, told.err
        return told

    told = does("check")
    assert "out/${OUT_KEY}/rows_patches" in told.out and "data/${IN_KEY}/s${TIER}" in told.out
    does("audit")
    does("audit", "--json")
    told = does("run")
    assert "out/${OUT_KEY}/rows, version 0" in told.out
    again = does("run", "--json", "--force")
    assert again.json["outputs"]["out/${OUT_KEY}/rows"] == 1
    does("run")  # nothing to do
    does("explain", "--id", "1003")
    does("explain", "--id", "1003", "--json")
    assert "${DESK}" in does("log").out
    does("log", "--json")
    does("runs")
    does("evaluate")
    does("evaluate", "--json")
    does("export")
    does("export", "-o", "model.json")
    does("report")
    does("report", "-o", "report.html", "--json")
    does("apply", "--model", "model.json")
    does("apply")
    does("apply", "--json")
    does("runs", "--prune", "--keep", "1", "--dry-run")
    does("runs", "--prune", "--keep", "1", "--compact", "--json")
    # failures
    does("run", "--set", "input.label=nope", code=2)
    does("run", "--set", "input.version=99", code=2)
    does("run", "--set", "input.classes=['a${RARE}','b','c','${DESK}']", code=2)
    does("run", "--set", "losses.triage.file=${LOSS_KEY}.csv", code=2)
    does("run", "--set", "input.table=data/${IN_KEY}/none", code=2)
    does("run", "--set", "output.table=scores.parquet/${OUT_KEY}", code=2)
    does("explain", "--id", "nope", code=2)
    does("log", "--run", "nope", code=2)
    rows = does("runs", "--json").lines
    for row in rows:
        assert json.loads(row["config"])["output"]["table"] == "out/${OUT_KEY}/rows"
        assert json.loads(row["inputs"])["table"] == "data/${IN_KEY}/s${TIER}"
    for name, data in written(secret.folder).items():
        assert found_in(data.decode("utf-8", "replace")) == [], name
    for table in ("patches", "history", "metrics", "runs"):
        stored = secret.table(f"out/{SECRETS['OUT_KEY']}/rows_{table}")
        assert found_in(json.dumps(stored.to_pylist(), default=str, ensure_ascii=False)) == []
    # but the rows have what they must have
    target = f"out/{SECRETS['OUT_KEY']}/rows"
    said = commits(target)
    assert len(said) == 5 and found_in("\n".join(said)) == []
    actions = set(secret.table(target)["beds_1_after"].to_pylist())
    assert SECRETS["DESK"] in actions


@pytest.mark.parametrize("how", [(), ("--verbose",), LOUD], ids=["text", "verbose", "json"])
def test_unexpected_errors_show_no_value(
    secret: Work, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    def broken(*_: object) -> None:
        raise OSError(13, "no way", f"out/{SECRETS['OUT_KEY']}/rows")

    monkeypatch.setattr("redcal_spark.runs.run.history_table", broken)
    told = shows_nothing(secret.redcal("run", *how))
    assert told.code == 1 and "no way" in told.err
    assert ("Traceback" in told.err) == bool(how)
    shows_nothing(secret.redcal("runs"))
    table = secret.table(f"out/{SECRETS['OUT_KEY']}/rows_runs")
    [error] = table["error"].to_pylist()
    assert "no way" in error and "out/${OUT_KEY}/rows" in error
    assert found_in(error) == []


def test_a_run_with_secrets_is_found_and_resumed(
    secret: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(secret.tree, sort_keys=False), "utf-8")
    killed("inside a calibration", "run", "-c", "config.yaml")
    told = shows_nothing(secret.redcal("resume"))
    assert told.code == 0, told.err
    [row] = secret.runs()
    assert row["status"] == "converged"
    assert secret.ran()["unchanged"]
    log = secret.redcal("log", "--json").lines
    assert len(log) == row["patches"] > 3
    monkeypatch.setenv("RARE", "another")
    assert "no finished run of this configuration" in secret.redcal("log").err


def test_a_model_of_a_run_has_its_names_back(secret: Work) -> None:
    secret.ran()
    target = f"out/{SECRETS['OUT_KEY']}/rows"
    rows = secret.table(target).sort_by("case")
    assert secret.redcal("apply").code == 0
    assert secret.table(target).sort_by("case").equals(rows)
    told = secret.redcal("export", "-o", "model.json")
    assert told.code == 0
    assert "${DESK}" in Path("model.json").read_text()
    assert secret.redcal("apply", "--model", "model.json").code == 0
    again = secret.table(target).sort_by("case").drop_columns(["split"])  # which a file can't tell
    assert again.equals(rows.drop_columns(["split"]))
