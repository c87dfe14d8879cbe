"""Holdout rows, new rows and changed rows of Spark DataFrames: as of rows in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from redcal_spark import Reconciler
from redcal_spark.errors import UsageError
from tests.helpers import refused


def test_as_in_memory(spark: Any, scratch: str) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 2_000)
    one, two = np.clip(0.3 + 0.4 * y + rng.normal(0, 0.25, (2, 2_000)), 0, 1)
    rows = pd.DataFrame({"id": range(2_000), "model_1": one, "model_2": two, "label": y})
    rows["late"] = rng.random(2_000) < 0.3
    frame = spark.createDataFrame(rows)
    given: dict[str, Any] = {"losses": {"lend": [[0, 5], [1, 0]]}, "alpha": 0.01, "eta": 0.02}
    made = Reconciler(**given, id="id", scratch=scratch)
    for holdout in ("late", 0.3):
        there, here = made.fit(frame, holdout=holdout), made.fit(rows, holdout=holdout)
        assert there.log == here.log and there.certificate == here.certificate
        assert there.history == here.history and str(there.summary()) == str(here.summary())
    seen, known = there.evaluate(frame, scratch=scratch), here.evaluate(rows)
    assert seen.certificate == known.certificate and seen.history == known.history
    changed = there.changes(frame).toPandas().sort_values("id").reset_index(drop=True)
    assert changed["id"].tolist() == here.changes(rows)["id"].tolist()
    words = refused(UsageError, lambda: made.fit(frame, holdout=[True, False]))
    assert "a mask needs rows at hand" in words
    nameless = Reconciler(**given, scratch=scratch)
    with pytest.raises(UsageError, match="drawn by a hash of the id"):
        nameless.fit(frame, holdout=0.3)
