"""The engines under contract: rows in a given layout, and a fit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from redcal_spark import ReconciledPair
from redcal_spark.core.patches import Patch
from redcal_spark.model.fit import fit_scanned
from tests.contract.cases import Expected, Layout, part_of, same_rows
from tests.contract.cases import Scratch as ScratchOf
from tests.helpers import log_of, quietly, reconciler
from tests.oracle import Problem


class Backend(Protocol):
    def rows(self, table: pa.Table, partitions: int, layout: Layout) -> Any:
        """The table in this many parts."""
        ...

    def fit(self, problem: Problem, rows: Any, driver_budget: int) -> ReconciledPair: ...

    def apply(self, pair: ReconciledPair, rows: Any) -> pa.Table: ...


class Local:
    """Parts are batches."""

    def rows(self, table: pa.Table, partitions: int, layout: Layout) -> pa.Table:
        part = part_of(layout, len(table), partitions)
        found = [table.filter(pa.array(part == number)) for number in range(partitions)]
        return pa.concat_tables(found)

    def fit(self, problem: Problem, rows: Any, driver_budget: int) -> ReconciledPair:
        with quietly():
            return reconciler(problem, id="id").fit(rows)

    def apply(self, pair: ReconciledPair, rows: Any) -> pa.Table:
        with quietly():
            table: pa.Table = pair.apply(rows)
        return table


_sent: dict[int, Any] = {}  # keys by the number of partitions


@dataclass
class Spark:
    """Parts are partitions, some of them empty. scratch_of: who writes scratch."""

    session: Any
    scratch: str
    scratch_of: ScratchOf = "files"

    def rows(self, table: pa.Table, partitions: int, layout: Layout) -> Any:
        keys = self._keys(partitions)
        part = keys[part_of(layout, len(table), partitions)]
        frame = self.session.createDataFrame(table.append_column("part", pa.array(part)))
        return frame.repartition(partitions, "part").drop("part")

    def _keys(self, partitions: int) -> Any:
        """Keys that Spark's hash sends to partition 0, 1, ... in this order; it is a fixed one."""
        if partitions not in _sent:
            ids = self.session.range(0, 20 * partitions, 1, 1)
            sent = ids.selectExpr("id", f"pmod(hash(id), {partitions}) as part").toArrow()
            found = dict(zip(sent["part"].to_pylist(), sent["id"].to_pylist(), strict=True))
            _sent[partitions] = np.array([found[number] for number in range(partitions)])
        return _sent[partitions]

    def fit(self, problem: Problem, rows: Any, driver_budget: int) -> ReconciledPair:
        options: dict[str, Any] = {"driver_budget": driver_budget, "scratch": self.scratch}
        with quietly(), pytest.MonkeyPatch.context() as patch:
            if self.scratch_of == "rows":
                from redcal_spark.backends.spark.scratch import Scratch

                patch.setattr(Scratch, "direct", False)
            pair = reconciler(problem, id="id", **options).fit(rows)
        assert os.listdir(self.scratch) == []
        return pair

    def apply(self, pair: ReconciledPair, rows: Any) -> pa.Table:
        table: pa.Table = pair.apply(rows).toArrow()
        return table


@dataclass
class SparkFiles:
    """Parts are files, some of them without rows, which the tasks of a scan read themselves."""

    session: Any
    scratch: str
    folder: Path
    delta: bool
    scratch_of: ScratchOf = "files"
    log: Sequence[Patch] = ()  # from which fits go on
    passes: list[str] = field(default_factory=list)  # of the last fit, by their names

    def rows(self, table: pa.Table, partitions: int, layout: Layout) -> str:
        part = part_of(layout, len(table), partitions)
        name = str(self.folder / "rows")
        for number in range(partitions):
            rows = table.filter(pa.array(part == number))
            if self.delta:
                write_deltalake(name, rows, mode="append")
            else:
                Path(name).mkdir(exist_ok=True)
                pq.write_table(rows, Path(name, f"{number}.parquet"), row_group_size=97)
        return name

    def fit(self, problem: Problem, rows: Any, driver_budget: int) -> ReconciledPair:
        from redcal_spark.backends.spark.backend import SparkBackend

        work = SparkBackend(self.session, self.scratch, driver_budget, read="direct")
        asked = reconciler(problem, id="id").problem
        with pytest.MonkeyPatch.context() as patch:
            if self.scratch_of == "rows":
                from redcal_spark.backends.spark.scratch import Scratch

                patch.setattr(Scratch, "direct", False)
            return self._fitted(work, asked, rows)

    def _fitted(self, work: Any, asked: Any, rows: Any) -> ReconciledPair:
        scan = work.scan(work.store.open(rows), asked, None, lambda rows: None)
        try:
            with quietly():
                return fit_scanned(asked, scan, self.log)
        finally:
            scan.close()
            self.passes = [made.name for made in work.counters.passes]
            assert os.listdir(self.scratch) == []

    def apply(self, pair: ReconciledPair, rows: Any) -> pa.Table:
        reader = self.session.read.format("delta" if self.delta else "parquet")
        table: pa.Table = pair.apply(reader.load(rows)).toArrow()
        return table


def check(
    backend: Backend,
    problem: Problem,
    wanted: Expected,
    rows: Any,
    driver_budget: int,
    applied: bool = True,
) -> None:
    """The same log, field by field, the same end, and the same rows, bit by bit.

    applied: whether to look at the rows, too; they follow from the log and the input's rows.
    """
    pair = backend.fit(problem, rows, driver_budget)
    assert log_of(pair) == log_of(wanted.pair)
    assert pair.status == wanted.pair.status
    assert pair.zero_calibrations == wanted.pair.zero_calibrations
    assert (pair.rows, pair.resolved) == (wanted.pair.rows, wanted.pair.resolved)
    if applied:
        same_rows(backend.apply(pair, rows), wanted.rows)
