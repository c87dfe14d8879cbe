"""Segments and weights on Spark: every table as the embedded engine writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from tests.e2e.test_segments import segmented
from tests.spark.test_runs import Lake

PLACES = ("out", "local")


@pytest.fixture
def lake(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lake:
    monkeypatch.chdir(tmp_path)
    write_deltalake("scores", segmented(weights=True))
    lake = Lake(tmp_path, capsys)
    lake.tree["input"] |= {"segments": ["region", "late"], "weight": "w", "weight_unit": 0.5}
    lake.tree["engine"]["driver_budget"] = 0  # every pass is a job
    lake.tree["reconcile"]["max_rounds"] = 3
    return lake


@pytest.mark.parametrize("read", ["direct", pytest.param("spark", marks=pytest.mark.slow)])
def test_the_same_as_the_embedded_run(lake: Lake, read: str) -> None:
    lake.tree["engine"]["read"] = read
    told = lake.redcal("run", "--json")
    assert told.code == 3, told.err
    lake.tree["output"]["table"] = "local/rows"
    local = lake.redcal("run", "--json", "--engine", "local")
    assert local.code == 3, local.err
    for name in ("history", "patches"):
        one, two = (lake.table(f"{at}/rows_{name}").drop_columns(["run_id"]) for at in PLACES)
        assert sorted(map(str, one.to_pylist())) == sorted(map(str, two.to_pylist()))
    rows = [lake.table(f"{at}/rows_runs").to_pylist()[-1] for at in PLACES]
    for name in ("audits", "certificate", "model", "fit_rows", "holdout_rows"):
        assert rows[0][name] == rows[1][name], name
    assert json.loads(rows[0]["audits"])["holdout"]["after"]["segments"]
    quality = [
        sorted(
            str({k: m[k] for k in m if k not in ("run_id", "measured_at")})
            for m in lake.table(f"{at}/rows_metrics").to_pylist()
            if m["kind"] == "quality" or m["name"] in ("fit_weight", "weightless_rows")
        )
        for at in PLACES
    ]
    assert quality[0] == quality[1]
