"""What the user may set about the algorithms, and the exact numbers it stands for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from redcal_spark.core.fixed_point import BITS, ONE, exact, grid_size
from redcal_spark.core.patches import Kind
from redcal_spark.errors import UsageError
from redcal_spark.settings import only_redcal_tunes

Algorithm = Literal["redcal", "decision_calibration", "reconcile", "dc_then_redcal"]
Status = Literal["converged", "capped", "stalled", "cut"]
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)
MAX_COUNT = 10**12

# What `eta: auto` chooses from, and how `beta: auto` may be stretched meanwhile.
ETAS = (0.02, 0.01, 0.005, 0.002)
STRETCHES = (1, 4)

_NUMBERS = ("alpha", "eta", "beta", "adaptive_beta", "grid_bits", "max_rounds", "max_steps")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters as the user wrote them. Every problem is told at once."""

    algorithm: Algorithm = "redcal"
    alpha: float | None = None
    eta: float | Literal["auto"] | None = None
    beta: float | Literal["auto"] = "auto"
    adaptive_beta: bool = False
    grid_bits: int | None = None
    max_rounds: int = 10_000
    max_steps: int = 1_000_000

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            object.__setattr__(self, name, _plain(getattr(self, name)))
        problems = []
        if self.algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            problems.append(f"algorithm: must be one of {known}; got {self.algorithm!r}")
        if self.tunes and not self.reconciles_decisions:
            problems.append(f"eta: 'auto' is {only_redcal_tunes(self.algorithm)}")
        for name in ("alpha", "eta"):
            value = getattr(self, name)
            if value is None and not self.calibrates_only:
                problems.append(f"{name}: needed for {self.algorithm}, in (0, 1]")
            elif name == "eta" and self.tunes:
                continue
            elif value is not None and not _is_share(value):
                auto = "'auto' or " if name == "eta" and self.reconciles_decisions else ""
                problems.append(f"{name}: must be {auto}in (0, 1], got {value!r}")
        if self.beta != "auto" and not _is_share(self.beta):
            problems.append(f"beta: must be 'auto' or in (0, 1], got {self.beta!r}")
        if not isinstance(self.adaptive_beta, bool):
            problems.append(f"adaptive_beta: must be true or false, got {self.adaptive_beta!r}")
        if self.grid_bits is not None and not _is_count(self.grid_bits, 1, BITS):
            problems.append(
                f"grid_bits: must be an integer from 1 to {BITS}, got {self.grid_bits!r}"
            )
        for name in ("max_rounds", "max_steps"):
            value = getattr(self, name)
            if not _is_count(value, 0, MAX_COUNT):
                problems.append(
                    f"{name}: must be an integer from 0 to {MAX_COUNT:,}, got {value!r:.40}"
                )
        if problems:
            raise UsageError("; ".join(problems))

    @property
    def reconciles_decisions(self) -> bool:
        """ReDCal: rounds that act on events of disagreement."""
        return self.algorithm in ("redcal", "dc_then_redcal")

    @property
    def reconciles_scores(self) -> bool:
        """Reconcile: rounds that act on single classes, and know nothing of losses."""
        return self.algorithm == "reconcile"

    @property
    def calibrates_everywhere(self) -> bool:
        """Decision Calibration of all rows, alone or before the rounds."""
        return self.algorithm in ("decision_calibration", "dc_then_redcal")

    @property
    def calibrates_only(self) -> bool:
        """No rounds: alpha and eta have no meaning."""
        return self.algorithm == "decision_calibration"

    @property
    def tunes(self) -> bool:
        """eta, and with it beta, is still to be chosen on the fitting rows."""
        return self.eta == "auto"

    @property
    def candidates(self) -> tuple[tuple[float, int | None], ...]:
        """What it is chosen from: eta, and how often beta is `auto`; None where beta is given."""
        stretches = STRETCHES if self.beta == "auto" else (None,)
        return tuple((eta, stretch) for eta in ETAS for stretch in stretches)

    def candidate(self, eta: float, stretch: int | None, rows: int) -> Parameters:
        """The parameters with a candidate's numbers for so many fitting rows."""
        chosen = replace(self, eta=eta)
        if stretch in (None, 1):
            return chosen
        return replace(chosen, beta=float(stretch * chosen.auto_beta(rows)))  # a short decimal

    @property
    def known(self) -> Parameters:
        """With the smallest eta that may be chosen, where it is not chosen yet."""
        return replace(self, eta=min(ETAS)) if self.tunes else self

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of patches that the algorithm makes."""
        if self.reconciles_scores:
            return ("score",)
        return ("calibrate",) if self.calibrates_only else ("reconcile", "calibrate")

    def resolve(self, rows: int, classes: int) -> Resolved:
        """The exact numbers for this many fitting rows and classes.

        rows: with weights as many as would say as much, rounded down.
        """
        if self.eta == "auto":
            raise UsageError("eta: 'auto' stands for no number before it was chosen")
        alpha = None if self.alpha is None else exact(self.alpha)
        eta = None if self.eta is None else exact(self.eta)
        beta: Fraction | None = None
        if not self.reconciles_scores:
            beta = self.auto_beta(rows) if self.beta == "auto" else exact(self.beta)
        bound = self._grid_bound(alpha, eta, beta, classes)
        m, covered = grid_size(bound)
        if self.grid_bits is not None:
            m = 1 << self.grid_bits
            covered = m * m >= bound
        return Resolved(alpha=alpha, eta=eta, beta=beta, m=m, grid_covered=covered)

    def auto_beta(self, rows: int) -> Fraction:
        """What `auto` stands for: about the noise of an event of mass eta, or of all rows."""
        if self.calibrates_only or self.eta is None or self.eta == "auto":
            return auto_beta(Fraction(1), rows)
        return auto_beta(exact(self.eta), rows)

    def _grid_bound(
        self, alpha: Fraction | None, eta: Fraction | None, beta: Fraction | None, d: int
    ) -> Fraction:
        """What m^2 must reach for the paper's decrease per patch to survive rounding."""
        if self.calibrates_only:
            assert beta is not None
            return d / (2 * beta**2)
        assert alpha is not None and eta is not None
        if self.reconciles_scores:
            return 4 / (alpha**2 * eta)
        assert beta is not None
        return d / (2 * min(beta**2, eta * alpha**2 / (4 * d)))


@dataclass(frozen=True)
class Resolved:
    """Parameters as exact fractions; m is the number of patch grid steps in 1."""

    alpha: Fraction | None
    eta: Fraction | None
    beta: Fraction | None
    m: int
    grid_covered: bool

    @property
    def step(self) -> int:
        return ONE // self.m


def auto_beta(eta: Fraction, rows: int) -> Fraction:
    """The largest two-digit decimal whose square is at most eta / (4 rows).

    About the sampling noise of a residual sum at the threshold: far below it, patches fit noise.
    """
    bound = eta / (4 * rows)
    k = 2
    while Fraction(10, 10**k) ** 2 > bound:
        k += 1
    a = math.isqrt(bound.numerator * 10 ** (2 * k) // bound.denominator)
    return Fraction(min(a, 99), 10**k)


def _plain(value: Any) -> Any:
    """A number of numpy as Python's own: what `repr(float(x))` shows is what it means."""
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.floating) else value


def _is_share(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 < value <= 1


def _is_count(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
