"""`redcal tune`: which eta and beta these rows bear out, told and, if asked for, written."""

from __future__ import annotations

import argparse
import json

from rich.table import Table

from redcal_spark.atomic_write import write_whole
from redcal_spark.cli.open_job import job_of
from redcal_spark.cli.results import console_of
from redcal_spark.cli.tables import columns_of
from redcal_spark.config.edit import with_values
from redcal_spark.config.load import load_config
from redcal_spark.core.number_text import digits_for, share_text
from redcal_spark.core.tuned import Candidate
from redcal_spark.errors import UsageError
from redcal_spark.report.compare_chart import check_chart
from redcal_spark.report.tune_chart import write_tune_chart
from redcal_spark.runs.tune import Tuning, tune_job


def tune(options: argparse.Namespace) -> int:
    if options.output is not None:
        check_chart(options.output)  # before hours are spent
    job = job_of(options)
    if options.write:
        _edited(options.config, {"eta": "0.01", "beta": "auto"})  # that it can be, before hours
    tuning = tune_job(job)
    if options.output is not None:
        write_tune_chart(tuning, options.output)
    if options.write:
        _write(options.config, tuning)
    if options.json:
        written = options.config if options.write else None
        print(json.dumps({"input": job.input.name, **tuning.to_json(), "written": written}))
    elif not options.quiet:
        console = console_of(options)
        console.print(candidates_table(tuning))
        for line in advice(tuning, options):
            console.print(line, soft_wrap=True)
    return 0


def candidates_table(tuning: Tuning) -> Table:
    """Every candidate; the chosen one is marked. Losses are means of a row, a loss and a model."""
    tuned = tuning.tuned
    headings = ["eta", "beta", "loss", "above\nbest", "in\ndispute", "patches\n(fold 1, 2)"]
    table = columns_of(["", "rule"], headings)
    table.add_column("ended")
    exact = [*(candidate.loss for candidate in tuned.candidates), tuned.before.loss]
    losses = [float(tuning.mean_loss(loss)) for loss in exact]
    best = tuning.mean_loss(tuning.chosen.loss)
    digits = digits_for(losses) + 1

    def numbers(loss: float, disputed: int) -> list[str]:
        above = f"{loss - float(best):+.{digits}f}"
        return [f"{loss:.{digits}f}", above, share_text(tuned.share(disputed))]

    before = numbers(losses[-1], tuned.before.disputed)
    table.add_row("", "no patches", "", "", *before, "", "")
    for candidate, loss in zip(tuned.candidates, losses, strict=False):
        mark = "->" if candidate is tuning.chosen else ""
        eta, beta = f"{candidate.eta:g}", f"{tuning.beta_of(candidate):g}"
        patches = ", ".join(f"{fold.patches:,}" for fold in candidate.folds)
        shown = numbers(loss, candidate.disputed)
        table.add_row(mark, _rule(candidate), eta, beta, *shown, patches, _ended(candidate))
    return table


def advice(tuning: Tuning, options: argparse.Namespace) -> list[str]:
    """What the numbers are of, and what to do."""
    tuned, given = tuning.tuned, tuning.given
    rows, fit_rows = tuned.rows, tuned.fit_rows
    if tuned.counts is not None:
        rows, fit_rows = tuned.counts.used, tuned.counts.fit_rows
    some = "" if tuned.level == 0 else f" of {fit_rows:,}, chosen by a hash"
    weighted = "" if tuned.counts is None else "; rows count by their weights"
    lines = [
        "",
        f"Each candidate was fitted on half of {rows:,} fitting rows{some}, and tried on the "
        f"other half{weighted}. Losses are rescaled to [0, 1].",
        f"recommended: eta {tuning.eta:g}, beta {tuning.beta:g} ({_rule(tuning.chosen)})",
    ]
    if tuned.before.loss <= tuning.chosen.loss:
        lines.append(
            "no candidate lowers the loss on rows that it was not fitted on: reconciling these "
            "models makes them agree, and costs no less"
        )
    if tuning.chosen.unfinished:
        lines.append(
            "the recommended one did not converge: raise reconcile.max_steps or max_rounds, and "
            "tune again"
        )
    if options.write:
        lines.append(f"written to {options.config}: " + _words(tuning))
    elif given.tunes:
        lines.append("reconcile.eta is auto: redcal run chooses the same")
    else:
        lines.append(f"--write puts it into {options.config}: " + _words(tuning))
    if options.output is not None:
        lines.append(f"chart    {options.output}")
    return lines


def _words(tuning: Tuning) -> str:
    return ", ".join(f"reconcile.{key}: {value}" for key, value in tuning.values.items())


def _rule(candidate: Candidate) -> str:
    return "as given" if candidate.stretch is None else candidate.rule


def _ended(candidate: Candidate) -> str:
    return ", ".join(dict.fromkeys(candidate.unfinished))


def _write(path: str, tuning: Tuning) -> None:
    text = _edited(path, tuning.values)
    try:
        write_whole(path, lambda file: file.write(text))
    except OSError as err:
        raise UsageError(f"{path}: {err.strerror}") from err
    written = load_config(path).reconcile
    assert written.eta == tuning.eta


def _edited(path: str, values: dict[str, str]) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return with_values(file.read(), "reconcile", values, path)
    except OSError as err:
        raise UsageError(f"{path}: {err.strerror}") from err
