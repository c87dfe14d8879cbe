"""A pair on new labelled rows: what was measured, and what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redcal_spark.certificate.case import Case
from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.holdout import HoldoutRows, holdout, measures, statements
from redcal_spark.certificate.intervals import Level
from redcal_spark.certificate.segment_checks import SegmentRows
from redcal_spark.core.arrow import check_orders
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.history import Point
from redcal_spark.core.number_text import plural
from redcal_spark.core.problem import Problem
from redcal_spark.errors import InputError, UsageError
from redcal_spark.model.evidence import Evidence, History
from redcal_spark.model.given import score_arrays
from redcal_spark.model.scanning import Computing, Given, scanned, weighted
from redcal_spark.model.summary import Summary
from redcal_spark.model.views import views

if TYPE_CHECKING:
    from redcal_spark.model.pair import ReconciledPair


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """How a pair fares on new labelled rows.

    Attributes:
        pair: the pair.
        certificate: what is promised of new rows, and whether these rows bear it out.
        evidence: what was measured of these rows.
    """

    pair: ReconciledPair
    certificate: Certificate
    evidence: Evidence

    @property
    def rows(self) -> int:
        """How many have a label and could be used."""
        return self.evidence.counts["holdout_rows"]

    @property
    def history(self) -> History:
        """What was measured on these rows after every round of the pair's log."""
        return self.evidence.history

    def summary(self) -> Summary:
        """What the models are like on these rows, as given and reconciled."""
        pair = self.pair
        return Summary.of(self.headline(), self.evidence.audits, pair.models, pair.binary)

    def headline(self) -> str:
        return f"{' and '.join(self.pair.models)} on {plural(self.rows, 'new labelled row')}"

    def __repr__(self) -> str:
        said = self.certificate.headline()[0]
        return f"<Evaluation: {self.headline()}; {said}>"

    def _repr_html_(self) -> str | None:
        return views().html(self)


def evaluate(
    pair: ReconciledPair, problem: Problem, given: Given, how: Computing, delta: float
) -> Evaluation:
    """Replay the log on the rows, all of them held out."""
    if isinstance(delta, bool) or not 0 < delta < 1:
        raise UsageError(f"delta: must be in (0, 1), got {delta!r}")
    scores = score_arrays(given.data, given.model_2, given.labels)
    frames = {f"the scores of model {i}": own for i, own in enumerate(scores, 1)}
    check_orders(frames, {"the scores that were fitted": pair.frame_columns})
    with scanned(weighted(problem, given), given, how) as scan:
        pair.check_layout(scan.layout)
        if not scan.gathered.holdout.rows:
            raise InputError(
                f"the data has no rows to evaluate on: of {scan.gathered.rows:,} rows "
                f"{scan.gathered.unlabelled:,} have no label and {scan.gathered.bad:,} cannot be "
                "used"
            )
        points = scan.histories(pair, [])["holdout"]
        certificate = _certificate(pair, points, delta)
        evidence = Evidence.of(pair, {"holdout": points}, scan.gathered, certificate)
    return Evaluation(pair, certificate, evidence)


def _certificate(pair: ReconciledPair, points: Sequence[Point], delta: float) -> Certificate:
    """What the certificate of a run says of holdout rows; of fitting rows nothing is known here."""
    case = Case(pair, points)
    segments = SegmentRows.of(case, points)
    more = 0 if segments is None else segments.statements
    held = HoldoutRows(case, points, Level(exact(delta), statements(case) + more))
    checks = [*holdout(held), *(() if segments is None else segments.checks(held))]
    numbers = tuple(measures(case, "holdout", points))
    return Certificate(tuple(checks), numbers, held.level, pair.models)
