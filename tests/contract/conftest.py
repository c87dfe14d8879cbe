"""The backends of this process: the local engine, and Spark in the form that was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.engines import Backend, Local, Spark


@pytest.fixture(
    params=[
        pytest.param(Local, id="local"),
        pytest.param(Spark, id="spark", marks=pytest.mark.spark),
    ]
)
def backend(request: pytest.FixtureRequest, scratch: str) -> Backend:
    if request.param is Local:
        return Local()
    spark: Any = request.getfixturevalue("spark")
    return Spark(spark, scratch)
