"""What repeated draws say together: means with standard errors, and the paper's claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.runs.compare import PROCEDURES

Found = Sequence[Mapping[str, Any]]  # per draw: algorithm -> what paper.told says
Numbers = npt.NDArray[np.float64]

POINTS = 60  # of a curve
MEASURES = ("brier", "gap", "disagreement")
DC, BOTH = "decision_calibration", "dc_then_redcal"
SURE = 2.0  # standard errors
FEW = 5  # draws: of fewer a standard error says little


@dataclass(frozen=True)
class Mean:
    """A mean over draws and its standard error; of one draw there is none."""

    value: float
    error: float
    draws: int

    @classmethod
    def of(cls, values: Sequence[float] | Numbers) -> Mean:
        n = len(values)
        error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        return cls(float(np.mean(values)), error, n)

    def __str__(self) -> str:
        told = f"{self.value:+.4f}"
        return told if math.isnan(self.error) else f"{told} ± {self.error:.4f}"


# --- curves ---------------------------------------------------------------------------------------


def at_steps(curve: Mapping[str, Sequence[float]], measure: str, steps: Sequence[int]) -> Numbers:
    """A curve's values after so many patches: the last one measured by then."""
    place = np.searchsorted(curve["steps"], steps, side="right") - 1
    return np.asarray(curve[measure], np.float64)[place]


def common_steps(found: Found) -> list[int]:
    """Where curves of different lengths are compared: closer together at the start."""
    last = max(draw[name]["patches"] for draw in found for name in PROCEDURES)
    spaced = np.geomspace(1, max(last, 1), POINTS).round().astype(int)
    return sorted({0, *spaced.tolist()})


def summary(found: Found) -> dict[str, Any]:
    """Plain data: per procedure and split, mean and standard error of every measure per step."""
    steps = common_steps(found)
    told: dict[str, Any] = {"draws": len(found), "steps": steps, "procedures": {}}
    for algorithm in PROCEDURES:
        own = [draw[algorithm] for draw in found]
        line: dict[str, Any] = {
            "status": dict(Counter(one["status"] for one in own)),
            "patches": [one["patches"] for one in own],
            "rounds": [one["rounds"] for one in own],
            "seconds": [one["seconds"] for one in own],
        }
        for split in own[0]["curves"]:
            line[split] = {}
            for measure in MEASURES:
                values = np.array([at_steps(one["curves"][split], measure, steps) for one in own])
                means = [Mean.of(column) for column in values.T]
                line[split][measure] = {
                    "mean": [m.value for m in means],
                    "error": [m.error for m in means],
                }
        told["procedures"][algorithm] = line
    return told


# --- ends -----------------------------------------------------------------------------------------


def ends(found: Found, algorithm: str, split: str, measure: str) -> Numbers:
    """After the last patch, per draw."""
    return np.array([draw[algorithm]["curves"][split][measure][-1] for draw in found])


def starts(found: Found, split: str, measure: str) -> Numbers:
    return np.array([draw["redcal"]["curves"][split][measure][0] for draw in found])


def results_table(found: Mapping[str, Found]) -> str:
    """Markdown: before, and what each procedure changed: mean and standard error over the draws."""
    lines = [
        "| set and setting | | patches | rounds of ReDCal | Brier, fitted | Brier, holdout | "
        "loss gap, fitted | loss gap, holdout | disagree, holdout |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, draws in found.items():
        lines += _results(f"{name}, {len(draws)} draw{'s' * (len(draws) > 1)}", draws)
    return "\n".join(lines)


def _results(name: str, found: Found) -> Iterator[str]:
    columns = [(split, measure) for measure in ("brier", "gap") for split in ("fit", "holdout")]
    before = " | ".join(f"{starts(found, *column).mean():.4f}" for column in columns)
    apart = starts(found, "holdout", "disagreement").mean()
    yield f"| **{name}** | before | | | {before} | {apart:.1%} |"
    for algorithm, title in PROCEDURES.items():
        own = [draw[algorithm] for draw in found]
        patches, rounds = (np.mean([one[name] for one in own]) for name in ("patches", "rounds"))
        capped = sum(one["status"] != "converged" for one in own)
        told = f"{patches:,.1f}" + (f" ({capped} capped)" if capped else "")
        changes = " | ".join(
            str(Mean.of(ends(found, algorithm, *column) - starts(found, *column)))
            for column in columns
        )
        apart = ends(found, algorithm, "holdout", "disagreement").mean()
        yield f"| | {title} | {told} | {rounds:.1f} | {changes} | {apart:.1%} |"


# --- claims ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """That one procedure ends below another (or below where it began), on the holdout rows."""

    text: str
    measure: str
    lower: str
    than: str | None  # None: before

    def differences(self, found: Found, split: str = "holdout") -> Numbers:
        """Per draw, negative where the claim holds."""
        if self.than is None:
            other = starts(found, split, self.measure)
        else:
            other = ends(found, self.than, split, self.measure)
        return ends(found, self.lower, split, self.measure) - other


@dataclass(frozen=True)
class EqualClaim(Claim):
    """The same where both have spent as much as the thriftier one did. by: what they spend."""

    by: str = "patches"

    def differences(self, found: Found, split: str = "holdout") -> Numbers:
        assert self.than is not None
        at = [draw["equal"][self.by] for draw in found]
        return np.array(
            [x[self.lower][split][self.measure] - x[self.than][split][self.measure] for x in at]
        )


class MeanClaim(Claim):
    """That the mean of both models, which has no patches, is below a procedure's end."""

    def differences(self, found: Found, split: str = "holdout") -> Numbers:
        assert self.than is not None
        means = np.array([draw["mean"][split][self.measure] for draw in found])
        return means - ends(found, self.than, split, self.measure)


CLAIMS: tuple[Claim, ...] = (
    Claim("ReDCal lowers the Brier score", "brier", "redcal", None),
    Claim("... by less than Reconcile does", "brier", "reconcile", "redcal"),
    Claim("DC, then ReDCal, ends with a lower Brier score than ReDCal", "brier", BOTH, "redcal"),
    Claim("... than Decision Calibration", "brier", BOTH, DC),
    Claim("... than Reconcile", "brier", BOTH, "reconcile"),
    Claim("ReDCal lowers the loss", "gap", "redcal", None),
    Claim("... by more than Reconcile does", "gap", "redcal", "reconcile"),
    EqualClaim("... at equal numbers of patches", "gap", "redcal", "reconcile"),
    EqualClaim("... of fitted values", "gap", "redcal", "reconcile", "fitted values"),
    MeanClaim("The mean of both models has a lower loss than ReDCal", "gap", "mean", "redcal"),
    MeanClaim("... than Reconcile", "gap", "mean", "reconcile"),
    Claim("Decision Calibration lowers the loss", "gap", DC, None),
    Claim("ReDCal after it lowers the loss further", "gap", BOTH, DC),
)  # fmt: skip


def verdict(difference: Mean) -> str:
    """By two standard errors either way."""
    if difference.value == 0 and not difference.error > 0:
        return "no difference"
    if difference.draws < FEW:
        return "few draws"
    if abs(difference.value) <= SURE * difference.error:
        return "not seen"
    return "held" if difference.value < 0 else "the opposite"


def claims(found: Found) -> Iterator[tuple[str, Mean, str]]:
    """Each claim with its mean difference on the holdout rows, and the verdict."""
    for claim in CLAIMS:
        difference = Mean.of(claim.differences(found))
        yield claim.text, difference, verdict(difference)


def claims_table(found: Mapping[str, Found]) -> str:
    """Markdown: a line a claim, a column a set and setting."""
    lines = [
        "| holdout rows; below 0: as claimed | " + " | ".join(found) + " |",
        "|---|" + "---|" * len(found),
    ]
    columns = [list(claims(draws)) for draws in found.values()]
    for place, claim in enumerate(CLAIMS):
        cells = (f"{column[place][1]}: {column[place][2]}" for column in columns)
        lines.append(f"| {claim.text} | " + " | ".join(cells) + " |")
    rose = (
        " / ".join(
            str(int((ends(d, name, "holdout", "gap") > starts(d, "holdout", "gap")).sum()))
            for name in ("reconcile", "redcal")
        )
        + f" of {len(d)}"
        for d in found.values()
    )
    lines.append("| draws whose loss Reconcile / ReDCal raised | " + " | ".join(rose) + " |")
    return "\n".join(lines)


def certified_table(found: Mapping[str, Found]) -> str:
    """Markdown: in how many draws a certificate says that a loss fell or rose, and how finely.

    Each procedure by its own certificate, from the holdout rows of the draw alone, at 95 % for
    all that it says.
    """
    heads = [f"{name}, {len(draws)} draws" for name, draws in found.items()]
    lines = [
        "| each certificate, on new rows | " + " | ".join(heads) + " |",
        "|---|" + "---|" * len(found),
    ]
    for algorithm, title in PROCEDURES.items():
        cells = (
            _certified([draw[algorithm]["falls"] for draw in draws]) for draws in found.values()
        )
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    chosen = (_etas([draw["redcal"]["eta"] for draw in draws]) for draws in found.values())
    lines.append("| eta | " + " | ".join(chosen) + " |")
    return "\n".join(lines)


def _certified(draws: Sequence[Sequence[tuple[float, float] | None]]) -> str:
    """Of every model of every draw that was patched, what became of its loss."""
    known = [ends for models in draws for ends in models if ends is not None]
    if not known:
        return "no patch"
    fell, rose = sum(low > 0 for low, _ in known), sum(high < 0 for _, high in known)
    half = sum(high - low for low, high in known) / 2 / len(known)
    return f"{fell} fell, {rose} rose of {len(known)}; ± {half:.4f}"


def _etas(etas: Sequence[float]) -> str:
    counts = Counter(f"{eta:.3g}" for eta in etas)
    if len(counts) == 1:
        return next(iter(counts))
    return f"{min(etas):.3g} to {max(etas):.3g}, median {float(np.median(etas)):.3g}"
