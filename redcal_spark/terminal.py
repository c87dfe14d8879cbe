"""What people see of a run: progress and a line a round on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from redcal_spark.losses import LossFamily
from redcal_spark.metrics import Metrics
from redcal_spark.patches import Patch
from redcal_spark.runs import Listener

log = logging.getLogger("redcal_spark")

PHASES = {
    "scan": "scanning",
    "fit": "reconciling",
    "judge": "judging",
    "write": "writing the log",
    "apply": "applying",
}


class Terminal(Listener):
    """Tells a person how the run goes, on standard error; results go to standard output."""

    def __init__(self, losses: LossFamily | None, quiet: bool = False, verbose: bool = False):
        self.losses = losses
        self.quiet = quiet
        self.verbose = verbose
        self.console = Console(stderr=True, highlight=False)
        self.live = self.console.is_terminal and not quiet
        self._progress: Progress | None = None
        self._bar: Any = None
        self._calibrations = 0

    def phase(self, name: str, rows: int | None = None) -> None:
        self.done()
        if self.live and name in ("scan", "apply"):
            self._progress = Progress(
                TextColumn("{task.description:<12}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("rows"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self._progress.start()
            self._bar = self._progress.add_task(PHASES[name], total=rows)
        elif not self.live:
            self._say(PHASES.get(name, name) + ("" if rows is None else f" {rows:,} rows"))

    def advance(self, rows: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._bar, rows)

    def patch(self, patch: Patch) -> None:
        if patch.kind == "calibrate":
            self._calibrations += 1
            if patch.round is None and (self.verbose or self._calibrations % 100 == 0):
                self._say(
                    f"calibrating model {patch.model} everywhere: {self._calibrations:,} patches"
                )

    def round(self, first: Patch, metrics: Metrics | None) -> None:
        inner = self._calibrations if first.kind == "reconcile" else 0
        self._calibrations = 0
        if self.losses is not None:
            self._say(round_line(first, inner, metrics, self.losses))

    def note(self, text: str) -> None:
        if self.live:
            self.console.print(f"note: {text}", markup=False)
        elif not self.quiet:
            log.warning("%s", text)

    def done(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _say(self, text: str) -> None:
        if self.quiet:
            return
        if self.live:
            self.console.print(text, markup=False)
        else:
            log.info("%s", text)


def round_line(first: Patch, inner: int, metrics: Metrics | None, losses: LossFamily) -> str:
    """A round in one line: the event, how many rows, who was patched, and how things stand."""
    parts = [f"round {first.round}: {event_words(first, losses)}", f"{first.rows:,} rows"]
    parts.append(f"model {first.model} patched" + (f" and calibrated {inner}x" if inner else ""))
    if metrics is not None:
        parts.append(f"Brier {_two(metrics.brier(1), metrics.brier(2))}")
        if first.loss is not None:
            place = losses.place(first.loss)
            one, two = (metrics.decision_loss(place, model) for model in (1, 2))
            parts.append(f"loss {_two(one, two)}")
            parts.append(f"{share(metrics.disagreement(place))} disagree")
    return "; ".join(parts)


def event_words(patch: Patch, losses: LossFamily) -> str:
    """The event of a round's first patch in words."""
    if patch.kind == "score":
        return f"class {patch.coordinate}: model 1 {patch.direction} model 2"
    assert patch.loss is not None and patch.a1 is not None and patch.a2 is not None
    actions = losses[losses.place(patch.loss)].actions
    return f"{patch.loss}: model 1 {actions[patch.a1]}, model 2 {actions[patch.a2]}"


def _two(one: Fraction, two: Fraction) -> str:
    return f"{float(one):.4f} / {float(two):.4f}"


def share(x: Fraction) -> str:
    return f"{float(x) * 100:.2f} %"


def before_and_after(
    found: dict[str, tuple[Metrics, Metrics]], models: Sequence[str], losses: LossFamily
) -> Table:
    """The closing table: what changed, on the rows fitted and the rows judged."""
    table = Table(title=None, header_style="bold", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for split, (before, _) in found.items():
        called = "fitted" if split == "fit" else "judged"
        table.add_column(f"{called} before", justify="right")
        table.add_column(f"after ({before.rows:,})", justify="right")

    def row(name: str, value: Any) -> None:
        table.add_row(name, *(value(m) for pair in found.values() for m in pair))

    for model in (1, 2):
        row(f"Brier score, {models[model - 1]}", lambda m, i=model: f"{float(m.brier(i)):.5f}")
    for place, loss in enumerate(losses.losses):
        for i in (1, 2):
            row(
                f"{loss.name}: loss, {models[i - 1]}",
                lambda m, p=place, i=i: f"{float(m.decision_loss(p, i)):.5f}",
            )
        row(f"{loss.name}: rows that disagree", lambda m, p=place: share(m.disagreement(p)))
        row(f"{loss.name}: largest event", lambda m, p=place: share(m.largest_event(p)))
    if not len(losses):
        row("largest share beyond alpha", lambda m: share(m.largest_gap()))
    return table


def set_up_logging(quiet: bool, verbose: bool) -> None:
    """Log lines go to standard error; only the command line installs a handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.handlers[:] = [handler]
    log.setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO)
    log.propagate = False
