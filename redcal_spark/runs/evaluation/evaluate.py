"""The evaluation: a run made again from its input, and all that it wrote compared with it."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from redcal_spark import __version__
from redcal_spark.backends.names import Place
from redcal_spark.backends.store import Table
from redcal_spark.certificate.certify import Certificate, certify
from redcal_spark.config.folder import looked_for
from redcal_spark.config.redaction import VARIABLE
from redcal_spark.core.differences import Difference, Words
from redcal_spark.core.metrics import Metrics, Totals
from redcal_spark.errors import InputError, RedcalError, RedcalWarning, RunError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.evaluation.applied_model import Applied, applied_by, roles_applied
from redcal_spark.runs.evaluation.findings import Checked, Result, result
from redcal_spark.runs.evaluation.ledger_checks import check_ledger, expected_of, lost
from redcal_spark.runs.evaluation.notes import other_configuration, other_rows
from redcal_spark.runs.evaluation.redone import (
    Redone,
    Source,
    job_of,
    plain,
    recorded_job,
    redo,
    source_of,
)
from redcal_spark.runs.evaluation.row_checks import (
    Written,
    check_rows,
    has_all_rows,
    input_left,
    of_input,
    written_by,
    written_totals,
)
from redcal_spark.runs.evaluation.side_checks import check_history, check_metrics, check_patches
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import UNFINISHED, RunRow, cell_digests

OF_A_RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
STREAMED = (
    "that these are the rows that came to the source meanwhile: a stream does not record which "
    "rows it read"
)


@dataclass
class Evaluation:
    """What was checked, and what was measured on the way.

    row: the run. metrics: before and after, per split, of the rows as they are written.
    certificate: every check once more. notes: what a reader should know.
    """

    row: RunRow | None = None
    checked: list[Checked] = field(default_factory=list)
    metrics: dict[str, tuple[Metrics, Metrics]] = field(default_factory=dict)
    certificate: Certificate | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> Result:
        return result(self.checked)


def evaluate(
    job: Job, run_id: str | None = None, model: ReconciledPair | None = None
) -> Evaluation:
    """Check all that a run wrote: the one whose rows the table has, or a run by its id.

    model: what it applied, if that was a file.
    """
    last = job.store.last_writer(job.tables.table)
    known = {row.run_id: row for row in job.ledger.rows()}
    evaluation = Evaluation()
    if run_id is None:
        if last is not None and last not in known and OF_A_RUN.fullmatch(last):
            evaluation.checked.append(lost(job, last))
        row = _chosen(job, last, known)
    else:
        if run_id not in known:
            raise UsageError(f"no run {run_id!r} in {job.tables.runs}")
        row = known[run_id]
    if row is None:
        if evaluation.checked:
            return evaluation
        raise UsageError(
            f"nothing to evaluate: no table {job.tables.table} yet; write it with: "
            f"redcal run -c FILE{_looked_for(job.tables.table)}"
            if not job.store.exists(job.tables.table)
            else f"no finished run in {job.tables.runs} wrote {job.tables.table}"
        )
    evaluation.row = row
    used = job_of(job, row)
    evaluation.notes += other_configuration(job, used, row)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RedcalWarning)  # the run itself has warned
        _evaluate(used, row, last, model, evaluation)
        evaluation.notes += other_rows(job, row)
    notes = (note for checked in evaluation.checked for note in checked.notes)
    evaluation.notes += dict.fromkeys(notes)
    return evaluation


def _looked_for(table: str) -> str:
    return looked_for(table) if Place(table).is_here else ""


def _chosen(job: Job, last: str | None, known: dict[str, RunRow]) -> RunRow | None:
    """The run whose rows a reader finds; else the last that wrote rows, or anything."""
    if last in known:
        return known[last]
    target = job.config.recorded()["output"]["table"]
    ours = [row for row in known.values() if target_of_run(row) in (target, None)]
    for wanted in (("run", "apply", "stream"), ("fit",)):
        for row in reversed(ours):
            if row.command in wanted and (row.outputs is not None or not _sealed(job, row)):
                return row
    return ours[-1] if ours else None


def target_of_run(row: RunRow) -> Any:
    """The table of a run's rows as its configuration names it; None: it does not any more."""
    output = (plain(row.config) or {}).get("output")
    return output.get("table") if isinstance(output, dict) else None


def _sealed(job: Job, row: RunRow) -> bool:
    """Whether the row is as it was written."""
    sealed = plain(row.digests)
    return all(sealed == cell_digests(one) for one in job.ledger.as_stored(row.run_id))


def _evaluate(
    job: Job, row: RunRow, last: str | None, model: ReconciledPair | None, evaluation: Evaluation
) -> None:
    sealed = _sealed(job, row)
    if sealed:
        row.check_kept()
        if row.status in UNFINISHED:
            why = f"run {row.run_id} did not finish ({row.status}): go on with: redcal resume"
            evaluation.checked.append(Checked("run", row.run_id, job.tables.runs, unchecked=[why]))
            return
        names = sorted({name[1] for name in VARIABLE.finditer(row.config) if name[1]})
        if names and job.digest != row.config_digest:
            why = f"the configuration of run {row.run_id} uses environment variables, and a "
            why += f"value has changed since: set {', '.join(names)} as it was then"
            evaluation.checked.append(Checked("run", row.run_id, job.tables.runs, unchecked=[why]))
            return
        if _of_another_configuration(job, row):
            raise UsageError(
                f"run {row.run_id} was made with another configuration than this one, and the "
                "ledger's copy of it cannot be used here: evaluate the run with its own file"
            )
    fitted = row.command in ("run", "fit") or row.model is not None
    wrote = row.command != "fit"
    written = written_by(job, row, last) if wrote else None
    if isinstance(written, Written):
        _note_versions(job, row, last, written, evaluation)
    elif written is not None:
        _no_rows(job, row, written, evaluation)
        written = None
    if fitted:
        _of_a_fit(job, row, written, evaluation)
    else:
        _of_an_apply(job, row, written, model, evaluation)


def _of_another_configuration(job: Job, row: RunRow) -> bool:
    """Whether a run of this release is not of the job's configuration, by digest and by text."""
    if job.digest == row.config_digest or row.package_version != __version__:
        return False
    recorded = recorded_job(job, row)
    return recorded is None or recorded.digest != job.digest


def _note_versions(
    job: Job, row: RunRow, last: str | None, written: Written, evaluation: Evaluation
) -> None:
    name = job.tables.table
    if not written.newest:
        evaluation.notes.append(
            f"other runs have written {name} since: checked is its version {written.version}, "
            f"which run {row.run_id} wrote"
        )
    elif last != row.run_id and job.config.output.mode != "append":
        evaluation.notes.append(
            f"{name}: its newest version, {written.version}, was not written by a run of ours; it "
            f"is checked against run {row.run_id}"
        )


def _no_rows(job: Job, row: RunRow, why: str, evaluation: Evaluation) -> None:
    name = job.tables.table
    checked = Checked("rows", row.run_id, name)
    if job.store.exists(name):
        checked.unchecked.append(why)
    else:
        checked.findings.append(Difference("missing", {"table": name}))
    evaluation.checked.append(checked)


# --- a run that fitted --------------------------------------------------------------------------


def _of_a_fit(job: Job, row: RunRow, written: Written | None, evaluation: Evaluation) -> None:
    known = _redone(job, row, written)
    if isinstance(known, str):
        expected = expected_of(job, row, None, None)
        evaluation.checked.append(check_ledger(job, row, expected, known))
        for what in ("patches", "history", "metrics"):
            name = getattr(job.tables, what)
            evaluation.checked.append(Checked(what, row.run_id, name, unchecked=[known]))
        if written is not None:
            name = job.tables.table
            evaluation.checked.append(Checked("rows", row.run_id, name, unchecked=[known]))
        return
    source, redone = known
    job = source.job
    if written is not None:
        evaluation.checked.append(check_rows(job, row, written, source, redone.pair, redone.roles))
    evaluation.checked += [
        check_patches(job, row, redone),
        check_history(job, row, redone),
        check_metrics(job, row, redone.pair, redone.counts, redone.histories),
    ]
    identity = source.identity if source.why is None else None
    expected = expected_of(job, row, identity, None) | redone.ledger
    why = None if source.why is None else f"which input it was: {source.why}"
    evaluation.checked.append(check_ledger(job, row, expected, why))
    measured = None if written is None else of_input(job, written, source)
    _certified(job, row, redone, measured if has_all_rows(job) else None, evaluation)


def _redone(job: Job, row: RunRow, written: Written | None) -> tuple[Source, Redone] | str:
    """The fit made again, from the input or from what the written rows have of it."""
    source = source_of(job, row)
    why = source if isinstance(source, str) else None
    if isinstance(source, Source):
        try:
            return source, redo(source.job)
        except (InputError, RunError) as err:
            why = str(err)
    assert why is not None
    if written is None:
        return f"the input of run {row.run_id} is gone, and it wrote no rows: {why}"
    if job.config.output.rows == "touched":
        return f"{why}; and {job.tables.table} has only the rows that were touched"
    if job.config.output.mode == "merge" and written.everything.count() != row.rows:
        return f"{why}; and {job.tables.table} has rows of other runs, and nothing separates them"
    try:
        left = input_left(job, row, written, why)
        return left, redo(left.job)
    except RedcalError as err:
        return f"{why}; and the written rows cannot replace it: {err}"


def _certified(
    job: Job, row: RunRow, redone: Redone, rows: Table | None, evaluation: Evaluation
) -> None:
    """Every guarantee once more; the sums also from the scores that were written."""
    checked = Checked("certificate", row.run_id, how="every guarantee checked again on the rows")
    totals: dict[str, Totals] = {}
    if rows is not None:
        try:
            totals = written_totals(job, rows)
        except RedcalError as err:
            checked.unchecked.append(f"sums of the written rows: {err}")
    pair, points = redone.pair, redone.histories
    certificate = certify(
        pair,
        points["fit"],
        points.get("holdout", ()),
        replayed=totals.get("fit"),
        holdout_replayed=totals.get("holdout"),
        rechecked=redone.rechecked,
        delta=job.delta,
        candidates=1 if pair.certificate is None else pair.certificate.candidates,
    )
    for check in certificate.violated:
        where = {"check": check.name, "split": check.split}
        checked.findings.append(Difference("violated", where, None, Words(check.line().strip())))
    evaluation.checked.append(checked)
    evaluation.certificate = certificate
    for split, history in points.items():
        after = totals.get(split, history[-1].totals)
        first, last = (Metrics(one, pair.losses, pair.binary) for one in (history[0].totals, after))
        evaluation.metrics[split] = first, last


# --- a run that applied -------------------------------------------------------------------------


def _of_an_apply(
    job: Job,
    row: RunRow,
    written: Written | None,
    given: ReconciledPair | None,
    evaluation: Evaluation,
) -> None:
    used = applied_by(job, row, given)
    source = source_of(job, row)
    pair = used.pair
    if written is not None:
        evaluation.checked.append(_applied_rows(job, row, written, used, source))
    counts = {} if row.rows is None else {"rows": row.rows}
    evaluation.checked.append(check_metrics(job, row, pair, counts, {}))
    identity = source.identity if isinstance(source, Source) else None
    plain_model = None if pair is None or not used.sure else pair.to_json()
    expected = expected_of(job, row, identity, plain_model)
    if pair is not None and used.sure:
        expected |= {"status": pair.status, "patches": len(pair.log), "rounds": pair.log.rounds}
    done = job.store.written(job.tables.table, row.commit) if row.command == "apply" else None
    if (
        done is not None and job.config.output.rows == "all"
    ):  # a MERGE tells how many it changed, and nobody can count that again
        expected["rows"] = done[1]
    why = None if isinstance(source, Source) else source
    evaluation.checked.append(check_ledger(job, row, expected, why))
    if used.row is not None:
        evaluation.notes.append(f"the model is of run {used.row.run_id}, which is checked too")
        _of_a_fit(job_of(job, used.row), used.row, None, evaluation)


def _applied_rows(
    job: Job, row: RunRow, written: Written, used: Applied, source: Source | str
) -> Checked:
    name = job.tables.table
    if used.pair is None:
        why = f"{name}: the model that run {row.run_id} applied is not in the ledger as it was; "
        why += "if it was a file: redcal evaluate --model FILE"
        return Checked("rows", row.run_id, name, unchecked=[why])
    if row.command == "stream":
        if job.config.output.mode != "append":
            why = f"{name}: which rows a stream merged is not recorded"
            return Checked("rows", row.run_id, name, unchecked=[why])
        source = STREAMED
    if isinstance(source, str):
        try:
            source = input_left(job, row, written, source)
        except InputError as err:
            return Checked("rows", row.run_id, name, unchecked=[f"{source}; and {err}"])
    roles = roles_applied(source.job, row)
    return check_rows(job, row, written, source, used.pair, roles)
