"""The one scan on this machine: validate every row, count events, keep the active rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import pyarrow as pa

from redcal_spark.backends.threads import ordered
from redcal_spark.core.columns import Layout, plan
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import BatchGroup, ScanResult
from redcal_spark.core.splits import Split
from redcal_spark.errors import InputError


def gather_pieces(
    problem: Problem,
    pieces: Iterable[BatchGroup],
    schema: pa.Schema,
    where: str,
    split: Split | None = None,
    progress: Callable[[int], Any] | None = None,
    threads: int | None = None,
) -> tuple[ScanResult, Layout]:
    """One pass over the rows; memory grows with the active ones only.

    Threads read several pieces at once. Whether the rows can be fitted is for the problem to check.
    """
    first, pieces = _peeked(pieces)
    layout = plan(schema, problem.columns, where, problem.n_classes, first)
    if first is None:
        raise InputError(f"{where} has no rows")
    scanner = problem.scanner(layout, split)
    gathered = ScanResult.nothing(scanner.rules, layout.n_classes)
    for part in ordered(scanner.all, pieces, threads):
        gathered.merge(part)
        if progress is not None:
            progress(part.rows)
    return gathered, layout


def _peeked(pieces: Iterable[BatchGroup]) -> tuple[pa.RecordBatch | None, Iterable[BatchGroup]]:
    """The first batch that has rows, and the pieces with it still in its place."""
    stream = iter(pieces)
    for piece in stream:
        rows = iter(piece)
        for item in rows:
            if item[1].num_rows:
                return item[1], chain([chain([item], rows)], stream)
    return None, ()
