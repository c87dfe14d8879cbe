"""What people see of a run: progress and a line a round on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from redcal_spark.cli.log_lines import Context
from redcal_spark.cli.streams import Screen, printable
from redcal_spark.cli.tables import event_words
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.number_text import cost_texts, model_text, share_text
from redcal_spark.core.patches import Patch
from redcal_spark.core.tuned import Candidate
from redcal_spark.runs.listener import Listener

log = logging.getLogger("redcal_spark")


SILENCE = 30.0  # seconds without a line of a log, at most, while a phase goes on
PHASES = {
    "scan": "scanning",
    "tune": "choosing eta",
    "fit": "reconciling",
    "holdout": "checking the result",
    "monitor": "measuring new rows",
    "write": "writing the log",
    "apply": "applying",
}


PASSES = {
    "events": "counting events",
    "residuals": "residuals",
    "gaps": "gaps",
    "sums": "sums",
    "rewrite": "rewriting rows",
    "holdout": "replaying",
}


class _Rows(ProgressColumn):
    """So many rows, of so many where that is known."""

    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f" of {int(task.total):,}"
        return Text(f"{int(task.completed):,}{total} rows")


class Terminal(Listener):
    """Shows a person how the run goes, on standard error; results go to standard output."""

    def __init__(
        self,
        quiet: bool = False,
        verbose: bool = False,
        screen: Screen | None = None,
        context: Context | None = None,
        form: str = "text",
        models: Sequence[str] | None = None,
    ):
        self.losses = LossFamily(())
        self.models = models  # their names, if they have any
        self.quiet = quiet
        self.verbose = verbose
        self.context = context or Context()
        self.console = (screen or Screen()).console(stderr=True, highlight=False)
        self.live = self.console.is_terminal and not quiet and form == "text"
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._patches = 0
        self._calibrations = 0
        self._headed = False
        self._phase = ""
        self._rows: tuple[int, int | None] = 0, None  # done, of all if that is known
        self._began = self._said = time.monotonic()

    def run(self, run_id: str) -> None:
        self.context.run_id = run_id

    def fit(self, losses: LossFamily) -> None:
        self.losses = losses

    def phase(self, name: str, rows: int | None = None) -> None:
        self.done()
        self.context.phase, self.context.round, self.context.step = name, None, None
        self._phase, self._rows = PHASES.get(name, name), (0, rows)
        self._began = self._said = time.monotonic()
        if not self.live:
            self._say(PHASES.get(name, name) + ("" if rows is None else f" {rows:,} rows"))
            return
        columns: tuple[ProgressColumn, ...] = (SpinnerColumn(), TextColumn("{task.description}"))
        if name in ("scan", "apply"):
            text = TextColumn("{task.description:<9}")
            columns = (text, BarColumn(24), _Rows(), TimeRemainingColumn(compact=True))
        self._progress = Progress(*columns, console=self.console, transient=True)
        self._task = self._progress.add_task(PHASES.get(name, name), total=rows)
        self._progress.start()

    def advance(self, rows: int) -> None:
        done, total = self._rows[0] + rows, self._rows[1]
        self._rows = done, total
        if self._progress is not None:
            self._progress.advance(self._task, rows)
        else:
            of_all = "" if total is None else f" of {total:,}"
            self._now_and_then(f"{done:,}{of_all} rows")

    def passing(self, name: str, done: int, total: int) -> None:
        share = f"{PASSES.get(name, name)} {done / max(1, total):.0%} of {total / 1e6:,.0f} MB"
        if self._progress is not None:
            patches = f": {self._patches:,} patches" if self._patches else ""
            self._progress.update(self._task, description=f"{self._phase}{patches}, {share}")
        else:
            self._now_and_then(share)

    def _now_and_then(self, text: str) -> None:
        """A line, if there was none for a while."""
        now = time.monotonic()
        if now - self._said >= SILENCE:
            self._say(f"{self._phase}: {text}, {now - self._began:.0f} s so far")

    def patch(self, patch: Patch) -> None:
        self._patches += 1
        self.context.round, self.context.step = patch.round, patch.step
        everywhere = patch.kind == "calibrate" and patch.round is None
        self._calibrations += patch.kind == "calibrate"
        own = model_text(patch.model, self.models)
        if self._progress is not None:
            phase = f"calibrating {own} everywhere" if everywhere else PHASES["fit"]
            self._progress.update(self._task, description=f"{phase}: {self._patches:,} patches")
        elif everywhere and (self.verbose or self._calibrations % 100 == 0):
            self._say(f"calibrating {own} everywhere: {self._calibrations:,} patches")

    def round(self, first: Patch, metrics: Metrics | None) -> None:
        patches = 1 + (self._calibrations if first.kind == "reconcile" else 0)
        self._calibrations = 0
        losses = self.losses
        if not self.live:
            self._say(round_line(first, patches, metrics, losses, self.models))
            return
        width = max(16, min(self.console.width - 60, longest_event(losses, self.models)))
        if not self._headed:
            self._headed = True
            self._say(round_heading(width, self.models))
        self._say(round_row(first, patches, metrics, losses, width, self.models))

    def candidate(self, candidate: Candidate, count: int) -> None:
        if self._progress is not None:
            text = f"{PHASES['tune']}: eta {candidate.eta:g}, beta {candidate.rule} is done"
            self._progress.update(self._task, description=text)

    def note(self, text: str) -> None:
        if self.live:
            self.console.print(f"note: {printable(text)}", markup=False)
        else:
            log.warning("%s", text)

    def done(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _say(self, text: str) -> None:
        if self.quiet:
            return
        self._said = time.monotonic()
        if self.live:
            self.console.print(text, markup=False)
        else:
            log.info("%s", text)


# --- a round ----------------------------------------------------------------------------------


def round_heading(width: int, models: Sequence[str] | None) -> str:
    event = f"{'model 1 / model 2' if models is None else 'event':<{width}}"[:width]
    return f"round  {event}  {'rows':>10}  patched         Brier     loss  disagree"


def round_row(
    first: Patch,
    patches: int,
    metrics: Metrics | None,
    losses: LossFamily,
    width: int,
    models: Sequence[str] | None,
) -> str:
    """A round as a line under the heading: Brier and loss are those of the patched model."""
    event, model = event_words(first, losses, models), first.model
    if len(event) > width:
        event = event[: width - 1] + "…"
    times = model_text(model, models) + (f" {patches:,}x" if patches > 1 else "")
    line = f"{first.round:>5}  {event:<{width}}  {first.rows:>10,}  {times:<13}"
    if metrics is not None and first.loss is not None:
        place = losses.place(first.loss)
        loss = cost_texts([float(metrics.decision_loss(place, model))])[0]
        apart = share_text(metrics.disagreement(place))
        line += f"  {float(metrics.usual_brier(model)):.4f}  {loss:>7}  {apart:>8}"
    return line


def round_line(
    first: Patch,
    patches: int,
    metrics: Metrics | None,
    losses: LossFamily,
    models: Sequence[str] | None,
) -> str:
    """A round in one sentence, for a log."""
    model, times = first.model, f" {patches:,} times" if patches > 1 else ""
    parts = [f"round {first.round}: {event_words(first, losses, models)}: {first.rows:,} rows"]
    parts.append(f"{model_text(model, models)} patched{times}")
    if metrics is not None and first.loss is not None:
        place = losses.place(first.loss)
        parts.append(f"its Brier score {float(metrics.usual_brier(model)):.4f}")
        parts.append(f"its loss {cost_texts([float(metrics.decision_loss(place, model))])[0]}")
        parts.append(f"{share_text(metrics.disagreement(place))} disagree")
    return ", ".join(parts)


def longest_event(losses: LossFamily, models: Sequence[str] | None) -> int:
    """The length of the longest text for an event."""
    lengths = [17]
    two = 6 + sum(sorted(map(len, models))[-2:]) if models is not None else 0
    for loss in losses.losses:
        name = len(loss.name) + 2 if len(losses) > 1 else 0
        lengths.append(name + 3 + sum(sorted(map(len, loss.actions))[-2:]) + two)
    return max(lengths)
