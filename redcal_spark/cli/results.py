"""Results: how commands end, on the screen and for machines."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from redcal_spark.backends.location import Location
from redcal_spark.cli.fail_on import MEANING, alerts
from redcal_spark.cli.log_lines import log_line
from redcal_spark.cli.streams import Screen
from redcal_spark.cli.tables import before_and_after
from redcal_spark.core.columns import shown_models
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.number_text import plural
from redcal_spark.core.problem import worse_than_equal
from redcal_spark.errors import UsageError
from redcal_spark.model.audit import audit
from redcal_spark.model.guard import failures
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.registry.runs import log_run
from redcal_spark.report.data import Report
from redcal_spark.report.write import is_of, place_after_run, write_report
from redcal_spark.runs.evaluation.evaluate import Evaluation
from redcal_spark.runs.evaluation.findings import only_violated
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.outcome import Outcome

EVALUATED = {
    "ok": "everything matches a repeat of the run",
    "differs": "something differs from a repeat of the run",
    "not checkable": "something could not be checked",
}
VIOLATED = "everything matches a repeat of the run, and its certificate has violated statements"
EXIT = {"converged": 0, "capped": 3, "stalled": 3, "cut": 3}


def aside(options: argparse.Namespace, text: str, level: int = logging.INFO) -> None:
    """A line on standard error that is no part of the log; but where that is JSON, it is one."""
    if options.log_format == "json":
        log_line.log(level, "%s", text)
    else:
        print(text, file=sys.stderr)


def console_of(options: argparse.Namespace) -> Console:
    """Standard output; wide where no terminal says how wide it is, so that nothing wraps there."""
    width = None if sys.stdout.isatty() else 160
    screen: Screen = options.screen
    return screen.console(highlight=False, markup=False, emoji=False, width=width)


def show(options: argparse.Namespace, data: Any, *lines: str) -> int:
    """The result of a command that did well: for machines, or in lines for people."""
    if options.json:
        print(json.dumps(data))
    elif not options.quiet:
        print(*lines, sep="\n")
    return 0


def show_held(options: argparse.Namespace, outcome: Outcome) -> int:
    """Someone else is at work: that is no failure."""
    row = outcome.row
    data = {"run_id": row.run_id, "status": row.status, "held_by": row.holder}
    return show(options, data, f"nothing to do: {outcome.held}; --wait waits for it")


def show_end(options: argparse.Namespace, job: Job, outcome: Outcome) -> int:
    """Show how a run ended; what `--fail-on` names is a failure."""
    code = _ended(options, job, outcome)
    row = outcome.row
    if options.log_format == "json" and outcome.pair is not None:
        log_line.info("%s", _done(row))
    why = alerts(options.fail_on, outcome)
    for line in why:
        aside(options, f"redcal {options.command}: --fail-on {line}", logging.ERROR)
    return 1 if why else code


def _ended(options: argparse.Namespace, job: Job, outcome: Outcome) -> int:
    row = outcome.row
    if outcome.held is not None:
        return show_held(options, outcome)
    page = _report_page(job, row)
    logged = log_run(job, row)
    if options.json:
        end = _end_json(outcome) | {"report": page}
        print(json.dumps(end if logged is None else end | {"mlflow_run": logged}))
    elif outcome.unchanged and not options.quiet:
        force = "redcal run --force" if options.command == "resume" else "--force"
        print(did_just_this(row, f"{force} runs it again"))
        if row.status in MEANING:
            print(f"  {row.status}: {MEANING[row.status]}")
    elif not options.quiet:
        _show_run(options, job, outcome, page, logged)
    elif row.status in MEANING:
        said = f"{_done(row)} (run {row.run_id}): {MEANING[row.status]}"
        aside(options, f"redcal {options.command}: {said}", logging.WARNING)
    return EXIT[row.status]  # of an earlier run, too: tried again, 3 must not turn into 0


def did_just_this(row: RunRow, way_out: str) -> str:
    when = f"{row.finished_at:%Y-%m-%d %H:%M:%S}"
    return f"nothing to do: run {row.run_id} did just this ({when}); {way_out}"


def _end_json(outcome: Outcome) -> dict[str, Any]:
    row = outcome.row
    if outcome.unchanged:
        return {"run_id": row.run_id, "status": row.status, "unchanged": True}
    return {
        "run_id": row.run_id,
        "status": row.status,
        "patches": row.patches,
        "rounds": row.rounds,
        "outputs": json.loads(row.outputs or "{}"),
        "metrics": json.loads(row.metrics or "{}"),
        "certificate": json.loads(row.certificate or "null"),
        "timings": json.loads(row.timings or "{}"),
    }


def _show_run(
    options: argparse.Namespace, job: Job, outcome: Outcome, page: str | None, logged: str | None
) -> None:
    row, pair, console = outcome.row, outcome.pair, console_of(options)
    assert pair is not None
    print(f"{_done(row)} (run {row.run_id})")
    if row.status in MEANING:
        print(f"  {MEANING[row.status]}")
    if pair.zero_calibrations:
        ended = plural(pair.zero_calibrations, "calibration")
        print(f"  {ended} ended on a patch that rounds to nothing: gaps above beta may be left")
        print("  (a finer reconcile.grid_bits, or none, goes on)")
    for name, count in (("unlabelled", row.unlabelled_rows), ("unusable", row.bad_rows)):
        if count:
            print(f"  not fitted: {plural(count, f'{name} row')}")
    off_1 = pair.log and not pair.binary  # one column and its rest always sum to 1
    if row.command == "run" and off_1 and not job.config.output.normalise:
        print("  patched scores need not sum to 1; output.normalise: true adds some that do")
    if pair.certificate is not None:
        falls = pair.certificate.falls(model_names(job))
        wrong = failures(pair.certificate, job.config.input.model_names)
        for line in (*pair.certificate.headline(), *falls, *wrong):
            console.print(f"  {line}")
    if (doubt := _mixed_up(job, outcome)) is not None:
        console.print(f"  but {doubt}")
    print()
    console.print(_table(job, outcome.metrics, pair.losses))
    print()
    versions = json.loads(row.outputs or "{}")
    for name, table in job.tables._asdict().items():
        if table in versions:
            print(f"  {'rows' if name == 'table' else name:<8} {table}, version {versions[table]}")
    print(f"  {'runs':<8} {job.tables.runs}")
    if page is not None:
        print(f"  {'report':<8} {page}")
    if logged is not None:
        print(f"  {'mlflow':<8} run {logged}")


def _mixed_up(job: Job, outcome: Outcome) -> str | None:
    """The warning that makes all else worthless, once more at the end: it scrolls away."""
    both = outcome.metrics.get("fit")
    return None if both is None else worse_than_equal(both[0].totals, model_names(job))


def _table(job: Job, metrics: Mapping[str, tuple[Metrics, Metrics]], losses: LossFamily) -> Table:
    return before_and_after(metrics, model_names(job), losses, exact(job.config.input.weight_unit))


def _done(row: RunRow) -> str:
    patches = plural(row.patches or 0, "patch", "patches")
    rounds, rows = plural(row.rounds or 0, "round"), plural(row.fit_rows or 0, "row")
    return f"{row.status}: {patches} in {rounds} on {rows}"


def _report_page(job: Job, row: RunRow) -> str | None:
    """The report after a run, if one is wanted. A run does not fail by it: the reason is noted.

    A report of this very run that is there already is left as it is.
    """
    place = place_after_run(job.config)
    if place is None or row.command != "run":
        return None
    if not is_of(place, row.run_id) and not _written(job, row, place, "no report"):
        return None
    return place.name


def refresh_report(job: Job, row: RunRow) -> None:
    """Write a run's report anew, where it is the one that is there."""
    place = place_after_run(job.config)
    if place is not None and is_of(place, row.run_id):
        _written(job, row, place, "the report stays as it was")


def _written(job: Job, row: RunRow, place: Location, otherwise: str) -> bool:
    """Whether a report could be written; else the reason is noted."""
    try:
        write_report(Report.of(job.store, job.tables, row), place)
    except UsageError as err:
        job.listener.note(f"{otherwise}: {err}")
        return False
    return True


def patches_of(pair: ReconciledPair) -> str:
    return plural(len(pair.log), "patch", "patches")


def model_names(job: Job) -> tuple[str, ...]:
    """What the models are called, by the configuration alone: the input may be gone."""
    given = job.config.input
    columns = [given.score_columns(model) for model in range(1, given.n_models + 1)]
    return shown_models(given.model_names, [c[0] if len(c) == 1 else c for c in columns])


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """{run_id, result, checked, notes, splits, certificate}; `Checked.to_json` is of one check."""
    certificate = evaluation.certificate
    return {
        "run_id": None if evaluation.row is None else evaluation.row.run_id,
        "result": evaluation.result,
        "checked": [checked.to_json() for checked in evaluation.checked],
        "notes": evaluation.notes,
        "splits": {
            split: {"before": audit(before), "after": audit(after)}
            for split, (before, after) in evaluation.metrics.items()
        },
        "certificate": None if certificate is None else certificate.to_json(),
    }


def _headline(evaluation: Evaluation) -> str:
    return VIOLATED if only_violated(evaluation.checked) else EVALUATED[evaluation.result]


def tell_findings(options: argparse.Namespace, evaluation: Evaluation) -> None:
    """What is not as it must be, or could not be checked, and nothing else."""
    run = "" if evaluation.row is None else f"run {evaluation.row.run_id}: "
    aside(options, f"redcal evaluate: {run}{_headline(evaluation)}", logging.ERROR)
    for note in evaluation.notes:
        aside(options, f"  note: {note}", logging.WARNING)
    for checked in evaluation.checked:
        if checked.result != "ok":
            lines = [f"{checked.result} {checked.what} {checked.table or ''}", *checked.lines()]
            aside(options, "\n    ".join(["  " + lines[0].rstrip(), *lines[1:]]), logging.ERROR)


def show_evaluation(options: argparse.Namespace, job: Job, evaluation: Evaluation) -> None:
    console = console_of(options)
    if evaluation.metrics:
        losses = next(iter(evaluation.metrics.values()))[0].losses  # the input may be gone
        console.print(_table(job, evaluation.metrics, losses))
        console.print()
    if evaluation.row is not None:
        console.print(f"run {evaluation.row.run_id}: {_headline(evaluation)}")
    for note in evaluation.notes:
        console.print(f"  note: {note}")
    for checked in evaluation.checked:
        where = f" {checked.table}" if checked.table else ""
        own = evaluation.row is None or checked.run_id in ("", evaluation.row.run_id)
        run = "" if own else f" (run {checked.run_id})"
        console.print(f"  {checked.result:<13} {checked.what:<11}{where}{run}")
        if options.verbose and checked.how:
            console.print(f"    from {checked.how}")
        for line in checked.lines():
            console.print(f"    {line}")
    if evaluation.certificate is not None:
        console.print()
        for line in evaluation.certificate.lines(job.config.input.model_names):
            console.print(f"  {line}")
