"""Evidence: what was measured of a pair, on the rows it was fitted on and on those held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.certificate.certify import Certificate
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.scan import ScanResult
from redcal_spark.core.tabular import Tabular
from redcal_spark.errors import ModelFileError
from redcal_spark.model.audit import audits
from redcal_spark.model.measurements import MEASURED, history_rows, plain

SCHEMA = pa.schema([(name, kind) for name, kind, _ in MEASURED])
COUNTS = ("rows", "fit_rows", "holdout_rows", "unlabelled_rows", "bad_rows")


@dataclass(frozen=True, eq=False)
class History(Tabular):
    """What was measured after every round: per split, loss and model.

    numbers: as the history table of a run has them, models by number.
    """

    numbers: pa.Table
    models: tuple[str, ...]

    def to_arrow(self) -> pa.Table:
        """One row per split, point, loss and model; docs/reference/outputs.md has the columns."""
        place = self.numbers.schema.get_field_index("model")
        number = pc.subtract(self.numbers.column(place), 1)
        return self.numbers.set_column(place, "model", pa.array(self.models).take(number))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return self.models == other.models and bool(self.numbers.equals(other.numbers))

    __hash__ = None  # type: ignore[assignment]  # a table has none

    def __repr__(self) -> str:
        splits = " and ".join(self.numbers["split"].unique().to_pylist())
        points = len(self.numbers["step"].unique())
        return f"<History: {points:,} points of {splits} rows>"


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was measured of a pair, as plain data.

    audits: per split, before and after. counts: rows, and those of each kind. measured_at: when.
    """

    history: History
    audits: Mapping[str, Any]
    counts: Mapping[str, int]
    measured_at: datetime

    @classmethod
    def of(
        cls,
        pair: Fitted,
        histories: Mapping[str, list[Point]],
        gathered: ScanResult,
        certificate: Certificate | None,
    ) -> Evidence:
        table = pa.Table.from_pylist(list(history_rows(pair.losses, histories)), schema=SCHEMA)
        measured, counts = audits(pair, histories, certificate), row_counts(gathered)
        return cls(History(table, pair.columns.shown), measured, counts, datetime.now(UTC))

    def to_json(self) -> dict[str, Any]:
        return {
            "measured_at": self.measured_at.isoformat(),
            "counts": dict(self.counts),
            "history": [plain(row) for row in self.history.numbers.to_pylist()],
            "audits": dict(self.audits),
        }

    @classmethod
    def from_json(cls, data: Any, fitted: Fitted) -> Evidence:
        """What `to_json` gave; anything else is refused."""
        try:
            rows = [row | {"brier_sum": Decimal(row["brier_sum"])} for row in data["history"]]
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            history = History(table, fitted.columns.shown)
            moment = datetime.fromisoformat(data["measured_at"])
            evidence = cls(history, data["audits"], data["counts"], moment)
            made = evidence.to_json()
            pairs = zip(made["history"], data["history"], strict=True)
            # an earlier release did not measure all that this one does
            made["history"] = [
                {name: value for name, value in ours.items() if name in theirs or value is not None}
                for ours, theirs in pairs
            ]
            same = made == data and tuple(data["counts"]) == COUNTS
        except (LookupError, TypeError, ValueError, ArithmeticError, pa.ArrowException) as err:
            raise ModelFileError(f"damaged model: evidence: {err}") from err
        if not same:
            raise ModelFileError("damaged model: evidence: not as any release wrote it")
        return evidence


def row_counts(gathered: ScanResult) -> dict[str, int]:
    """How many rows a scan read, and those of each kind."""
    fit, holdout = gathered.fit.counted, gathered.holdout.counted
    counts = gathered.rows, fit, holdout, gathered.unlabelled, gathered.bad
    return dict(zip(COUNTS, counts, strict=True))


def evidence_json(
    evidence: Evidence | None, certificate: Certificate | None
) -> dict[str, Any] | None:
    """What a file of a model has beside the model itself; None if there is nothing."""
    if evidence is None and certificate is None:
        return None
    return {
        "certificate": None if certificate is None else certificate.to_json(),
        "measured": None if evidence is None else evidence.to_json(),
    }
