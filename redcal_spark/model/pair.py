"""A reconciled pair: applied to any rows, explained on one, saved and loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from redcal_spark.certificate.certify import Certificate
from redcal_spark.core.arrow import batches, empty_batch, from_numpy, to_arrow, with_columns
from redcal_spark.core.columns import plan
from redcal_spark.core.decisions import tie_of
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.normalised import with_nan
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.reading import BadRows
from redcal_spark.errors import UsageError
from redcal_spark.model import model_file
from redcal_spark.model.explain import explain, one_row
from redcal_spark.model.explanation import Explanation
from redcal_spark.settings import called_from_python, setting


@dataclass(frozen=True, eq=False)
class ReconciledPair(Fitted):
    """A reconciled pair of models: the patch log, and what it takes to replay it on any rows.

    Attributes:
        log: the patches, in order.
        losses: what decisions cost.
        rows: how many it was fitted on.
        status: converged, capped, stalled or cut.
        zero_calibrations: calibrations that ended because their patch rounded to nothing.
        certificate: what was promised and what is so; a model's file does not have it.
    """

    certificate: Certificate | None = None

    @called_from_python
    def apply(
        self,
        data: Any,
        model_2: Any = None,
        *,
        suffix: str = "_reconciled",
        on_bad_rows: Literal["error", "skip"] = "error",
        normalise: bool = False,
        missing_model: Literal["error", "skip_row"] = "error",
        tie: str | None = "off",
    ) -> Any:
        """The reconciled scores of any rows, labelled or not.

        A table comes back as the same kind of table with columns added; numpy arrays
        apply(scores_1, scores_2) come back as (new_1, new_2), and apply([scores_1, ...]) as so many
        new ones. Rows that no patch touched keep their scores to the bit.

        normalise: the scores of several classes need not sum to 1 when they are patched; scores
        divided by their sum are added, null where it is 0 (numpy: as many more arrays, with NaN).
        Actions are those of the scores as they are, and so is every promise.
        missing_model: rows without a model's scores are an error, or pass through ("skip_row").

        tie: columns `<loss>_decision` are added to a table: the agreed action, and where the models
        disagree that of "model_1" (or of a model by its name), the "cheaper" one by the mean of all
        models' new scores (the first model's of equals), or None for none.
        """
        if on_bad_rows not in ("error", "skip"):
            raise UsageError(f"on_bad_rows: must be 'error' or 'skip', got {on_bad_rows!r}")
        if not isinstance(normalise, bool):
            raise UsageError(f"normalise: must be True or False, got {normalise!r}")
        check_missing_model(missing_model)
        skip, absent = on_bad_rows == "skip", missing_model == "skip_row"
        rule = tie_of(tie, self.columns.n_models, self.columns.model_names)
        names = OutputNames(
            *(self.columns, self.losses, suffix),
            normalise=normalise,
            tie=rule,
            skip_missing=absent,
        )
        if is_spark(data):
            from redcal_spark.backends.spark.frames import apply_to_frame

            return apply_to_frame(data, self, names, skip)
        if model_2 is not None or is_many(data):
            scores = data if model_2 is None else [data, model_2]
            table = self._extended(from_numpy(self.columns, scores), names, skip)
            raw = [_to_numpy(table.column(name)) for name in names.raw]
            added = [table.column(name) for name in names.scores[len(raw) :]]
            return (*raw, *(with_nan(column, self.n_classes) for column in added))
        table = to_arrow(data, self.columns.names(label=False))
        return with_columns(data, self._extended(table, names, skip), names.all(skip))

    def _extended(self, table: pa.Table, names: OutputNames, skip: bool) -> pa.Table:
        layout = plan(table.schema, self.columns, "the data", self.n_classes, None, labels=False)
        self.check_layout(layout)
        problems = BadRows()
        extended, start = [], 0
        for batch in batches(table):
            extended.append(self.apply_batch(batch, layout, names, problems, start, skip))
            start += batch.num_rows
        if not skip:
            way_out = f"\n  ({setting('on_bad_rows', 'skip')} passes such rows through untouched)"
            problems.raise_if_any("the data", way_out)
        if not extended:
            extended = [
                self.apply_batch(empty_batch(table.schema), layout, names, problems, 0, skip)
            ]
        return pa.Table.from_batches(extended)

    @called_from_python
    def explain(self, row: Any, model_2: Any = None) -> Explanation:
        """Every patch that touches one row, and why, or why none does.

        row: a mapping of columns to values, a row of pandas or Spark, or a table of one row; or
        explain(scores_1, scores_2), or explain([scores_1, ...]). `sentences()` and `to_json()` of
        what comes back tell it.
        """
        table, columns = one_row(self.columns, row, model_2)
        layout = plan(table.schema, columns, "the row", self.n_classes, None, labels=False)
        self.check_layout(layout)
        return explain(table, layout, self.rules, self.log, self.parameters, self.status)

    # --- as plain data ------------------------------------------------------------------------

    def to_json(self, version: int = model_file.SCHEMA_VERSION) -> dict[str, Any]:
        """The model as plain data, ready for `json.dumps`: all that a replay needs."""
        return model_file.to_json(self, version)

    @classmethod
    def from_json(cls, data: Any) -> ReconciledPair:
        """The model from plain data. Unknown versions are refused by name, damage too."""
        return cls(**vars(model_file.from_json(data)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one JSON file, whole or not at all."""
        model_file.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReconciledPair:
        """Read a model that `save` wrote."""
        return cls(**vars(model_file.load(path)))


def is_spark(data: Any) -> bool:
    """Whether this is a Spark DataFrame, asked without importing Spark."""
    return any(kind.__module__.startswith("pyspark.sql") for kind in type(data).__mro__)


def check_missing_model(given: str) -> None:
    if given not in ("error", "skip_row"):
        raise UsageError(f"missing_model: must be 'error' or 'skip_row', got {given!r}")


def is_many(data: Any) -> bool:
    """Whether this is a list of arrays, one for each model."""
    if not isinstance(data, list | tuple):
        return False
    return all(hasattr(scores, "__len__") and not isinstance(scores, str) for scores in data)


def _to_numpy(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """One number or one vector a row; rows that were passed through may be of any length."""
    array = pa.concat_arrays(column.chunks)
    if pa.types.is_floating(array.type):
        return np.array(array.to_numpy(zero_copy_only=False))
    flat = np.array(array.flatten().to_numpy(zero_copy_only=False))
    if len(array) and len(flat) % len(array) == 0 and not array.null_count:
        return flat.reshape(len(array), -1)
    rows = np.empty(len(array), dtype=object)
    rows[:] = array.to_pylist()
    return rows
