"""The finite-sample theorem: from how many fitting rows on its promises reach new rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import ceil

from redcal_spark.certificate.case import Case
from redcal_spark.certificate.check import Check

CANDIDATES = 8  # of `eta: auto`


@dataclass(frozen=True)
class RowsNeeded:
    """From how many rows on the finite-sample theorem holds, by its parts."""

    ln_s: Decimal
    masses: int
    losses: int
    brier: int


def rows_needed(
    *,
    gain: Fraction,
    eta: Fraction,
    beta: Fraction,
    m: int,
    classes: int,
    losses: int,
    actions: int,
    delta: Fraction,
    models: int = 2,
    tuned: tuple[Fraction, int] | None = None,
) -> RowsNeeded:
    """The n of the paper's finite-sample theorem (thm: sample_reconcile), its Omega() filled in.

    With d classes, M models, |L| losses of at most K actions, patches on a grid of m steps and
    probability 1 - delta; S is the set of models that can come out, g the gain of a patch. Five
    steps of the paper's proof are too small, and are put right here: patches have a sign, all
    models' steps count, residuals lie in an interval of length 2, Brier scores in one of length d
    and deviate before as after, and masses are those of every model's actions.
        ln|S| = (2 M d / g + 1) ln(2 M (M - 1) |L|^2 K^3 (2m + 1)^d)
        masses <= 2 eta:  sqrt(2 ln(6 K M |S| |L| / delta) / 2n) <= eta
        losses <= twice the bound:  4 * 3d ln(6 d K |S| |L| / delta) / 2n <= beta^2
        Brier scores, by g / 4 for every patch:  n >= 32 d^2 ln(6 M (|S| + 1) / delta) / g^2
    tuned: with `eta: auto` the g and m of the candidate whose g is smallest: they decide |S|, which
    has as many models for each of 8 candidates.
    Only ln|S| is ever computed: |S| has millions of digits.
    """
    d, many = classes, models
    least, finest = tuned or (gain, m)
    with localcontext(Context(prec=60)):

        def ln(x: Fraction | int) -> Decimal:
            return (Decimal(x.numerator) / Decimal(x.denominator)).ln()

        each = ln(2 * many * (many - 1)) + 2 * ln(losses) + 3 * ln(actions) + d * ln(2 * finest + 1)
        longest = 2 * many * d / least + 1
        ln_s = Decimal(longest.numerator) / Decimal(longest.denominator) * each
        if tuned is not None:
            ln_s += ln(CANDIDATES)

        def whole(factor: Fraction, inside: Decimal) -> int:
            return ceil(inside * factor.numerator / factor.denominator)

        plus_one = (1 + (-ln_s).exp()).ln()
        return RowsNeeded(
            ln_s,
            masses=whole(1 / eta**2, ln_s + ln(6 * actions * many * losses / delta)),
            losses=whole(6 * d / beta**2, ln_s + ln(6 * d * actions * losses / delta)),
            brier=whole(32 * d**2 / gain**2, ln_s + plus_one + ln(6 * many / delta)),
        )


def enough_rows(case: Case, delta: Fraction) -> Iterator[Check]:
    """Whether the theorem speaks of new rows at all, and from how many fitting rows on it would."""
    losses, resolved = case.pair.losses, case.pair.resolved
    if not resolved.grid_covered:
        return
    needed = rows_needed(
        gain=case.g,
        eta=case.eta,
        beta=case.beta,
        m=resolved.m,
        classes=case.d,
        losses=len(losses),
        actions=max(loss.n_actions for loss in losses.losses),
        delta=delta,
        models=len(case.models),
        tuned=case.smallest_candidate,
    )
    rows = Fraction(case.pair.rows)
    for name, promise, bound in (
        ("rows_for_masses", "event masses stay below 2 eta", needed.masses),
        ("rows_for_losses", "losses rise by at most twice the bound", needed.losses),
        ("rows_for_brier", "Brier scores fall by g / 4 for every patch", needed.brier),
    ):
        few = rows < bound
        yield Check.of(
            name,
            f"enough rows that on new rows too {promise}, with probability {float(1 - delta):g}",
            rows,
            ">=",
            Fraction(bound),
            uncovered="fewer rows than the finite-sample theorem asks for: see the holdout rows"
            if few
            else None,
        )
