"""A reconciled pair: applied to any rows, explained on one, saved and loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from redcal_spark.core.columns import plan
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.problem import Problem
from redcal_spark.model import model_file
from redcal_spark.model.applying import Applying, MissingModel, OnBadRows, applied, changed
from redcal_spark.model.evaluation import Evaluation, evaluate
from redcal_spark.model.evidence import evidence_json
from redcal_spark.model.explain import explain
from redcal_spark.model.explanation import Explanation
from redcal_spark.model.given import is_both, one_row, parts
from redcal_spark.model.scanning import Computing, Given
from redcal_spark.model.shown_pair import ShownPair
from redcal_spark.model.sql import to_sql
from redcal_spark.settings import called_from_python

Rows = TypeVar("Rows")  # whatever kind of table, array or row is given comes back


class HasArray(Protocol):
    """What numpy can take as an array: arrays, and columns of pandas and polars."""

    def __array__(self, *options: Any, **more: Any) -> Any: ...


class ApplyOptions(TypedDict, total=False):
    """How `apply` can be called, beside what decides about what it returns."""

    suffix: str
    on_bad_rows: OnBadRows
    missing_model: MissingModel
    tie: str | None


Scores = Sequence[Any] | HasArray
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class ReconciledPair(ShownPair):
    """A reconciled pair of models: the patch log, and what it takes to replay it on any rows.

    Attributes:
        log: the patches, in order.
        losses: what decisions cost.
        rows: how many it was fitted on.
        status: converged, capped, stalled or cut.
        zero_calibrations: calibrations that ended because their patch rounded to nothing.
        tuned: how `eta: auto` was chosen: every candidate; None where eta was given.
        certificate: what was promised and what is so, where that is known.
        evidence: what was measured of it when it was fitted, where that is known.
    """

    @called_from_python
    def evaluate(
        self,
        data: Any,
        model_2: Any = None,
        labels: Any = None,
        *,
        weight: Any = None,
        delta: float = 0.05,
        on_bad_rows: OnBadRows = "error",
        threads: int | None = None,
        scratch: str | None = None,
    ) -> Evaluation:
        """How the pair fares on new labelled rows, which nothing was fitted to.

        data, model_2, labels, weight: as `Reconciler.fit` takes them. What comes back has
        `summary()`, `history` and `certificate`: every statement about new rows, all of them
        together true with probability 1 - delta. Rows that the pair was fitted on, or that its
        guard chose by, are not new: of these the statements would say too much.

        ```python
        seen = pair.evaluate(p1, p2, y)
        print(seen.summary())
        ```
        """
        given = Given(data, model_2, labels, all_held_out=True, weight=weight)
        how = Computing(threads, scratch=scratch)
        problem = Problem(self.parameters, self.losses, self.columns, on_bad_rows)
        return evaluate(self, problem, given, how, delta)

    # --- applied to rows ------------------------------------------------------------------------

    @overload
    def apply(
        self,
        data: float,
        model_2: float,
        *,
        normalise: Literal[False] = ...,
        **how: Unpack[ApplyOptions],
    ) -> tuple[float, float]: ...

    @overload
    def apply(
        self,
        data: Scores,
        model_2: Scores,
        *,
        normalise: Literal[False] = ...,
        **how: Unpack[ApplyOptions],
    ) -> tuple[Array, Array]: ...

    @overload
    def apply(
        self,
        data: Scores,
        model_2: Scores,
        *,
        normalise: Literal[True],
        **how: Unpack[ApplyOptions],
    ) -> tuple[Array, Array, Array, Array]: ...

    @overload
    def apply(
        self,
        data: list[Any] | tuple[Any, ...],
        model_2: None = ...,
        *,
        normalise: bool = ...,
        **how: Unpack[ApplyOptions],
    ) -> tuple[Any, ...]: ...

    @overload
    def apply(
        self, data: Rows, model_2: None = ..., *, normalise: bool = ..., **how: Unpack[ApplyOptions]
    ) -> Rows: ...

    @called_from_python
    def apply(
        self,
        data: Any,
        model_2: Any = None,
        *,
        suffix: str = "_reconciled",
        on_bad_rows: OnBadRows = "error",
        normalise: bool = False,
        missing_model: MissingModel = "error",
        tie: str | None = "off",
    ) -> Any:
        """The reconciled scores of any rows, labelled or not.

        A table comes back as the same kind of table with columns added: pandas, polars, Arrow,
        DuckDB, Spark. Arrays apply(scores_1, scores_2) come back as (new_1, new_2), and
        apply([scores_1, ...]) as so many new ones. One row may be a dict, a Series, or
        apply(0.2, 0.7). Rows that no patch touched keep their scores to the bit.

        normalise: the scores of several classes need not sum to 1 when they are patched; scores
        divided by their sum are added, null where it is 0 (numpy: as many more arrays, with NaN).
        Actions are those of the scores as they are, and so is every promise.
        missing_model: rows without a model's scores are an error, or pass through ("skip_row").
        tie: columns `<loss>_decision` are added to a table: the agreed action, and where the models
        disagree that of "model_1" (or of a model by its name), the "cheaper" one by the mean of all
        models' new scores (the first model's of equals), or None for none.

        ```python
        new_1, new_2 = pair.apply(p1, p2)
        pair.apply({"model_1": 0.2, "model_2": 0.7})["model_1_reconciled"]
        ```
        """
        how = Applying(suffix, on_bad_rows, normalise, missing_model, tie)
        return applied(self, how, data, model_2)

    @called_from_python
    def transform(self, data: Rows) -> Rows:
        """The reconciled scores of any rows, as scikit-learn asks for them.

        An array with the scores of all models side by side comes back as such an array; a table
        as a table with columns added.

        ```python
        new = pair.transform(np.column_stack([p1, p2]))
        ```
        """
        if is_both(data):
            own = self.apply(parts(data, self.columns.n_models))
            new: Rows = np.column_stack(own)  # type: ignore[assignment]
            return new
        return self.apply(data)

    @called_from_python
    def changes(self, data: Rows, *, on_bad_rows: OnBadRows = "error") -> Rows:
        """The rows of a table whose scores change: old and new scores, actions before and after.

        They come with their id, where there is one, as the same kind of table.

        ```python
        frame = pd.DataFrame({"model_1": p1, "model_2": p2})
        pair.changes(frame)
        ```
        """
        rows: Rows = changed(self, Applying("_reconciled", on_bad_rows, False), data)
        return rows

    @called_from_python
    def explain(self, row: Any, model_2: Any = None) -> Explanation:
        """Every patch that touches one row, and why, or why none does.

        row: a mapping of columns to values, a row of pandas or Spark, or a table of one row; or
        explain(scores_1, scores_2), or explain([scores_1, ...]). `sentences()` and `to_json()` of
        what comes back tell it.

        ```python
        for sentence in pair.explain(p1[0], p2[0]).sentences():
            print(sentence)
        ```
        """
        table, columns = one_row(self.columns, row, model_2)
        layout = plan(table.schema, columns, "the row", self.n_classes, None, labels=False)
        self.check_layout(layout)
        return explain(table, layout, self.rules, self.log, self.parameters, self.status)

    @called_from_python
    def to_sql(
        self,
        table: str,
        dialect: str = "spark",
        *,
        columns: Sequence[str] | None = None,
        suffix: str = "_reconciled",
    ) -> str:
        """The model as one SELECT without functions of one's own, for Spark SQL or a warehouse.

        It gives what `apply(table, on_bad_rows="skip")` gives, to the bit, of up to 100 patches and
        20 classes; larger models are refused.
        table: as it stands behind FROM. dialect: spark (3.4 and later), duckdb or ansi. columns:
        those of the table that come along; by default the ones that are read.

        ```python
        print(pair.to_sql("scores", "duckdb")[:200])
        ```
        """
        carried = tuple(columns) if columns is not None else tuple(self.columns.names(label=False))
        names = OutputNames(self.columns, self.losses, suffix, carried=carried)
        return to_sql(self, table, dialect, names)

    # --- as plain data ------------------------------------------------------------------------

    def to_json(self, version: int = model_file.SCHEMA_VERSION) -> dict[str, Any]:
        """The model as plain data, ready for `json.dumps`: all that a replay needs."""
        return model_file.to_json(self, version)

    @classmethod
    def from_json(cls, data: Any) -> ReconciledPair:
        """The model from plain data. Unknown versions are refused by name, damage too."""
        fitted, evidence, certificate = model_file.with_evidence(data)
        return cls(**vars(fitted), evidence=evidence, certificate=certificate)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one JSON file, whole or not at all.

        The file has the certificate and what was measured, too.

        ```python
        pair.save("pair.json")
        assert ReconciledPair.load("pair.json").log == pair.log
        ```
        """
        model_file.save(self, path, evidence_json(self.evidence, self.certificate))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReconciledPair:
        """Read a model that `save` wrote.

        ```python
        pair.save("pair.json")
        pair = ReconciledPair.load("pair.json")
        ```
        """
        return model_file.load(path, cls.from_json)
