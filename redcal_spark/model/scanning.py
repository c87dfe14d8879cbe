"""The one scan of what a user holds in Python: rows in memory, or a DataFrame of Spark's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from redcal_spark.backends.backend import Scan
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.core.arrow import batches, joined
from redcal_spark.core.folds import check_id
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import each_alone
from redcal_spark.core.splits import HoldoutOnly, Split
from redcal_spark.errors import UsageError
from redcal_spark.model.given import is_spark, labelled
from redcal_spark.model.holdout_rows import Holdout, columns_of, split_of, split_table
from redcal_spark.settings import DriverBudget

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Computing:
    """Where it is done, and with what."""

    threads: int | None = None
    engine: str = "auto"
    scratch: str | None = None
    driver_budget: DriverBudget = "auto"


@dataclass(frozen=True)
class Given:
    """What a user handed over: a table alone, or arrays. holdout: which rows are held out."""

    data: Any
    model_2: Any = None
    labels: Any = None
    holdout: Holdout = None
    all_held_out: bool = False
    weight: Any = None


def weighted(problem: Problem, given: Given) -> Problem:
    """The problem with a column for weights that were given as an array."""
    arrays, known = given.model_2 is not None, problem.columns.weight
    if given.weight is None:
        if arrays and known is not None:
            raise UsageError("weights are missing: give weight=..., one for every row")
        return problem
    if not arrays:
        raise UsageError(
            "weight= is an array beside arrays of scores; of a table name the column: "
            "Reconciler(weight='...')"
        )
    if known is not None:
        return problem
    return replace(problem, columns=replace(problem.columns, weight="weight"))


@contextmanager
def scanned(problem: Problem, given: Given, how: Computing) -> Iterator[Scan]:
    """The scan, while it is needed. What cannot be used is refused."""
    if is_spark(given.data) and how.engine != "local":
        with _on_spark(problem, given.data, given, how) as scan:
            yield scan
        return
    table, split = _rows(problem, given)
    if how.engine == "spark":
        from redcal_spark.backends.spark.session import get_session

        frame = get_session().createDataFrame(table)
        with _on_spark(problem, frame, given, how, split) as scan:
            yield scan
        return
    rows = each_alone(joined(batches(table)))
    result = gather_pieces(problem, rows, table.schema, "the data", split, threads=how.threads)
    _check(problem, result[0], given, split)
    yield LocalScan(*result, how.threads)


def _rows(problem: Problem, given: Given) -> tuple[pa.Table, Split | None]:
    columns, data, more = problem.columns, given.data, columns_of(given.holdout)
    if is_spark(data):
        from redcal_spark.backends.spark.frames import table_of

        data = table_of(data, [*columns.names(label=True), *more])
    table = labelled(columns, data, given.model_2, given.labels, more, given.weight)
    if given.all_held_out:
        return table, HoldoutOnly(columns.label)
    return split_table(given.holdout, columns, table)


@contextmanager
def _on_spark(
    problem: Problem, frame: Any, given: Given, how: Computing, split: Split | None = None
) -> Iterator[Scan]:
    from redcal_spark.backends.spark.errors import workers_in_words
    from redcal_spark.backends.spark.frames import arrow_schema, layout_of
    from redcal_spark.backends.spark.scan import SparkScan
    from redcal_spark.backends.spark.scratch import Scratch

    why = "the data is a Spark DataFrame" if how.engine == "auto" else "it was asked for"
    log.info("engine spark: %s", why)
    columns = problem.columns
    if given.all_held_out:
        split = HoldoutOnly(columns.label)
    elif split is None:
        names = [*columns_of(given.holdout), *([columns.id] if columns.id else [])]
        split = split_of(given.holdout, columns, arrow_schema(frame, names))
    if problem.parameters.tunes and columns.id is not None:
        check_id(arrow_schema(frame, [columns.id]), columns.id, "the data")
    layout = layout_of(frame, columns, problem.n_classes)
    scratch = Scratch(frame.sparkSession, how.scratch)
    try:
        with workers_in_words():
            scan = SparkScan(frame, problem, layout, scratch, how.driver_budget, how.threads, split)
        _check(problem, scan.gathered, given, split)
        yield scan
    finally:
        scratch.close()


def _check(problem: Problem, gathered: Any, given: Given, split: Split | None) -> None:
    if given.all_held_out:
        problem.check_readable(gathered, "the data")
    else:
        problem.check(gathered, "the data", split)
