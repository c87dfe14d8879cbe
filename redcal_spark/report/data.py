"""Everything a report shows, from a run's row in the ledger, its history and its patches.

Names and paths are those of the configuration as recorded: a variable `${NAME}` in it stays one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.backends.store import Store
from redcal_spark.certificate.certify import Certificate
from redcal_spark.config.tables import OutputTables
from redcal_spark.core.columns import shown_models
from redcal_spark.core.events import Pair, pairs_of
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.number_text import weight_text
from redcal_spark.core.parameters import Parameters, Resolved
from redcal_spark.core.patches import Patch, PatchLog
from redcal_spark.core.splits import SPLITS
from redcal_spark.core.tuned import Tuned
from redcal_spark.model.summary import largest_class, usual_brier
from redcal_spark.report.markup import Html
from redcal_spark.report.numbers import shown
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.monitor import KIND, days_of
from redcal_spark.runs.tables import history_of, pair_of
from redcal_spark.settings import MAX_MODELS

# of the models, in the page's style
STYLES = {1: "one", 2: "two"} | {model: f"model-{model}" for model in range(3, MAX_MODELS + 1)}
WHENS = ("before", "after")
LOSSES = 4  # shown at length
Audit = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """A run, as it is shown. Losses are known by their place, models are 1, 2, ..."""

    row: RunRow
    config: Mapping[str, Any]  # as recorded
    parameters: Parameters
    resolved: Resolved
    losses: LossFamily
    log: PatchLog
    certificate: Certificate | None
    binary: bool  # scores are one column P(1)
    n_classes: int
    audits: Mapping[str, Mapping[str, Audit]]  # split -> before, after
    history: pa.Table
    zero_calibrations: int  # that ended on a patch which rounds to nothing
    versions: Mapping[str, int]  # of the tables that were written, by their key under `output`
    tuned: Tuned | None = None  # how eta was chosen, where it was `auto`
    days: Sequence[Mapping[str, Any]] = ()  # what `redcal monitor` saw since, a day each

    @classmethod
    def of(cls, store: Store, tables: OutputTables, row: RunRow) -> Report:
        """The report of a run that has a model."""
        pair = pair_of(store, tables.patches, row)
        history = history_of(store, tables.history, row)
        outputs = json.loads(row.outputs or "{}")
        written = tables._asdict()
        return cls(
            row=row,
            config=json.loads(row.config),
            parameters=pair.parameters,
            resolved=pair.resolved,
            losses=pair.losses,
            log=pair.log,
            certificate=pair.certificate,
            binary=pair.binary,
            n_classes=pair.n_classes,
            audits=json.loads(row.audits or "{}"),
            history=pa.table({"step": []}) if history is None else history,
            zero_calibrations=pair.zero_calibrations,
            versions={key: outputs[name] for key, name in written.items() if name in outputs},
            tuned=pair.tuned,
            days=days_of(store.read(tables.metrics, {"kind": KIND}), row.run_id),
        )

    # --- names ----------------------------------------------------------------------------------

    @cached_property
    def models(self) -> tuple[str, ...]:
        """What the models are called: by name, or by column, where that tells them apart."""
        given = self.config["input"]
        if given.get("models") is not None:
            return tuple(map(str, given["models"]))
        both = (given[key] for key in ("model_1", "model_2"))
        return shown_models(None, [x["columns"] if isinstance(x, Mapping) else x for x in both])

    @property
    def numbers(self) -> range:
        """The models by number."""
        return range(1, len(self.models) + 1)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        return pairs_of(len(self.models))

    @cached_property
    def actions(self) -> tuple[tuple[str, ...], ...]:
        """Per loss, the names of its actions."""
        written = self.config.get("losses") or {}
        return tuple(
            tuple(written.get(loss.name, {}).get("actions") or loss.actions)
            for loss in self.losses.losses
        )

    def as_written(self, text: str) -> str:
        """A sentence that quotes actions, with their names as the configuration has them."""
        for loss, names in zip(self.losses.losses, self.actions, strict=True):
            for resolved, name in zip(loss.actions, names, strict=True):
                if resolved != name:
                    text = text.replace(repr(resolved), repr(name))
        return text

    def class_name(self, coordinate: int) -> str:
        names = self.config["input"].get("classes")
        return f"class {coordinate}" if names is None else str(names[coordinate])

    # --- rows -----------------------------------------------------------------------------------

    @property
    def splits(self) -> list[str]:
        return [split for split in SPLITS if split in self.audits]

    @property
    def shown_split(self) -> str:
        """The rows that count: the holdout rows, where there are any."""
        return "holdout" if "holdout" in self.audits else "fit"

    @property
    def weights(self) -> Mapping[str, Any] | None:
        """What is known of the weights of the rows that are shown, if they have any."""
        return self.audits[self.shown_split]["before"].get("weights")

    def rows(self, split: str) -> int:
        """With weights, their sum in units, as all rows of audits and patches are counted."""
        return int(self.audits[split]["before"]["rows"])

    @cached_property
    def unit(self) -> Fraction:
        """What a row counts in audits and patches, in the user's own weights."""
        given = self.config["input"].get("weight_unit")
        return Fraction(1) if self.weights is None else exact(float(given or 1))

    def counted(self, rows: int, *of: object) -> Html:
        """Rows of audits and patches as people see them: with weights, their sum as given."""
        return shown(weight_text(rows, self.unit), rows * self.unit, *of)

    # --- losses ---------------------------------------------------------------------------------

    def audit(self, split: str, when: str, loss: int) -> Audit:
        audit: Audit = self.audits[split][when]["losses"][loss]
        return audit

    def pair_audit(self, split: str, when: str, loss: int, pair: Pair) -> Audit:
        """What one pair of models does under a loss."""
        audit = self.audit(split, when, loss)
        return audit["by_pair"][self.pairs.index(pair)] if "by_pair" in audit else audit

    def worst_pair(self, loss: int) -> Pair:
        """The models that disagree on most of the rows that count, before anything was done."""
        split = self.shown_split

        def rows(pair: Pair) -> int:
            return int(self.pair_audit(split, "before", loss, pair)["disagreement_rows"])

        return max(self.pairs, key=rows)

    def cost(self, split: str, when: str, loss: int, model: int) -> Fraction:
        return Fraction(self.audit(split, when, loss)["decision_loss_exact"][model - 1])

    def brier(self, split: str, when: str, model: int) -> Fraction:
        """As people know it: of one column P(1) the mean of (f - y)^2, half of the sum."""
        return usual_brier(self.audits[split][when], model, self.binary)

    @property
    def brier_words(self) -> str:
        """Which Brier score that is."""
        return "mean (f − y)²" if self.binary else "squared error over all classes"

    def apart(self, split: str, when: str, loss: int) -> Fraction:
        """The share of rows on which not all actions are the same."""
        return Fraction(self.audit(split, when, loss)["disagreement_rows"], self.rows(split))

    @cached_property
    def by_disagreement(self) -> list[int]:
        """The losses, those with most disagreement before anything was done first."""
        split = self.shown_split
        return sorted(range(len(self.losses)), key=lambda i: (-self.apart(split, "before", i), i))

    @property
    def shown_losses(self) -> list[int]:
        """Those that are shown at length, in the order of the configuration."""
        return sorted(self.by_disagreement[:LOSSES])

    # --- history --------------------------------------------------------------------------------

    @cached_property
    def points(self) -> dict[tuple[str, int | None, int], list[dict[str, Any]]]:
        """The history by split, loss and model, of the losses that are shown; by steps."""
        points: dict[tuple[str, int | None, int], list[dict[str, Any]]] = {}
        if not self.history.num_rows:
            return points
        shown: Sequence[int | None] = self.shown_losses or [None]
        for loss in shown:
            column = self.history["loss"]
            name = None if loss is None else self.losses[loss].name
            own = pc.is_null(column) if name is None else pc.equal(column, name)
            for line in self.history.filter(own).sort_by("step").to_pylist():
                points.setdefault((line["split"], loss, line["model"]), []).append(line)
        return points

    @cached_property
    def holdout_losses(self) -> dict[int, float]:
        """By steps, the mean over losses and models of the mean cost on holdout rows, rescaled."""
        if not self.history.num_rows or not len(self.losses):
            return {}
        known = {loss.name: loss for loss in self.losses.losses}
        shares: dict[int, list[Fraction]] = {}
        for line in self.history.filter(pc.equal(self.history["split"], "holdout")).to_pylist():
            loss = known[line["loss"]]
            least, scale = min(map(min, loss.exact_costs)), loss.scale
            above = Fraction(line["decision_loss"]) - least
            shares.setdefault(line["step"], []).append(above / scale if scale else Fraction(0))
        return {step: float(sum(of) / len(of)) for step, of in sorted(shares.items())}

    # --- what there was to fix ------------------------------------------------------------------

    @cached_property
    def events_to_fix(self) -> list[tuple[int, int, int, int, Pair]]:
        """For ReDCal: (rows, loss, a1, a2, pair) of events of mass eta or more, largest first."""
        if not self.parameters.reconciles_decisions:
            return []
        assert self.resolved.eta is not None
        least = self.resolved.eta * self.rows("fit")
        events = [
            (rows, place, a1, a2, pair)
            for place in range(len(self.losses))
            for pair in self.pairs
            for a1, line in enumerate(self.pair_audit("fit", "before", place, pair)["event_rows"])
            for a2, rows in enumerate(line)
            if rows >= least
        ]
        return sorted(events, key=lambda event: (-event[0], *event[1:]))

    @cached_property
    def gaps_to_fix(self) -> list[tuple[int, Mapping[str, Any]]]:
        """For Decision Calibration everywhere: (loss, cell) with gaps above beta, largest first."""
        if not self.parameters.calibrates_everywhere:
            return []
        assert self.resolved.beta is not None
        gaps = [
            (place, cell)
            for place in range(len(self.losses))
            for cell in self.audit("fit", "before", place)["calibration"]
            if Fraction(cell["squared_gap_exact"]) > self.resolved.beta**2
        ]
        return sorted(gaps, key=lambda gap: -Fraction(gap[1]["squared_gap_exact"]))

    @cached_property
    def classes_to_fix(self) -> list[Mapping[str, Any]]:
        """For Reconcile: the classes with a mass of eta or more beyond alpha, largest first."""
        if not self.parameters.reconciles_scores:
            return []
        assert self.resolved.eta is not None
        least = self.resolved.eta * self.rows("fit")
        classes = [c for c in self.audits["fit"]["before"]["coordinates"] if c["rows"] >= least]
        return sorted(classes, key=lambda c: (-c["rows"], c["coordinate"], c.get("models", [])))

    def largest_class(self, split: str, when: str) -> Fraction:
        """For Reconcile: the largest share of rows beyond alpha in one class."""
        return largest_class(self.audits[split][when])

    def largest_gap(self, split: str, when: str) -> float:
        """The largest calibration gap of all losses and models."""
        losses = self.audits[split][when]["losses"]
        return max((gap for loss in losses for gap in loss["calibration_gap"]), default=0.0)

    # --- patches --------------------------------------------------------------------------------

    def where(self, patch: Patch) -> tuple[str, ...]:
        """Where a patch acts: the names of a class, of one action, or of two."""
        if patch.coordinate is not None:
            return (self.class_name(patch.coordinate),)
        assert patch.loss is not None
        actions = self.actions[self.losses.place(patch.loss)]
        both = (patch.action,) if patch.action is not None else (patch.a1, patch.a2)
        return tuple(actions[a] for a in both if a is not None)
