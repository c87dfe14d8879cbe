"""What `eta: auto` chose, and from what: every candidate with its exact loss. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from redcal_spark.core.parameters import Parameters, Status


@dataclass(frozen=True)
class Before:
    """The rows without any patch: loss and disputed rows as of `FoldFit`, of both folds."""

    loss: Fraction
    disputed: int

    def to_json(self) -> dict[str, Any]:
        return {"loss": str(self.loss), "disputed": self.disputed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Before:
        return cls(Fraction(data["loss"]), data["disputed"])


@dataclass(frozen=True)
class FoldFit:
    """A candidate fitted on one fold, and what it did on the rows of the other.

    rows: that it was fitted on. beta, m: resolved for these. loss: of the other fold's rows, each
    loss rescaled to [0, 1], summed over rows, losses and models. disputed: rows of the other
    fold that are still in an event.
    """

    rows: int
    beta: Fraction
    m: int
    patches: int
    rounds: int
    status: Status
    loss: Fraction
    disputed: int

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"beta": str(self.beta), "loss": str(self.loss)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FoldFit:
        return cls(**{**data, "beta": Fraction(data["beta"]), "loss": Fraction(data["loss"])})


@dataclass(frozen=True)
class Candidate:
    """An eta, and a rule for beta: so many times `auto`, or (None) the number that was given."""

    eta: float
    stretch: int | None
    folds: tuple[FoldFit, ...]

    @property
    def loss(self) -> Fraction:
        """Of all rows, each by the model that was not fitted on it."""
        return sum((fold.loss for fold in self.folds), Fraction(0))

    @property
    def disputed(self) -> int:
        return sum(fold.disputed for fold in self.folds)

    @property
    def unfinished(self) -> list[str]:
        """How its fits ended that did not converge."""
        return [fold.status for fold in self.folds if fold.status != "converged"]

    @property
    def rule(self) -> str:
        """Its beta in words."""
        if self.stretch is None:
            return f"{float(self.folds[0].beta):g}"
        return "auto" if self.stretch == 1 else f"{self.stretch} x auto"

    def to_json(self) -> dict[str, Any]:
        folds = [fold.to_json() for fold in self.folds]
        return {"eta": self.eta, "stretch": self.stretch, "loss": str(self.loss), "folds": folds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Candidate:
        folds = tuple(map(FoldFit.from_json, data["folds"]))
        return cls(data["eta"], data["stretch"], folds)


@dataclass(frozen=True)
class RowCounts:
    """Of rows with weights: all fitting rows and those used, each counted once.

    effective: as many rows of equal weight would say as much as all fitting rows, rounded down.
    """

    fit_rows: int
    used: int
    effective: int


@dataclass(frozen=True)
class Tuned:
    """The candidates, and which of them is used.

    fit_rows: all that there are to fit on, for which the chosen rule was resolved. level: rows were
    used whose hash is below 2^(64 - level). used: how many of each fold. active: how many of
    these a fit works on. given_beta: as the parameters had it.
    counts: with weights, of which fit_rows and used are sums then.
    """

    candidates: tuple[Candidate, ...]
    before: Before
    fit_rows: int
    level: int
    used: tuple[int, ...]
    active: int
    tune_rows: int
    given_beta: float | Literal["auto"]
    counts: RowCounts | None = None

    @property
    def chosen(self) -> Candidate:
        """The lowest loss; ties: larger eta, then larger beta."""
        return min(self.candidates, key=lambda c: (c.loss, -c.eta, -(c.stretch or 0)))

    @property
    def rows(self) -> int:
        return sum(self.used)

    @property
    def effective(self) -> int:
        """The fitting rows that `beta: auto` goes by."""
        return self.fit_rows if self.counts is None else self.counts.effective

    def parameters(self, given: Parameters) -> Parameters:
        """The parameters with the chosen eta and beta, for all fitting rows."""
        chosen = self.chosen
        return given.candidate(chosen.eta, chosen.stretch, self.effective)

    def share(self, rows: int) -> Fraction:
        """Of the rows that were used."""
        return Fraction(rows, self.rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "before": self.before.to_json(),
            "chosen": self.candidates.index(self.chosen),
            "fit_rows": self.fit_rows,
            "level": self.level,
            "used": list(self.used),
            "active": self.active,
            "tune_rows": self.tune_rows,
            "given_beta": self.given_beta,
        } | ({} if self.counts is None else {"counts": asdict(self.counts)})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tuned:
        given = {key: value for key, value in data.items() if key != "chosen"}
        candidates = tuple(map(Candidate.from_json, given.pop("candidates")))
        before, counts = Before.from_json(given.pop("before")), given.pop("counts", None)
        given |= {"used": tuple(given["used"])}
        return cls(candidates, before, **given, counts=counts and RowCounts(**counts))
