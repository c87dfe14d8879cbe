"""What new labelled rows say of a fitted pair: masses, losses, patches and shares, with intervals.

All intervals hold together with probability 1 - delta, as those of a certificate. What they do not
decide is said to be undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from redcal_spark.certificate.case import Case
from redcal_spark.certificate.history_checks import largest_event
from redcal_spark.certificate.holdout import HoldoutRows, statements
from redcal_spark.certificate.intervals import Interval, Level
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.patch_effects import PatchEffect
from redcal_spark.core.patches import Patch

MassVerdict = Literal["within eta", "within 2 eta", "above eta", "above 2 eta", "undecided"]
ChangeVerdict = Literal["fell", "rose", "undecided", "unchanged"]


@dataclass(frozen=True)
class Mass:
    """The largest event of a loss after the patches, by its share of the new rows.

    models: which disagree; the first takes action a1, the other one a2.
    """

    loss: str
    models: tuple[int, int]
    a1: int
    a2: int
    rows: int
    share: Fraction
    interval: Interval | None
    verdict: MassVerdict


@dataclass(frozen=True)
class LossChange:
    """A model's mean cost on the new rows, in the user's units. interval: of after minus before."""

    loss: str
    model: int
    before: Fraction
    after: Fraction
    interval: Interval | None
    verdict: ChangeVerdict


@dataclass(frozen=True)
class PatchOnNewRows:
    """A patch: its share of the fitting rows and of the new ones, and what it does to its loss.

    change: of the patched model's loss by this patch alone, a mean over all new rows, in the
    user's units; None: the loss is not known (Reconcile). drifted: the shares differ for certain.
    """

    patch: Patch
    fitted_share: Fraction
    rows: int
    share: Fraction
    share_interval: Interval | None
    change: Fraction | None
    interval: Interval | None
    verdict: ChangeVerdict
    drifted: bool


@dataclass(frozen=True)
class Monitored:
    """New rows against a pair: everything that is said of them, at one level."""

    pair: Fitted
    points: Sequence[Point]  # of the new rows
    effects: Sequence[PatchEffect]
    delta: Fraction

    @property
    def rows(self) -> int:
        """With weights, their sum."""
        return self.points[-1].totals.rows

    @property
    def weights(self) -> dict[str, Any] | None:
        """The rows themselves, the largest weight, and how many equal rows would say as much."""
        return self.points[-1].totals.weights_seen

    @cached_property
    def held(self) -> HoldoutRows:
        case = Case(self.pair, self.points)
        more = len(self.effects) * 3  # of each patch both shares, and its change
        return HoldoutRows(case, self.points, Level(self.delta, statements(case) + more))

    @cached_property
    def masses(self) -> list[Mass]:
        """None for what has no eta, or no events."""
        eta, masses = self.pair.resolved.eta, []
        if eta is None or not self.pair.parameters.reconciles_decisions:
            return []
        for loss, counts in zip(
            self.pair.losses.losses, self.points[-1].totals.events, strict=True
        ):
            a1, a2, models = largest_event(counts, self.pair.rules.pairs)
            hits = int(counts.max())
            interval = self.held.share(hits)
            share, said = Fraction(hits, self.rows), _mass(interval, eta)
            masses.append(Mass(loss.name, models, a1, a2, hits, share, interval, said))
        return masses

    @cached_property
    def losses(self) -> list[LossChange]:
        return list(self._losses())

    def _losses(self) -> Iterator[LossChange]:
        losses = self.pair.losses
        first, last = (Metrics(p.totals, losses) for p in (self.points[0], self.points[-1]))
        for place, loss in enumerate(losses.losses):
            for model in range(1, self.pair.columns.n_models + 1):
                fall = self.held.fall(place, model)
                rise = None if fall is None else _turned(fall)
                moved = any(patch.model == model for patch in self.pair.log)
                yield LossChange(
                    loss.name,
                    model,
                    first.decision_loss(place, model),
                    last.decision_loss(place, model),
                    rise if moved else None,
                    _change(rise) if moved else "unchanged",
                )

    @cached_property
    def patches(self) -> list[PatchOnNewRows]:
        return [self._patch(*each) for each in zip(self.pair.log, self.effects, strict=True)]

    def _patch(self, patch: Patch, effect: PatchEffect) -> PatchOnNewRows:
        held, losses, n = self.held, self.pair.losses, self.pair.rows
        share = held.share(effect.rows)
        change = interval = None
        said: ChangeVerdict = "undecided"
        if patch.loss is not None and self.rows:
            place = losses.place(patch.loss)
            scale, within = losses[place].scale, held.loss_within(place)
            sums = effect.losses[place]
            change = scale * Fraction(sums.total, self.rows) * within.unit
            mean = held.mean(sums, within)
            interval = None if mean is None else held.in_units(mean, place)
            said = _change(interval)
        return PatchOnNewRows(
            patch, Fraction(patch.rows, n), effect.rows, Fraction(effect.rows, self.rows),
            share, change, interval, said, self._drifted(patch, share),
        )  # fmt: skip

    def _drifted(self, patch: Patch, share: Interval | None) -> bool:
        """Whether its share of the new rows cannot be that of the fitting rows."""
        if share is None or self.pair.counted < 2:
            return False
        fitted = self.held.level.share(patch.rows, self.pair.rows, self.pair.weights)
        return share.low > fitted.high or share.high < fitted.low

    # --- what to be warned of -----------------------------------------------------------------

    @property
    def alerts(self) -> dict[str, str]:
        """What is wrong for certain, by the name that `--fail-on` has for it, in words."""
        alerts: dict[str, str] = {}
        large = [mass for mass in self.masses if mass.verdict == "above 2 eta"]
        if large:
            names = ", ".join(mass.loss for mass in large)
            alerts["mass"] = f"an event has more than 2 eta of the new rows: {names}"
        rose = [loss for loss in self.losses if loss.verdict == "rose"]
        if rose:
            names = ", ".join(f"{each.loss} ({self._called(each.model)})" for each in rose)
            alerts["loss"] = f"the patches raise the cost of new rows: {names}"
        hurt = [each for each in self.patches if each.verdict == "rose"]
        if hurt:
            steps = ", ".join(str(each.patch.step) for each in hurt[:10])
            alerts["patch"] = f"{len(hurt):,} patches raise the cost of new rows: steps {steps}"
        drifted = [each for each in self.patches if each.drifted]
        if drifted:
            steps = ", ".join(str(each.patch.step) for each in drifted[:10])
            what = f"{len(drifted):,} patches act on another share of rows"
            alerts["drift"] = f"{what}: steps {steps}"
        return alerts

    def _called(self, model: int) -> str:
        names = self.pair.columns.model_names
        return f"model {model}" if names is None else names[model - 1]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            **({} if self.weights is None else {"weights": self.weights}),
            "delta": float(self.delta),
            "alerts": self.alerts,
            "masses": [_plain(mass) for mass in self.masses],
            "losses": [_plain(loss) for loss in self.losses],
            "patches": [
                {"step": each.patch.step, "loss": each.patch.loss} | _plain(each)
                for each in self.patches
            ],
        }


ALERTS = ("mass", "loss", "patch", "drift", "no_rows")


def _mass(interval: Interval | None, eta: Fraction) -> MassVerdict:
    if interval is None:
        return "undecided"
    if interval.low > 2 * eta:
        return "above 2 eta"
    if interval.high <= eta:
        return "within eta"
    if interval.high <= 2 * eta:
        return "within 2 eta"
    return "above eta" if interval.low > eta else "undecided"


def _change(interval: Interval | None) -> ChangeVerdict:
    if interval is None or interval.low <= 0 <= interval.high:
        return "undecided"
    return "fell" if interval.high < 0 else "rose"


def _turned(interval: Interval) -> Interval:
    return Interval(-interval.high, -interval.low, interval.confidence, interval.method)


def _plain(each: Any) -> dict[str, Any]:
    """Fractions as numbers, intervals as their ends."""
    plain: dict[str, Any] = {}
    for name, value in vars(each).items():
        if isinstance(value, Fraction):
            plain[name] = float(value)
        elif isinstance(value, Interval):
            plain[name] = [float(value.low), float(value.high)]
        elif not isinstance(value, Patch):
            plain[name] = value
    return plain
