"""The public face: a Reconciler is fitted on labelled rows and gives a ReconciledPair."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from redcal_spark.backends.backend import Scan
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.local.scan import scan_pieces
from redcal_spark.certificate.certify import certify
from redcal_spark.core.arrow import batches, from_numpy, to_arrow
from redcal_spark.core.columns import Columns, ScoreColumns
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import each_alone
from redcal_spark.errors import FitWarning, UsageError, warn
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.pair import ReconciledPair, check_missing_model, is_many, is_spark
from redcal_spark.settings import MAX_MODELS, DriverBudget, called_from_python

log = logging.getLogger(__name__)

Scores = str | Sequence[str]  # columns: an array, P(class 1), or one per class


class Reconciler:
    """Reconciles two models or more on labelled rows.

    Args:
        losses: {name: costs}, costs an action x class matrix, or {name: {"costs", "actions"}}. A
            data frame of costs names the actions by its index and the classes by its columns.
        algorithm: redcal, decision_calibration, reconcile or dc_then_redcal.
        alpha: the margin above which a disagreement counts, the loss rescaled to [0, 1].
        eta: the share of rows from which on a disagreement event is patched.
        beta: the calibration tolerance; "auto" is about the sampling noise of these rows.
        delta: the probability, at most, that a statement of a certificate about new rows is false.
        adaptive_beta: loosen beta with the gain of each round.
        grid_bits: the patch grid 2^-bits; None: by theory.
        max_rounds: stop after this many rounds, as capped.
        max_steps: stop after this many patches, as capped.
        model_1: the first model's scores: an array column, one column P(class 1), or a list.
        model_2: the second model's scores, in any of the same forms.
        models: instead of both, 2 to 16 models: a list of their scores, or {name: scores}.
        label: the column of labels: a class index, 0/1, a class name or an array.
        id: the column that identifies a row.
        classes: the names of the classes, in order.
        weight: the column of weights: a row of weight w counts as w rows, one of weight 0 as none.
            Arrays give theirs to `fit`.
        weight_unit: weights are whole multiples of it: 0.1 for weights like 0.3 and 2.5.
        segments: columns whose values split the rows for measuring only; nothing in the fit looks
            at them.
        on_bad_rows: "error", or "skip" to leave out rows that cannot be used.
        missing_model: "error", or "skip_row" to leave out rows without a model's scores.
        threads: threads of the local engine; None: all cores.
        engine: "auto" computes where the data is: Spark DataFrames on Spark, all else in memory.
        scratch: a path or catalog schema that every Spark worker sees.
        driver_budget: bytes of active rows that Spark's driver takes over; auto: a quarter of its
            free memory; 0: none.

    ```python
    pair = Reconciler(losses={"t": [[0, 5], [1, 0]]}, alpha=0.01, eta=0.05).fit(p1, p2, y)
    pair.status, len(pair.log)
    ```
    """

    def __init__(
        self,
        *,
        losses: Any = None,
        algorithm: str = "redcal",
        alpha: float | None = None,
        eta: float | None = None,
        beta: float | Literal["auto"] = "auto",
        adaptive_beta: bool = False,
        grid_bits: int | None = None,
        max_rounds: int = 10_000,
        max_steps: int = 1_000_000,
        delta: float = 0.05,
        model_1: str | Sequence[str] | None = None,
        model_2: str | Sequence[str] | None = None,
        models: Sequence[Scores] | Mapping[str, Scores] | None = None,
        label: str = "label",
        id: str | None = None,
        classes: Sequence[str] | None = None,
        weight: str | None = None,
        weight_unit: float = 1,
        segments: Sequence[str] = (),
        on_bad_rows: Literal["error", "skip"] = "error",
        missing_model: Literal["error", "skip_row"] = "error",
        threads: int | None = None,
        engine: Literal["auto", "local", "spark"] = "auto",
        scratch: str | None = None,
        driver_budget: DriverBudget = "auto",
    ):
        parameters = Parameters(
            algorithm=algorithm,  # type: ignore[arg-type]
            alpha=alpha,
            eta=eta,
            beta=beta,
            adaptive_beta=adaptive_beta,
            grid_bits=grid_bits,
            max_rounds=max_rounds,
            max_steps=max_steps,
        )
        if isinstance(delta, bool) or not 0 < delta < 1:
            raise UsageError(f"delta: must be in (0, 1), got {delta!r}")
        self.delta = exact(delta)
        family = LossFamily.of(losses)
        if not parameters.reconciles_scores and not len(family):
            raise UsageError(f"losses: {algorithm} needs at least one")
        names = family.classes if classes is None else tuple(map(str, classes))
        sources, model_names = _models(models, model_1, model_2)
        columns = Columns(
            *(sources, label, id, names, model_names),
            weight=weight,
            weight_unit=_unit(weight_unit),
            segments=_segments(segments),
        )
        self._any_models = models is model_1 is model_2 is None
        if on_bad_rows not in ("error", "skip"):
            raise UsageError(f"on_bad_rows: must be 'error' or 'skip', got {on_bad_rows!r}")
        check_missing_model(missing_model)
        d = family.n_classes
        if names is not None and d is not None and len(names) != d:
            raise UsageError(f"classes: {len(names)} names, but the losses have {d} classes")
        if family.classes not in (None, names):
            raise UsageError(
                f"classes: are {', '.join(names or ())}, and the columns of the costs are "
                f"{', '.join(family.classes or ())}; give both in the same order"
            )
        if threads is not None and threads < 1:
            raise UsageError(f"threads: must be 1 or more, got {threads}")
        if engine not in ("auto", "local", "spark"):
            raise UsageError(f"engine: must be 'auto', 'local' or 'spark', got {engine!r}")
        self.problem = Problem(
            parameters, family, columns, on_bad_rows, missing_model=missing_model
        )
        self.threads = threads
        self.engine = engine
        self.scratch = scratch
        self.driver_budget = driver_budget

    @property
    def parameters(self) -> Parameters:
        return self.problem.parameters

    @property
    def losses(self) -> LossFamily:
        return self.problem.losses

    @property
    def columns(self) -> Columns:
        return self.problem.columns

    @called_from_python
    def fit(
        self, data: Any, model_2: Any = None, labels: Any = None, *, weight: Any = None
    ) -> ReconciledPair:
        """Fit on a table (pandas, polars, Arrow, Spark), or on arrays.

        fit(scores_1, scores_2, y), or of any number of models fit([scores_1, scores_2, ...], y).
        Rows without a label are not fitted: null, None, and in pandas and numpy NaN.
        weight: with arrays, how often each row counts; of a table, name its column beforehand.
        """
        problem = self._weighted(weight, arrays=model_2 is not None)
        if is_spark(data) and self.engine != "local":
            return self._fit_frame(data, problem)
        if is_spark(data):
            from redcal_spark.backends.spark.frames import table_of

            data = table_of(data, self.columns.names(label=True))
        if is_many(data) and model_2 is not None and labels is None:
            if self._any_models and len(data) != self.columns.n_models:
                return self._of_models(len(data)).fit(data, model_2, weight=weight)
            table = from_numpy(problem.columns, data, model_2, weight)
        elif model_2 is not None:
            if labels is None:
                raise UsageError("fit: labels are missing: fit(scores_1, scores_2, labels)")
            table = from_numpy(problem.columns, [data, model_2], labels, weight)
        else:
            table = to_arrow(data, self.columns.names(label=True))
        if self.engine == "spark":
            from redcal_spark.backends.spark.session import get_session

            return self._fit_frame(get_session().createDataFrame(table), problem)
        rows, schema = each_alone(batches(table)), table.schema
        result = scan_pieces(problem, rows, schema, "the data", threads=self.threads)
        return self._fit(LocalScan(*result, self.threads), problem)

    def _weighted(self, weight: Any, *, arrays: bool) -> Problem:
        """The problem with a column for weights that were given as an array."""
        columns = self.columns
        if not arrays and weight is not None:
            raise UsageError(
                "fit: weight= is an array beside arrays of scores; of a table name the column: "
                "Reconciler(weight='...')"
            )
        if arrays and columns.weight is not None and weight is None:
            raise UsageError("fit: weights are missing: give fit(..., weight=...)")
        if weight is None or columns.weight is not None:
            return self.problem
        return replace(self.problem, columns=replace(columns, weight="weight"))

    def _of_models(self, count: int) -> Reconciler:
        """Models that nobody named are as many as there are arrays of scores."""
        check_count(count)
        names = tuple(f"model_{i}" for i in range(1, count + 1))
        other = copy.copy(self)
        other.problem = replace(self.problem, columns=replace(self.columns, models=names))
        return other

    def _fit_frame(self, frame: Any, problem: Problem) -> ReconciledPair:
        from redcal_spark.backends.spark.errors import workers_in_words
        from redcal_spark.backends.spark.frames import layout_of
        from redcal_spark.backends.spark.scan import SparkScan
        from redcal_spark.backends.spark.scratch import Scratch

        why = "the data is a Spark DataFrame" if self.engine == "auto" else "it was asked for"
        log.info("engine spark: %s", why)
        layout = layout_of(frame, problem.columns, problem.n_classes)
        scratch = Scratch(frame.sparkSession, self.scratch)
        try:
            with workers_in_words():
                scan = SparkScan(frame, problem, layout, scratch, self.driver_budget, self.threads)
            problem.check(scan.gathered, "the data")
            return self._fit(scan, problem)
        finally:
            scratch.close()

    def _fit(self, scan: Scan, problem: Problem) -> ReconciledPair:
        for doubt in problem.doubts(scan.gathered):
            warn(doubt, FitWarning)
        pair = fit_scanned(problem, scan)
        points = scan.histories(pair, None)["fit"]
        return replace(pair, certificate=certify(pair, points, delta=self.delta))


def _unit(given: Any) -> float:
    number = isinstance(given, int | float | np.number | Decimal) and not isinstance(given, bool)
    if not number or not 0 < float(given) < math.inf:
        raise UsageError(f"weight_unit: must be a number above 0, got {given!r}")
    return float(given)


def _segments(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise UsageError(f"segments: must be a list of columns, got {given!r}")
    if len(set(given)) < len(given):
        raise UsageError(f"segments: a column is given twice: {', '.join(given)}")
    return tuple(given)


def _models(
    models: Sequence[Scores] | Mapping[str, Scores] | None,
    model_1: Scores | None,
    model_2: Scores | None,
) -> tuple[tuple[ScoreColumns, ...], tuple[str, ...] | None]:
    """The score columns of every model, and the names of the models, if they have any."""
    if models is None:
        two = ("model_1" if model_1 is None else model_1, "model_2" if model_2 is None else model_2)
        return tuple(map(_source, two)), None
    if model_1 is not None or model_2 is not None:
        raise UsageError("models: has every model; leave out model_1 and model_2")
    if isinstance(models, str) or not isinstance(models, Sequence | Mapping):
        raise UsageError(
            f"models: must be a list of columns, or {{name: columns}}; got {type(models).__name__}"
        )
    check_count(len(models))
    if isinstance(models, Mapping):
        return tuple(map(_source, models.values())), tuple(map(str, models))
    return tuple(map(_source, models)), None


def check_count(models: int) -> None:
    if not 2 <= models <= MAX_MODELS:
        raise UsageError(f"models: there must be 2 to {MAX_MODELS}, got {models}")


def _source(columns: Scores) -> ScoreColumns:
    return columns if isinstance(columns, str) else tuple(columns)
