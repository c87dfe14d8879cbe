"""What an evaluation found, on the screen and for machines."""

from __future__ import annotations

import argparse
from typing import Any

from redcal_spark.cli.results import console_of, model_names
from redcal_spark.cli.terminal import before_and_after
from redcal_spark.model.audit import audit
from redcal_spark.runs.evaluation.evaluate import Evaluation
from redcal_spark.runs.job import Job

SUMMARY = {
    "ok": "all is as the run must have written it",
    "differs": "something is not as the run must have written it",
    "not checkable": "something could not be checked",
}


def evaluation_json(found: Evaluation) -> dict[str, Any]:
    """{run_id, result, checked, notes, splits, certificate}; `Checked.to_json` is of one check."""
    certificate = found.certificate
    return {
        "run_id": None if found.row is None else found.row.run_id,
        "result": found.result,
        "checked": [checked.to_json() for checked in found.checked],
        "notes": found.notes,
        "splits": {
            split: {"before": audit(before), "after": audit(after)}
            for split, (before, after) in found.metrics.items()
        },
        "certificate": None if certificate is None else certificate.to_json(),
    }


def tell_evaluation(options: argparse.Namespace, job: Job, found: Evaluation) -> None:
    console = console_of(options)
    if found.metrics:
        losses = next(iter(found.metrics.values()))[0].losses  # the input may be gone
        console.print(before_and_after(found.metrics, model_names(job), losses))
        console.print()
    if found.row is not None:
        console.print(f"run {found.row.run_id}: {SUMMARY[found.result]}")
    for note in found.notes:
        console.print(f"  note: {note}")
    for checked in found.checked:
        where = f" {checked.table}" if checked.table else ""
        other = "" if found.row is None or checked.run_id == found.row.run_id else checked.run_id
        run = f" (run {other})" if other else ""
        console.print(f"  {checked.result:<13} {checked.what:<11}{where}{run}")
        if options.verbose and checked.how:
            console.print(f"    from {checked.how}")
        for line in checked.lines():
            console.print(f"    {line}")
    if found.certificate is not None:
        console.print()
        for line in found.certificate.lines():
            console.print(f"  {line}")
