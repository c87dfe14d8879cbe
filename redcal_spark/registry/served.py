"""What MLflow serves: a pair behind `predict`. Loaded from its JSON file, never from a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from redcal_spark.core.output_columns import OutputNames
from redcal_spark.errors import UsageError
from redcal_spark.model.pair import ReconciledPair

ON_BAD_ROWS = "on_bad_rows"  # a parameter of `predict`


@dataclass(frozen=True)
class ServedPair:
    """A pair that needs no ids: rows come and go, and are answered in their order."""

    pair: ReconciledPair

    def new_columns(self, skip: bool) -> list[str]:
        return OutputNames(self.pair.columns, self.pair.losses).all(skip)

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """New scores and actions of a data frame of pandas: one row a row, the same index."""
        on_bad_rows = (params or {}).get(ON_BAD_ROWS, "error")
        if not hasattr(model_input, "iloc") or not hasattr(model_input, "columns"):
            raise UsageError(
                "predict: takes a data frame of pandas with the columns "
                f"{', '.join(self.pair.columns.names(label=False))}; got "
                f"{type(model_input).__name__}"
            )
        new = self.pair.apply(model_input, on_bad_rows=on_bad_rows)
        columns = new[self.new_columns(on_bad_rows == "skip")]
        if self.pair.binary:
            return columns
        # lists can be sent as JSON and to Spark, numpy's arrays in cells cannot
        arrays = {
            name: columns[name].map(_plain) for name in columns if columns[name].dtype == object
        }
        return columns.assign(**arrays)


def _plain(cell: Any) -> Any:
    return cell.tolist() if hasattr(cell, "tolist") else cell


def served(pair: ReconciledPair) -> ServedPair:
    return ServedPair(replace(pair, columns=replace(pair.columns, id=None)))


def _load_pyfunc(path: str) -> ServedPair:
    """What MLflow calls."""
    return served(ReconciledPair.load(path))
