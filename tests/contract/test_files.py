"""The same contract where Spark's tasks read the files of a table themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import backends
from tests.contract import cases
from tests.contract.cases import Case
from tests.contract.engines import SparkFiles
from tests.contract.test_contract import run

FEW = cases.cover([case for case in cases.ALL if case.partitions < 64])
KINDS = ("parquet",) if backends.name() == "cluster" else ("parquet", "delta")  # it has no Delta
QUICK = {0, 3} if "delta" in KINDS else {0}  # one of each kind of table


def chosen() -> Iterator[Any]:
    yield pytest.param(
        Case("redcal", 10, 1, 3, "shuffled", "small", "files", 3),
        "parquet",
        id="spark-parquet-three-models",
        marks=pytest.mark.spark,
    )
    for number, case in enumerate(FEW):
        kind = KINDS[number % len(KINDS)]
        marks = [pytest.mark.spark, *([] if number in QUICK else [pytest.mark.slow])]
        yield pytest.param(case, kind, id=f"spark-{kind}-{case}", marks=marks)


@pytest.mark.parametrize(("case", "kind"), list(chosen()))
def test_files(case: Case, kind: str, spark: Any, scratch: str, tmp_path: Path) -> None:
    run(SparkFiles(spark, scratch, tmp_path, kind == "delta"), case)
