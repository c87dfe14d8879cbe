"""The tables a run leaves behind: their schemas, versions, and what a failure leaves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from redcal_spark.backends.local.files import FileTable
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.store import Commit, Mode
from redcal_spark.backends.target import Target
from redcal_spark.errors import InputError, RunError
from redcal_spark.runs import patch_writer
from tests.e2e.work import Work, scores, write

ROWS = """
case: int64
outcome: string
fold: string
note: string
a: list<double>
b: list<double>
a_reconciled: list<double>
b_reconciled: list<double>
triage_1_before: string
triage_2_before: string
triage_1_after: string
triage_2_after: string
triage_agree: bool
beds_1_before: string
beds_2_before: string
beds_1_after: string
beds_2_after: string
beds_agree: bool
touched: bool
split: string
"""
PATCHES = """
run_id: string
step: int64
round: int64
kind: string
model: int32
other: int32
loss: string
a1: int32
a2: int32
action: int32
coordinate: int32
direction: string
rows: int64
phi: list<int32>
"""
HISTORY = """
run_id: string
split: string
step: int64
round: int64
model: int32
loss: string
rows: int64
brier: double
brier_sum: decimal128(38, 0)
decision_loss: double
loss_gap: double
largest_event: double
largest_event_rows: int64
disagreement: double
disagreement_rows: int64
calibration_gap: double
segment: string
segment_kind: string
segment_value: string
"""
RUNS = """
run_id: string
fingerprint: string
config_digest: string
command: string
status: string
started_at: timestamp[us, tz=UTC]
finished_at: timestamp[us, tz=UTC]
holder: string
heartbeat: timestamp[us, tz=UTC]
claim: string
previous_claim: string
rows: int64
fit_rows: int64
holdout_rows: int64
unlabelled_rows: int64
bad_rows: int64
patches: int64
rounds: int64
progress: string
beta: double
config: string
inputs: string
model: string
outputs: string
metrics: string
certificate: string
audits: string
counters: string
timings: string
error: string
package_version: string
exports: string
pruned_at: timestamp[us, tz=UTC]
measured: string
digests: string
"""


def told(schema: pa.Schema) -> str:
    def name(kind: pa.DataType) -> str:
        return f"list<{name(kind.value_type)}>" if pa.types.is_list(kind) else str(kind)

    return "\n" + "".join(f"{field.name}: {name(field.type)}\n" for field in schema)


def test_the_schemas(work: Work) -> None:
    work.ran()
    for table, schema in (
        ("out/rows", ROWS),
        ("out/rows_patches", PATCHES),
        ("out/rows_history", HISTORY),
        ("out/rows_runs", RUNS),
    ):
        assert told(work.table(table).schema) == schema, table


def test_skipped_rows_pass_through(work: Work) -> None:
    table = scores()
    bad = [None, *table["a"].to_pylist()[1:]]
    write(table.set_column(4, "a", pa.array(bad, pa.list_(pa.float64()))))
    assert work.redcal("run").code == 2
    assert not Path("out").exists()
    work.tree["input"]["on_bad_rows"] = "skip"
    told_ = work.redcal("run")
    assert told_.code == 0, told_.err
    assert "not fitted: 1 unusable row" in told_.out
    rows = work.table().sort_by("case")
    assert told(rows.schema) == ROWS + "valid: bool\n"
    first = rows.slice(0, 1).to_pylist()[0]
    assert (first["valid"], first["touched"], first["triage_1_after"]) == (False, False, None)
    assert first["a_reconciled"] is None
    assert first["b_reconciled"] == first["b"]
    assert pc.all(rows["valid"].slice(1)).as_py()


def test_the_rows(work: Work) -> None:
    run = work.ran()
    rows, given = work.table().sort_by("case"), scores()
    assert rows.select(given.column_names).equals(given)
    touched = 0
    for row in rows.to_pylist():
        same = (row["a_reconciled"], row["b_reconciled"]) == (row["a"], row["b"])
        assert same or row["touched"]
        for loss in ("triage", "beds"):
            assert row[f"{loss}_agree"] == (row[f"{loss}_1_after"] == row[f"{loss}_2_after"])
            if not row["touched"]:
                for model in (1, 2):
                    assert row[f"{loss}_{model}_after"] == row[f"{loss}_{model}_before"]
        touched += row["touched"]
    assert 0 < touched < 600
    [ledger] = work.runs()
    assert ledger["run_id"] == run["run_id"]
    assert ledger["rows"] == 600
    labels = given["outcome"].to_pylist()
    assert ledger["unlabelled_rows"] == labels.count(None)
    split = [f for f, label in zip(given["fold"].to_pylist(), labels, strict=True) if label]
    assert ledger["fit_rows"] == split.count("train")
    assert ledger["holdout_rows"] == split.count("test")
    assert ledger["bad_rows"] == 0
    assert json.loads(ledger["config"])["reconcile"]["eta"] == 0.01


def test_commits_name_run_and_fingerprint_and_versions_go_up_by_one(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patch_writer, "EVERY", 3_600)  # however slow the machine is
    for version in range(3):
        run = work.ran("run", "--force")
        ledger = work.runs()[-1]
        assert set(run["outputs"].values()) == {version}
        assert json.loads(ledger["outputs"]) == run["outputs"]
        for name in ("out/rows", "out/rows_patches", "out/rows_history"):
            newest = work.delta(name).history(1)[0]
            assert newest["version"] == version
            said = json.loads(newest["userMetadata"])
            assert said["redcal_run_id"] == run["run_id"]
            assert said["redcal_fingerprint"] == ledger["fingerprint"]
        # claimed, finished: a short run's patches are written at its end
        assert work.delta("out/rows_runs").version() == 2 * version + 1
        said = json.loads(work.delta("out/rows_runs").history(1)[0]["userMetadata"])
        assert said["redcal_run_id"] == run["run_id"]
    ids = [row["run_id"] for row in work.runs()]
    assert len(set(ids)) == 3
    assert len(set(work.table("out/rows_patches")["run_id"].to_pylist())) == 3
    assert work.table().num_rows == 600


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("target", ["out/rows_patches", "out/rows_history", "out/rows"])
def test_a_failure_between_writes_shows_no_half_a_run(
    work: Work, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    write_, put_ = DeltaRsStore.write, DeltaRsStore.put

    def fails(
        store: DeltaRsStore,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        if name == target:
            raise OSError("the disk is gone")
        return write_(store, name, schema, batches, mode, commit)

    def fails_too(store: DeltaRsStore, put: Target, *arguments: Any) -> int:
        if put.table == target:
            raise OSError("the disk is gone")
        return put_(store, put, *arguments)

    monkeypatch.setattr(DeltaRsStore, "write", fails)
    monkeypatch.setattr(DeltaRsStore, "put", fails_too)
    told_ = work.redcal("run")
    assert told_.code == 1
    assert "the disk is gone" in told_.err
    [row] = work.runs()
    assert (row["status"], row["outputs"], row["model"]) == ("failed", None, None)
    assert row["error"] == "OSError: the disk is gone"
    assert work.redcal("log").code == 2
    assert row["run_id"] in work.redcal("runs").out
    monkeypatch.undo()
    monkeypatch.chdir(work.folder)
    run = work.ran()
    assert run["outputs"]["out/rows"] == 0
    assert [(r["run_id"], r["status"]) for r in work.runs()] == [(row["run_id"], "converged")]
    assert work.ran()["unchanged"]


def test_what_late_tasks_left_beside_the_rows_goes_when_their_run_has_ended(work: Work) -> None:
    """A task that Spark gave up may write after its run has moved the table to its place."""
    assert work.redcal("run").code == 0
    [first] = work.runs()
    ended, working = (
        Path(f"out/.rows.{name}.partial") for name in (first["run_id"], "20260101T000000-aaaaaa")
    )
    link, other = Path("out/.rows.x.partial"), Path(f"out/.others.{first['run_id']}.partial")
    for folder in (ended, working, other):
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(b"late")
    link.symlink_to(other.absolute())
    assert work.redcal("run", "--force").code == 0
    assert not ended.exists()
    assert working.is_dir() and other.is_dir() and link.is_symlink()


def test_a_failure_that_cannot_be_recorded_is_still_the_first_one(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, calls = DeltaRsStore.merge, 0

    def second_fails(store: DeltaRsStore, *arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:  # claimed
            raise RunError("no ledger any more")
        merge(store, *arguments, **named)

    def fails(*_: object) -> int:
        raise OSError("the disk is gone")

    monkeypatch.setattr(DeltaRsStore, "merge", second_fails)
    monkeypatch.setattr(DeltaRsStore, "write", fails)
    told_ = work.redcal("run")
    assert told_.code == 1
    assert "the failure could not be recorded: no ledger any more" in told_.err
    assert told_.err.splitlines()[-2].endswith("OSError: the disk is gone")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("phase", ["scan", "apply"])
@pytest.mark.parametrize("how", ["replaced", "damaged"])
def test_an_input_that_changes_during_the_run_voids_it(
    work: Work, monkeypatch: pytest.MonkeyPatch, phase: str, how: str
) -> None:
    work.ran()
    version = work.delta().version()
    name = {"scan": "pieces", "apply": "batches"}[phase]  # what reads the rows then
    read, calls = getattr(FileTable, name), 0

    def changes(table: FileTable, columns: list[str] | None = None, *more: Any) -> Iterator[Any]:
        nonlocal calls
        yield from read(table, columns, *more)
        if phase == "scan" or set(columns or ()) == set(table.schema.names):  # whole rows
            calls += 1
            if calls == 1 and how == "damaged":
                Path("scores.parquet").write_bytes(b"PAR1")
                raise InputError("cannot be read")
            write(scores(seed=6))

    monkeypatch.setattr(FileTable, name, changes)
    told_ = work.redcal("run", "--force")
    assert told_.code == 1
    assert "scores.parquet changed during the run, so the run is void: start it again" in told_.err
    assert work.delta().version() == version
    monkeypatch.undo()
    monkeypatch.chdir(work.folder)
    rows = work.runs()
    if phase == "apply":
        assert rows[-1]["status"] == "failed"
        assert "changed during the run" in rows[-1]["error"]
    assert [row["outputs"] is not None for row in rows] == [True, False][: len(rows)]


def test_a_fit_writes_no_rows_and_minds_no_names(work: Work) -> None:
    work.ran()
    work.tree["input"] |= {
        "table": "out/rows",
        "model_1": "a_reconciled",
        "model_2": "b_reconciled",
    }
    work.tree["output"]["table"] = "again/rows"
    assert work.redcal("run").code == 2  # the columns are there already
    again = work.ran("fit")
    assert (again["status"], again["patches"]) == ("converged", 0)
    work.tree["output"]["suffix"] = "_v2"
    assert work.ran()["patches"] == 0
    rows = work.table("again/rows").sort_by("case")
    for model in "ab":
        assert rows[f"{model}_reconciled_v2"].equals(rows[f"{model}_reconciled"])
    assert not any(rows["touched_v2"].to_pylist())
