"""Telling: how commands end, on the screen and for machines."""

from __future__ import annotations

import argparse
import json
import logging
import sys

from rich.console import Console

from redcal_spark.cli.fail_on import MEANING, alerts
from redcal_spark.cli.streams import Screen
from redcal_spark.cli.terminal import (
    before_and_after,
)
from redcal_spark.model.guard import failures
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.report.write import report_run
from redcal_spark.runs.job import Job
from redcal_spark.runs.outcome import Outcome

log_line = logging.getLogger("redcal_spark.cli")

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


def tell_held(options: argparse.Namespace, outcome: Outcome) -> int:
    """Someone else is at work: that is no failure."""
    if options.json:
        row = outcome.row
        print(json.dumps({"run_id": row.run_id, "status": row.status, "held_by": row.holder}))
    elif not options.quiet:
        print(f"nothing to do: {outcome.held}; --wait waits for it")
    return 0


def tell_end(options: argparse.Namespace, job: Job, outcome: Outcome) -> int:
    """Tell how a run ended; what `--fail-on` names is a failure."""
    code = _ended(options, job, outcome)
    row = outcome.row
    if options.log_format == "json" and outcome.pair is not None:
        told = f"{row.status}: {row.patches:,} patches in {row.rounds:,} rounds"
        log_line.info("%s on %s rows", told, f"{row.fit_rows:,}")
    why = alerts(options.fail_on, outcome)
    for line in why:
        aside(options, f"redcal {options.command}: --fail-on {line}", logging.ERROR)
    return 1 if why else code


def _ended(options: argparse.Namespace, job: Job, outcome: Outcome) -> int:
    row = outcome.row
    if outcome.held is not None:
        return tell_held(options, outcome)
    page = report_run(job, row)
    told_page = None if page is None else str(page)
    if outcome.unchanged:
        if options.json:
            told = {"run_id": row.run_id, "status": row.status, "unchanged": True}
            print(json.dumps(told | {"report": told_page}))
        elif not options.quiet:
            print(
                f"nothing to do: run {row.run_id} did just this "
                f"({row.finished_at:%Y-%m-%d %H:%M:%S}); --force runs it again"
            )
            if row.status in MEANING:
                print(f"  {row.status}: {MEANING[row.status]}")
        return EXIT[row.status]  # else a run that is tried again would turn from 3 to 0
    assert outcome.pair is not None
    if options.json:
        told = {
            "run_id": row.run_id,
            "status": row.status,
            "patches": row.patches,
            "rounds": row.rounds,
            "outputs": json.loads(row.outputs or "{}"),
            "metrics": json.loads(row.metrics or "{}"),
            "certificate": json.loads(row.certificate or "null"),
            "timings": json.loads(row.timings or "{}"),
            "report": told_page,
        }
        print(json.dumps(told))
        return EXIT[row.status]
    if options.quiet:
        return EXIT[row.status]
    print(
        f"{row.status}: {counted(row.patches, 'patch', 'patches')} in "
        f"{counted(row.rounds, 'round', 'rounds')} on {counted(row.fit_rows, 'row', 'rows')} "
        f"(run {row.run_id})"
    )
    if row.status in MEANING:
        print(f"  {MEANING[row.status]}")
    for name, count in (("unlabelled", row.unlabelled_rows), ("unusable", row.bad_rows)):
        if count:
            rows = "row was" if count == 1 else "rows were"
            print(f"  {count:,} {name} {rows} not fitted")
    if row.command == "run" and sums_may_differ(outcome.pair) and not job.config.output.normalise:
        print("  patched scores need not sum to 1; output.normalise: true adds some that do")
    if outcome.pair.certificate is not None:
        certificate = outcome.pair.certificate
        falls = certificate.falls(model_names(job))
        for line in (*certificate.headline(), *falls, *failures(certificate)):
            console_of(options).print(f"  {line}")
    losses = outcome.pair.losses
    print()
    console_of(options).print(before_and_after(outcome.metrics, model_names(job), losses))
    print()
    versions = json.loads(row.outputs or "{}")
    for name, table in job.tables._asdict().items():
        if table in versions:
            print(f"  {'rows' if name == 'table' else name:<8} {table}, version {versions[table]}")
    print(f"  {'runs':<8} {job.tables.runs}")
    if told_page is not None:
        print(f"  {'report':<8} {told_page}")
    return EXIT[row.status]


def counted(number: int | None, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def sums_may_differ(pair: ReconciledPair) -> bool:
    """Whether some rows' scores may sum to something else than before: one column cannot."""
    return bool(pair.log) and not pair.binary


def patches_of(pair: ReconciledPair) -> str:
    return counted(len(pair.log), "patch", "patches")


def model_names(job: Job) -> list[str]:
    """What the models are called: by their column, where that tells them apart."""
    found = [job.config.input.score_columns(model) for model in (1, 2)]
    if any(len(columns) > 1 for columns in found) or found[0] == found[1]:
        return ["model 1", "model 2"]
    return [columns[0] for columns in found]
