"""The certificate: every guarantee with its bound, what was measured, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, get_args

import pyarrow as pa

from redcal_spark.certificate import history_checks, log_checks, paired_checks, sum_checks
from redcal_spark.certificate.case import Case
from redcal_spark.certificate.check import ROWS, Check, Kind, Measure, SplitName, Verdict
from redcal_spark.certificate.exact_numbers import Number, Root, at_least, fraction_of, text_of
from redcal_spark.certificate.guarantees import fitted
from redcal_spark.certificate.holdout import HoldoutRows, holdout, measures, statements
from redcal_spark.certificate.intervals import Interval, Level
from redcal_spark.certificate.sample_size import enough_rows
from redcal_spark.certificate.segment_checks import SegmentRows, added_up
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Totals
from redcal_spark.core.number_text import model_text
from redcal_spark.core.tabular import Tabular
from redcal_spark.errors import ModelFileError

__all__ = ["Certificate", "Check", "Interval", "Measure", "Number", "Root", "Verdict", "certify"]

SCHEMA_VERSION = 2
DELTA = Fraction(1, 20)
OLD = "an earlier release certified this run; `redcal evaluate` checks its holdout rows"
VERDICTS: tuple[Verdict, ...] = ("violated", "undecided", "not covered", "not done", "holds")


@dataclass(frozen=True, repr=False)
class Certificate(Tabular):
    """What was promised of a reconciled pair, and what is so.

    models: what they are called, where that is known.
    """

    checks: tuple[Check, ...]
    measures: tuple[Measure, ...] = ()
    level: Level | None = None  # of what is said of new rows, all of it together
    models: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        said = self.headline()[0].removeprefix("certificate: ")
        return f"<{type(self).__name__}: {said}; {len(self.checks):,} checks>"

    def to_arrow(self) -> pa.Table:
        """A row a check, what is violated first; numbers in the user's units, as floats."""
        rows = [check.to_row(self.models) for check in self._by_verdict()]
        return pa.Table.from_pylist(rows, schema=ROWS)

    @property
    def delta(self) -> Fraction:
        return DELTA if self.level is None else self.level.delta

    @property
    def candidates(self) -> int:
        """Among how many prefixes of its log the guard chose."""
        return 1 if self.level is None else self.level.candidates

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
        return _violated(self.checks)

    @property
    def counts(self) -> dict[Verdict, int]:
        """Of what was promised to the user; the rest is theory and bookkeeping."""
        return self.counted("promise")

    def counted(self, kind: Kind) -> dict[Verdict, int]:
        verdicts = [check.verdict for check in self.checks if check.kind == kind]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS}

    @property
    def verdicts(self) -> list[str]:
        """How many promises hold, are undecided and so on, in words, worst first.

        Whatever is violated counts, a promise or not.
        """
        counts = self.counts | {"violated": len(self.violated)}
        return [
            f"{count:,} {'hold' if verdict == 'holds' and count > 1 else verdict}"
            for verdict, count in counts.items()
            if count
        ]

    def headline(self) -> list[str]:
        """What was promised and what is so, in a line; and whether the books are in order."""
        line_1 = f"certificate: {', '.join(reversed(self.verdicts)) or 'nothing is promised'}"
        books = self.counted("bookkeeping")
        done = books["holds"] + books["violated"]
        line_2 = f"bookkeeping: {books['holds']:,} of {done:,} checks agree"
        if books["not done"]:
            line_2 += f"; {books['not done']:,} not done, redcal evaluate does them"
        return [line_1, line_2]

    def falls(self, models: Sequence[str] | None = None) -> list[str]:
        """By how much the losses fall at least on new rows, for people; nothing where undecided."""
        lines = []
        for loss in dict.fromkeys(check.loss for check in self.checks):
            fell = [
                f"{at_least(check.interval.low)} ({model_text(check.model, models)})"
                for check in self.checks
                if (check.name, check.loss, check.verdict) == ("loss_fell", loss, "holds")
                and check.interval is not None
                and check.model is not None
            ]
            if fell:
                lines.append(f"{loss}: on new rows the cost falls by at least {' and '.join(fell)}")
        if lines:
            sure = f"{float(1 - self.delta) * 100:g} %"
            lines.append(f"all statements about new rows hold together with {sure} confidence,")
            lines.append("if new rows come as the holdout rows did")
        return lines

    def lines(self, models: Sequence[str] | None = None) -> list[str]:
        """For a terminal: what is violated first; models by their names, if they have any."""
        return [*self.headline(), *(check.line(models) for check in self._by_verdict())]

    def _by_verdict(self) -> list[Check]:
        kinds = get_args(Kind)
        return sorted(
            self.checks,
            key=lambda check: (VERDICTS.index(check.verdict), kinds.index(check.kind)),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; exact numbers as texts, floats beside them for display."""
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "delta": text_of(self.delta),
            "statements": None if self.level is None else self.level.statements,
            "candidates": None if self.level is None else self.level.candidates,
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
            certificate = cls(
                tuple(Check.from_json(check) for check in data["checks"]),
                tuple(Measure.from_json(measure) for measure in data["measures"]),
                _level(data),
            )
        except (LookupError, TypeError, ValueError, ArithmeticError) as err:
            raise ModelFileError(f"damaged certificate: {err}") from err
        if certificate.to_json() != data:
            raise ModelFileError("damaged certificate: not as any release wrote it")
        return certificate


def _level(data: Mapping[str, Any]) -> Level | None:
    delta, many, candidates = data["delta"], data["statements"], data["candidates"]
    if many is None and candidates is None:
        return None
    return Level(fraction_of(delta), many, candidates)


SPLITS_OF_VERSION_1 = {"fit": "fit", "judge": "holdout", "holdout": "holdout"}


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
            split = SPLITS_OF_VERSION_1[old["split"]]
            if split == "holdout" and old["relation"] != "==" and verdict in names.values():
                verdict, why = "undecided", OLD
            elif verdict == "not covered" and old["relation"] == "==":
                verdict = "not done"
            new = old | {"split": split, "verdict": verdict, "why": why}
            new |= {"scale": "1/1", "interval": None}
            checks.append(Check.from_json(new).to_json())
        measures = [
            {k: x for k, x in old.items() if k != "interval"}
            | {"split": SPLITS_OF_VERSION_1[old["split"]]}
            for old in data["measures"]
        ]
    except (LookupError, TypeError, ValueError, ArithmeticError) as err:
        raise ModelFileError(f"damaged certificate: {err}") from err
    passed = not any(check["verdict"] == "violated" for check in checks)
    head = {"schema_version": SCHEMA_VERSION, "passed": passed, "delta": text_of(DELTA)}
    head |= {"statements": None, "candidates": None}
    return head | {"checks": checks, "measures": measures}


def certify(
    pair: Fitted,
    fit_points: Sequence[Point],
    holdout_points: Sequence[Point] = (),
    *,
    replayed: Totals | Sequence[Point] | None = None,
    holdout_replayed: Totals | Sequence[Point] | None = None,
    rechecked: Iterable[str] | None = None,
    delta: Fraction = DELTA,
    candidates: int = 1,
) -> Certificate:
    """Check every guarantee of a run, from exact sums.

    fit_points, holdout_points: the history of both splits, from before the first patch to after the
    last, with every round's end between. replayed: the sums at the end got in another way, from
    the rows that were written or from a replay of the log on the rows (then perhaps at all points).
    rechecked: the contradictions that `patch_checks.recheck` gives.
    delta: with at most this probability some statement about new rows is false. candidates: of how
    many prefixes of a log the guard chose this one, by the very rows that check it.
    If log and sums cannot belong together, nothing else is said of them.
    """
    checks = list(_sound(pair, fit_points, holdout_points))
    if holdout_points and not _violated(checks):
        checks.append(_agree("paired", paired_checks.paired(pair, holdout_points), "holdout"))
    if _violated(checks):
        return Certificate(tuple(checks))
    case = Case(pair, fit_points)
    segments = SegmentRows.of(case, fit_points, holdout_points)
    many = statements(case) + (0 if segments is None else segments.statements)
    level = Level(delta, many, candidates)
    checks += _run(pair, fit_points)
    checks += _sums(pair, "fit", fit_points, replayed)
    if holdout_points:
        checks += _sums(pair, "holdout", holdout_points, holdout_replayed)
    if segments is not None:
        checks.append(_agree("segments", added_up(pair, fit_points)))
        if holdout_points:
            checks.append(_agree("segments", added_up(pair, holdout_points), "holdout"))
    checks.append(_agree("patches", rechecked))
    checks += fitted(case)
    if case.given.reconciles_decisions:
        checks += enough_rows(case, delta)
    numbers = list(measures(case, "fit", fit_points))
    if holdout_points:
        held = HoldoutRows(case, holdout_points, level)
        checks += holdout(held)
        if segments is not None:
            checks += segments.checks(held)
        numbers += measures(case, "holdout", holdout_points)
    return Certificate(tuple(checks), tuple(numbers), level)


def _violated(checks: Iterable[Check]) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.verdict == "violated")


# --- bookkeeping: checks that count contradictions ------------------------------------------------

CLAIMS = {
    "parameters": "numbers are those of the parameters",
    "log": "every patch is one the algorithm makes",
    "points": "the history is of this log",
    "paired": "the changes of the rows add up to the change of the sums",
    "status": "the run ended as it says",
    "events": "every round took the largest event",
    "calibrations": "calibrations took the largest gap and its mean",
    "effects": "the sums changed as the patches say",
    "sums": "the sums agree",
    "segments": "the sums of segments add up to those of all rows",
    "untouched": "patches of one model leave the other alone",
    "replay": "a second computation of the sums agrees",
    "patches": "every patch is the mean residual of the rows it acts on",
}
UNDONE = {
    "replay": "there was no second computation",
    "patches": "the rows were not read again",
}


def _agree(name: str, contradictions: Iterable[str] | None, split: SplitName = "fit") -> Check:
    """A check that there are no contradictions, with the first ones; None: nobody looked."""
    if contradictions is None:
        why, claim = UNDONE[name], CLAIMS[name]
        return Check.of(name, claim, None, "==", Fraction(0), undone=why, split=split)
    all_ = list(contradictions)
    count, why = Fraction(len(all_)), "; ".join(all_[:3])
    return Check.of(name, CLAIMS[name], count, "==", Fraction(0), why=why, split=split)


def _sound(
    pair: Fitted, fit_points: Sequence[Point], holdout_points: Sequence[Point]
) -> Iterator[Check]:
    """Whether there is something to check at all."""
    yield _agree("parameters", log_checks.parameters(pair))
    yield _agree("log", log_checks.log(pair))
    yield _agree("points", history_checks.points(pair, fit_points, pair.rows))
    if holdout_points:
        yield _agree("points", history_checks.points(pair, holdout_points, None), "holdout")


def _run(pair: Fitted, points: Sequence[Point]) -> Iterator[Check]:
    """Whether the run did what its log says, on the fitting rows."""
    yield _agree("status", history_checks.status(pair, points[-1].totals))
    yield _agree("events", history_checks.events(pair, points))
    if pair.parameters.calibrates_everywhere:
        yield _agree("calibrations", history_checks.calibrations(pair, points))
    yield _agree("effects", history_checks.effects(pair, points))


def _sums(
    pair: Fitted,
    split: SplitName,
    points: Sequence[Point],
    replayed: Totals | Sequence[Point] | None,
) -> Iterator[Check]:
    yield _agree("sums", sum_checks.sums(pair, points), split)
    yield _agree("untouched", history_checks.untouched(pair, points), split)
    other = None if replayed is None else history_checks.replay(points, replayed)
    yield _agree("replay", other, split)
