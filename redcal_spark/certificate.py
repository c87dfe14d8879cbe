"""The certificate: every guarantee with its bound, what was measured, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from redcal_spark import consistency, log_checks
from redcal_spark.checks import Check, Fitted, Measure, Number, Root, SplitName, Verdict
from redcal_spark.errors import ModelFileError
from redcal_spark.guarantees import Case, fitted
from redcal_spark.history import Point
from redcal_spark.intervals import CONFIDENCE, Interval
from redcal_spark.judging import enough_rows, judged, measures
from redcal_spark.metrics import Totals

__all__ = ["Certificate", "Check", "Interval", "Measure", "Number", "Root", "Verdict", "certify"]

SCHEMA_VERSION = 2
OLD = "an earlier release certified this run; `redcal evaluate` tells what its holdout rows say"
VERDICTS: tuple[Verdict, ...] = ("violated", "undecided", "not covered", "not done", "holds")


@dataclass(frozen=True)
class Certificate:
    """What was promised of a reconciled pair, and what is so."""

    checks: tuple[Check, ...]
    measures: tuple[Measure, ...] = ()

    @property
    def passed(self) -> bool:
        """Nothing turned out false: no check is violated. What is undecided may be."""
        return not self.violated

    @property
    def sound(self) -> bool:
        """No contradiction: what is violated, if anything, is so on holdout rows, as it may be.

        Else log, sums and promises cannot all be right: nothing of this run should be used.
        """
        return not any(check.split == "fit" or check.relation == "==" for check in self.violated)

    @property
    def violated(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict == "violated")

    @property
    def counts(self) -> dict[Verdict, int]:
        found = [check.verdict for check in self.checks]
        return {verdict: found.count(verdict) for verdict in VERDICTS}

    def lines(self) -> list[str]:
        """For a terminal: what failed first."""
        told = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        ordered = sorted(self.checks, key=lambda check: VERDICTS.index(check.verdict))
        return [f"certificate: {told}", *(check.line() for check in ordered)]

    def to_json(self) -> dict[str, Any]:
        """Plain data; exact numbers as texts, floats beside them for display."""
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "checks": [check.to_json() for check in self.checks],
            "measures": [measure.to_json() for measure in self.measures],
        }

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        """What `to_json` gave. A certificate whose numbers do not say its verdicts is refused."""
        if not isinstance(data, Mapping) or "schema_version" not in data:
            raise ModelFileError("not a certificate: it has no schema_version")
        if data["schema_version"] == 1:
            data = _from_version_1(data)
        if data["schema_version"] != SCHEMA_VERSION:
            raise ModelFileError(
                f"certificate: schema_version {data['schema_version']!r} is unknown here; this "
                f"release reads versions 1 and {SCHEMA_VERSION}"
            )
        try:
            found = cls(
                tuple(Check.from_json(check) for check in data["checks"]),
                tuple(Measure.from_json(measure) for measure in data["measures"]),
            )
        except (LookupError, TypeError, ValueError, ArithmeticError) as err:
            raise ModelFileError(f"damaged certificate: {err}") from err
        if found.to_json() != data:
            raise ModelFileError("damaged certificate: not as any release wrote it")
        return found


def _from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate as releases before version 2 wrote it, in the words of today.

    On holdout rows it said more than its intervals bear: there nothing is taken over as decided.
    """
    names: dict[str, Verdict] = {"pass": "holds", "fail": "violated"}
    checks = []
    try:
        for old in data["checks"]:
            verdict: Verdict = names.get(old["verdict"], old["verdict"])
            why = old["why"]
            if old["split"] == "judge" and old["relation"] != "==" and verdict in names.values():
                verdict, why = "undecided", OLD
            elif verdict == "not covered" and old["relation"] == "==":
                verdict = "not done"
            check = Check.from_json(old | {"verdict": verdict, "why": why, "scale": "1/1"})
            checks.append(replace(check, interval=None).to_json())
        measures = [old | {"interval": None} for old in data["measures"]]
    except (LookupError, TypeError, ValueError, ArithmeticError) as err:
        raise ModelFileError(f"damaged certificate: {err}") from err
    passed = not any(check["verdict"] == "violated" for check in checks)
    head = {"schema_version": SCHEMA_VERSION, "passed": passed}
    return head | {"checks": checks, "measures": measures}


def certify(
    pair: Fitted,
    fit_points: Sequence[Point],
    judge_points: Sequence[Point] = (),
    *,
    replayed: Totals | Sequence[Point] | None = None,
    judge_replayed: Totals | Sequence[Point] | None = None,
    rechecked: Iterable[str] | None = None,
    confidence: Fraction = CONFIDENCE,
) -> Certificate:
    """Check every guarantee of a run, from exact sums.

    fit_points, judge_points: the history of both splits, from before the first patch to after the
    last, with every round's end between. replayed: the sums at the end found in another way, from
    the rows that were written or from a replay of the log on the rows (then perhaps at all points).
    rechecked: what `recheck.recheck` found on the rows. confidence: of intervals, and 1 - delta.
    If log and sums cannot belong together, nothing else is said of them.
    """
    checks = list(_sound(pair, fit_points, judge_points))
    if any(check.verdict == "violated" for check in checks):
        return Certificate(tuple(checks))
    case = Case(pair, fit_points)
    checks += _consistent(pair, fit_points, judge_points, replayed, judge_replayed)
    told = "every patch is the mean residual of the rows it acts on"
    if rechecked is None:
        why = "the rows were not looked at again"
        checks.append(Check.of("patches", told, None, "==", Fraction(0), undone=why))
    else:
        checks.append(_none("patches", told, rechecked))
    checks += fitted(case)
    if case.reconciles_decisions:
        checks += enough_rows(case, confidence)
    found = list(measures(case, "fit", fit_points, confidence))
    if judge_points:
        checks += judged(case, judge_points, confidence)
        found += measures(case, "judge", judge_points, confidence)
    return Certificate(tuple(checks), tuple(found))


def _sound(
    pair: Fitted, fit_points: Sequence[Point], judge_points: Sequence[Point]
) -> Iterator[Check]:
    """Whether there is something to check at all."""
    yield _none("parameters", "numbers are those of the parameters", log_checks.parameters(pair))
    yield _none("log", "every patch is one the algorithm makes", log_checks.log(pair))
    told = "the history is of this log"
    yield _none("points", told, consistency.points(pair, fit_points, pair.rows))
    if judge_points:
        yield _none("points", told, consistency.points(pair, judge_points, None), "judge")


def _consistent(
    pair: Fitted,
    fit_points: Sequence[Point],
    judge_points: Sequence[Point],
    replayed: Totals | Sequence[Point] | None,
    judge_replayed: Totals | Sequence[Point] | None,
) -> Iterator[Check]:
    last = fit_points[-1].totals
    yield _none("status", "the run ended as it says", consistency.status(pair, last))
    events, found = "every round took the largest event", consistency.events(pair, fit_points)
    yield _none("events", events, found)
    if pair.parameters.algorithm in ("decision_calibration", "dc_then_redcal"):
        told = "calibrations took the largest gap and its mean"
        yield _none("calibrations", told, consistency.calibrations(pair, fit_points))
    told = "the sums moved as the patches say"
    yield _none("effects", told, consistency.effects(pair, fit_points))
    splits: list[tuple[SplitName, Sequence[Point], Totals | Sequence[Point] | None]] = [
        ("fit", fit_points, replayed)
    ]
    if judge_points:
        splits.append(("judge", judge_points, judge_replayed))
    for split, points, other in splits:
        yield _none("sums", "the sums agree", consistency.sums(pair, points), split)
        told = "patches of one model leave the other alone"
        yield _none("untouched", told, consistency.untouched(pair, points), split)
        told = "another way to the sums gives the same"
        if other is None:
            why = "nobody went another way"
            yield Check.of("replay", told, None, "==", Fraction(0), split=split, undone=why)
        else:
            yield _none("replay", told, consistency.replay(points, other), split)


def _none(name: str, claim: str, contradictions: Iterable[str], split: SplitName = "fit") -> Check:
    """A check that there are no contradictions; the first ones are told."""
    found = list(contradictions)
    why = "; ".join(found[:3])
    return Check.of(name, claim, Fraction(len(found)), "==", Fraction(0), why=why, split=split)
