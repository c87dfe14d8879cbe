"""Rows with the scores of other tables beside them, joined on the id by Spark."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from redcal_spark.backends.inputs import Side, check_join, in_words, null_ids
from redcal_spark.backends.names import quoted
from redcal_spark.core.reading import EXAMPLES
from redcal_spark.errors import InputError, JoinWarning


def join_frames(
    main: Any, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
) -> DataFrame:
    """The joined frame. Ids must be unique and on every side; `inner` leaves the others out."""
    check_join(main, sides, id)
    rows: DataFrame = main.frame
    ids = rows.select(col(quoted(id)).alias("id"))
    problems, left_out = _own(ids, main.name)
    for side in sides:
        theirs = _frame(side).select(col(quoted(side.id)).alias("id"))
        more, bad = _own(theirs, side.table.name)
        problems += more
        for one, two, where in (
            (ids, theirs, f"in {main.name} but not in {side.table.name}"),
            (theirs, ids, f"in {side.table.name} but not in {main.name}"),
        ):
            missing = one.where("id is not null").distinct().join(two.distinct(), "id", "left_anti")
            problems += _tell(where, missing)
        left_out = left_out.union(bad)
    if problems and policy == "error":
        advice = "(input.join: inner leaves such ids out)"
        raise InputError("\n  ".join(["the tables cannot be joined:", *problems, advice]))
    joined = reduce(lambda frame, side: _beside(frame, side, id), sides, rows)
    if problems:
        bad_ids = left_out.distinct().withColumnRenamed("id", "_redcal_left_out")
        joined = joined.join(
            bad_ids, joined[quoted(id)] == bad_ids["_redcal_left_out"], "left_anti"
        )
        before, after = rows.count(), joined.count()
        if not after:
            raise InputError("\n  ".join(["the join leaves no rows:", *problems]))
        left = f"the join leaves out {before - after:,} of {before:,} rows"
        warnings.warn("; ".join([left, *problems]), JoinWarning, stacklevel=4)
    return joined


def _beside(frame: DataFrame, side: Side, id: str) -> DataFrame:
    scores = [
        col(quoted(c)).alias(n) for c, n in zip(side.given.columns, side.new_names, strict=True)
    ]
    other = side.table.frame.select(col(quoted(side.id)).alias("_redcal_id"), *scores)  # type: ignore[attr-defined]
    return frame.join(other, frame[quoted(id)] == other["_redcal_id"]).drop("_redcal_id")


def _frame(side: Side) -> DataFrame:
    table: Any = side.table
    frame: DataFrame = table.frame
    return frame


def _own(ids: DataFrame, name: str) -> tuple[list[str], DataFrame]:
    """What is wrong with the ids of one table, in words, and those that occur more than once."""
    problems = null_ids(ids.where("id is null").count(), name)
    repeated = ids.where("id is not null").groupBy("id").count().where("count > 1").select("id")
    return problems + _tell(f"more than once in {name}", repeated), repeated


def _tell(what: str, ids: DataFrame) -> list[str]:
    count = ids.count()
    shown = [r["id"] for r in ids.orderBy("id").limit(EXAMPLES).collect()] if count else []
    return in_words(what, count, shown)


def id_problems(frame: DataFrame, id: str, name: str) -> list[str]:
    """For `check --ids`: what is wrong with the ids of a table, in words."""
    return _own(frame.select(col(quoted(id)).alias("id")), name)[0]
