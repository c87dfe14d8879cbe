"""Unit tests never start or use a JVM."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_spark_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have left a Spark session in this process, and `auto` would take it."""
    monkeypatch.setattr("redcal_spark.cli.open_job._in_spark", lambda: False)
