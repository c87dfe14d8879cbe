"""A run's row of the ledger: recomputed where it can be, else against its own digests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from redcal_spark import __version__
from redcal_spark.core.differences import Difference, Words
from redcal_spark.runs.evaluation.findings import Checked
from redcal_spark.runs.evaluation.redone import plain, recorded_job
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import JSON_TEXTS, RunRow, cell_digests, fingerprint

JSON_CELLS = (*JSON_TEXTS, "config", "counters", "timings", "progress", "measured")
OF_RELEASE = ("model", "certificate", "metrics", "audits", "config", "fingerprint", "config_digest")
HOW = (
    "counts, measures, model, certificate, configuration and versions: recomputed; times, holder, "
    "claims, counters and exports, which nobody can recompute: their digests in the same row"
)


def check_ledger(job: Job, row: RunRow, expected: dict[str, Any], why: str | None) -> Checked:
    """expected: the cells that were recomputed. why: some could not be, and why."""
    checked = Checked("ledger", row.run_id, job.tables.runs, HOW)
    stored = job.ledger.as_stored(row.run_id)
    name = {"run_id": row.run_id}
    if len(stored) > 1:
        checked.findings.append(Difference("repeated", name))
    sealed = plain(stored[0].get("digests"))
    if sealed is None and row.package_version != __version__:
        why_not = f"release {row.package_version} wrote no digests"
        checked.unchecked.append(f"{job.tables.runs}, what nobody can recompute: {why_not}")
    elif not isinstance(sealed, dict):
        digests = Words("the digests of its row")
        checked.findings.append(Difference("changed", name, "digests", sealed, digests))
        sealed = None
    now = cell_digests(stored[0])
    wrong = dict(_wrong(row, expected))
    if why is not None:
        checked.unchecked.append(f"{job.tables.runs}, what follows from the input: {why}")
    for column in now:
        kept = sealed is None or sealed.get(column) == now[column]
        if column in wrong and kept and _of_another_release(row, column):
            since = f"was written by release {row.package_version}, this is {__version__}"
            checked.unchecked.append(f"{job.tables.runs}, column {column!r}: {since}")
        elif column in wrong:
            checked.findings.append(Difference("changed", name, column, *wrong[column]))
        elif not kept and column in expected and column not in JSON_CELLS:
            other, must = Words(f"another one for {column!r}"), Words(now[column])
            checked.findings.append(Difference("changed", name, "digests", other, must))
        elif not kept:
            was = Words("what its digest is of")
            checked.findings.append(Difference("changed", name, column, stored[0][column], was))
    if sealed is not None and sealed.keys() != now.keys():
        more = Words(", ".join(map(repr, sorted(sealed.keys() ^ now.keys()))))
        checked.findings.append(Difference("changed", name, "digests", more, Words("all columns")))
    return checked


def _of_another_release(row: RunRow, column: str) -> bool:
    return row.package_version != __version__ and column in OF_RELEASE


def lost(job: Job, run_id: str) -> Checked:
    """A run that wrote a table and that the ledger has not; perhaps under another name."""
    checked = Checked("ledger", run_id, job.tables.runs, "the history of the tables it wrote")
    name = {"run_id": run_id}
    meant = cell_digests({**dict.fromkeys(RunRow.__dataclass_fields__), "run_id": run_id})["run_id"]
    for row in job.ledger.rows():
        sealed = plain(row.digests)
        if isinstance(sealed, dict) and sealed.get("run_id") == meant:
            checked.findings.append(Difference("changed", name, "run_id", row.run_id, run_id))
    if not checked.findings:
        checked.findings.append(Difference("missing", name))
    return checked


def expected_of(job: Job, row: RunRow, identity: Any, model: Any) -> dict[str, Any]:
    """The cells that every run has. identity: of its input, if that is known.

    model: the one that was applied, for who applied one; None: it is not known.
    """
    cells: dict[str, Any] = {"run_id": row.run_id, "error": None, "pruned_at": None}
    cells["config_digest"] = job.digest
    recorded = recorded_job(job, row)
    unusable = recorded is None and "${" not in row.config  # and no variable is the reason
    if unusable or (recorded is not None and recorded.digest != job.digest):
        cells["config"] = job.config.recorded()
    if identity is not None:
        cells["inputs"] = identity
        if row.command in ("run", "fit") or (row.command == "apply" and model is not None):
            cells["fingerprint"] = fingerprint(job.digest, identity, row.command, model)
    versions = _versions(job, row)
    if versions is not None:
        cells["outputs"] = versions
    return cells


def _versions(job: Job, row: RunRow) -> dict[str, int] | None:
    """What the tables' own histories say of the versions that a run wrote.

    None: they have forgotten, or a stream wrote many.
    """
    there = plain(row.outputs)
    if row.command == "stream" or not isinstance(there, dict):
        return None if row.command == "stream" else {}
    tables = job.tables
    names = [tables.metrics]
    names += [tables.patches, tables.history] if row.command in ("run", "fit") else []
    names += [tables.table] if row.command != "fit" else []
    versions: dict[str, int] = {}
    for name in names:
        phase = 0
        if name == tables.patches:
            written = job.store.read(name, {"run_id": row.run_id})
            phase = 0 if written is None else len(set(written["step"].to_pylist()))
        done = job.store.written(name, replace(row.commit, phase=phase))
        if done is None:
            return None
        versions[name] = done[0]
    return versions


def _wrong(row: RunRow, expected: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for column, must in expected.items():
        cell = getattr(row, column)
        if column in JSON_CELLS:
            must = plain(must) if isinstance(must, str) else must
            there = plain(cell)
            if cell is not None and there is None:  # no JSON any more
                yield column, (cell, must)
            elif there != must:
                yield column, _apart(there, must)
        elif cell != must:
            yield column, (cell, must)


def _apart(stored: Any, must: Any, path: str = "") -> tuple[Any, Any]:
    """The first place at which two trees differ."""
    if isinstance(stored, dict) and isinstance(must, dict):
        for key in dict.fromkeys([*must, *stored]):
            if key not in stored or key not in must or stored[key] != must[key]:
                return _apart(stored.get(key), must.get(key), f"{path}.{key}")
    if isinstance(stored, list) and isinstance(must, list) and len(stored) == len(must):
        for place, (one, two) in enumerate(zip(stored, must, strict=True)):
            if one != two:
                return _apart(one, two, f"{path}[{place}]")
    if not path:
        return stored, must
    where = path.removeprefix(".")
    return Words(f"{stored!r} at {where}"), Words(repr(must))
