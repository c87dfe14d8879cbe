"""The public face: a Reconciler is fitted on labelled rows and gives a ReconciledPair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from redcal_spark.backends.backend import Scan
from redcal_spark.core.arrow import column_names
from redcal_spark.core.columns import Columns, ScoreColumns
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import Problem, check_size, checked
from redcal_spark.errors import FitWarning, UsageError, warn
from redcal_spark.model.applying import MissingModel, check_missing_model
from redcal_spark.model.evidence import Evidence
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.given import is_many, score_arrays, segments_given, unit_of
from redcal_spark.model.guard import Guard, verdict
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.params import Params
from redcal_spark.model.scanning import Computing, Given, scanned, weighted
from redcal_spark.model.tune import tuned
from redcal_spark.settings import MAX_MODELS, TUNE_ROWS, DriverBudget, called_from_python

Scores = str | Sequence[str]  # columns: an array, P(class 1), or one per class


class Reconciler(Params):
    """Reconciles two models or more on labelled rows.

    Args:
        losses: {name: costs}, costs an action x class matrix, or {name: {"costs", "actions"}}. A
            data frame of costs names the actions by its index and the classes by its columns.
        algorithm: redcal, decision_calibration, reconcile or dc_then_redcal.
        alpha: the margin above which a disagreement counts, the loss rescaled to [0, 1].
        eta: the share of rows from which on a disagreement event is patched; "auto" chooses it, and
            a multiple of beta's "auto", by cross-fitting on the fitting rows.
        beta: the calibration tolerance; "auto" is about the sampling noise of these rows.
        delta: the probability, at most, that a statement of a certificate about new rows is false.
        guard: if the cost on holdout rows rises: "off", "report" to warn, or "best_prefix" to keep
            only the patches before that.
        adaptive_beta: loosen beta with the gain of each round.
        grid_bits: the patch grid 2^-bits; None: by theory.
        max_rounds: stop after this many rounds, as capped.
        max_steps: stop after this many patches, as capped.
        tune_rows: active rows that eta="auto" looks at, at most; a hash chooses among more.
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
        eta: float | Literal["auto"] | None = None,
        beta: float | Literal["auto"] = "auto",
        adaptive_beta: bool = False,
        grid_bits: int | None = None,
        max_rounds: int = 10_000,
        max_steps: int = 1_000_000,
        delta: float = 0.05,
        tune_rows: int = TUNE_ROWS,
        guard: Guard = "report",
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
        missing_model: MissingModel = "error",
        threads: int | None = None,
        engine: Literal["auto", "local", "spark"] = "auto",
        scratch: str | None = None,
        driver_budget: DriverBudget = "auto",
    ):
        self._keep(locals())
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
        if guard not in get_args(Guard):
            raise UsageError(f"guard: must be one of {', '.join(get_args(Guard))}, got {guard!r}")
        self.delta = exact(delta)
        self.guard: Guard = guard
        family = LossFamily.of(losses)
        names = None if classes is None else tuple(map(str, classes))
        sources, model_names = _models(models, model_1, model_2)
        columns = Columns(
            *(sources, label, id, names, model_names),
            weight=weight,
            weight_unit=unit_of(weight_unit),
            segments=segments_given(segments),
        )
        self._any_models = models is model_1 is model_2 is None
        if on_bad_rows not in ("error", "skip"):
            raise UsageError(f"on_bad_rows: must be 'error' or 'skip', got {on_bad_rows!r}")
        check_missing_model(missing_model)
        problem = Problem(
            *(parameters, family, columns, on_bad_rows),
            missing_model=missing_model,
            tune_rows=tune_rows,
        )
        self.problem = checked(problem)
        if threads is not None and threads < 1:
            raise UsageError(f"threads: must be 1 or more, got {threads}")
        if engine not in ("auto", "local", "spark"):
            raise UsageError(f"engine: must be 'auto', 'local' or 'spark', got {engine!r}")
        if not isinstance(tune_rows, int) or isinstance(tune_rows, bool) or tune_rows < 1:
            raise UsageError(f"tune_rows: must be an integer, 1 or more, got {tune_rows!r}")
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
        self,
        data: Any,
        model_2: Any = None,
        labels: Any = None,
        *,
        holdout: Any = None,
        weight: Any = None,
    ) -> ReconciledPair:
        """Fit on a table (pandas, polars, Arrow, DuckDB, Spark), or on arrays.

        data, model_2, labels: a table alone; fit(scores_1, scores_2, y), or of any number of models
        fit([scores_1, scores_2, ...], y); or, as scikit-learn calls it, fit(X, y): X a table, or an
        array with the scores of all models side by side. Rows without a label are not fitted: null,
        None, and in pandas and numpy NaN.
        weight: with arrays, how often each row counts; of a table, name its column beforehand.
        holdout: rows that only check the fit. A column that is true, 1 or "holdout" there; a mask
        with one truth value a row; a fraction, drawn by a hash of the id (without an id of the
        row's place); or a mapping with column, fit and holdout, or holdout_fraction and salt.

        ```python
        pair = reconciler.fit(p1, p2, y, holdout=0.3)
        print(pair.summary())
        ```
        """
        if self.guard == "best_prefix" and holdout is None:
            raise UsageError("guard: best_prefix needs holdout rows: fit(..., holdout=0.3)")
        given = Given(data, model_2, labels, holdout, weight=weight)
        how = Computing(self.threads, self.engine, self.scratch, self.driver_budget)
        problem = self._problem_of(given)
        with scanned(problem, given, how) as scan:
            pair = self._fit(problem, scan)
        named = map(column_names, score_arrays(data, model_2, labels))
        names = next(filter(None, named), None)
        pair = replace(pair, frame_columns=None if names is None else tuple(names))
        self.pair_ = pair
        return pair

    def _problem_of(self, given: Given) -> Problem:
        """Models that nobody named are as many as there are arrays of scores."""
        arrays = given.labels is None and given.model_2 is not None and is_many(given.data)
        if not arrays or not self._any_models or len(given.data) == self.columns.n_models:
            return weighted(self.problem, given)
        check_count(len(given.data))
        check_size(self.losses, len(given.data))
        names = tuple(f"model_{i}" for i in range(1, len(given.data) + 1))
        problem = replace(self.problem, columns=replace(self.columns, models=names))
        return weighted(problem, given)

    def _fit(self, problem: Problem, scan: Scan) -> ReconciledPair:
        self._warn(problem, scan)
        if problem.parameters.tunes:
            problem = tuned(problem, scan)
            self._warn(problem, scan)
        pair = fit_scanned(problem, scan)
        histories = scan.histories(pair, None)

        def warned(text: str) -> None:
            warn(text, FitWarning)

        pair, kept = verdict(pair, histories, self.guard, warned, self.delta)
        return replace(pair, evidence=Evidence.of(pair, kept, scan.gathered, pair.certificate))

    # --- as scikit-learn's estimators -----------------------------------------------------------

    @called_from_python
    def transform(self, data: Any) -> Any:
        """The reconciled scores of any rows, by the pair that was fitted last.

        An array with the scores of all models side by side comes back as such an array; a table
        as a table with columns added.

        ```python
        both = np.column_stack([p1, p2])
        new = reconciler.fit_transform(both, y)
        ```
        """
        if not hasattr(self, "pair_"):
            raise UsageError("transform: nothing is fitted yet; call fit first")
        return self.pair_.transform(data)

    def fit_transform(self, data: Any, labels: Any = None, **options: Any) -> Any:
        """`fit`, then `transform` of the same rows. options: those of `fit`.

        ```python
        new = reconciler.fit_transform(np.column_stack([p1, p2]), y, holdout=0.3)
        ```
        """
        self.fit(data, labels, **options)
        return self.transform(data)

    @staticmethod
    def _warn(problem: Problem, scan: Scan) -> None:
        for doubt in problem.doubts(scan.gathered):
            warn(doubt, FitWarning)


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
