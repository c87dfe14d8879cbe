"""`redcal audit` of one column P(1) shows the usual Brier score, and says which one it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark.cli import main

CONFIG = """\
input: {table: scores.parquet, label: y, model_1: a, model_2: b}
losses: {call: {costs: [[0, 1], [1, 0]]}}
reconcile: {alpha: 0.1, eta: 0.5}
output: {table: rows}
"""


def test_of_one_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(CONFIG, encoding="utf-8")
    # (1/16 + 1/16) / 2 and (1/4 + 1/4) / 2
    rows = {"y": [0, 1] * 100, "a": [0.25, 0.75] * 100, "b": [0.5, 0.5] * 100}
    pq.write_table(pa.table(rows), "scores.parquet")
    assert main(["audit", "-c", "c.yaml", "--engine", "local"]) == 0
    [line] = [x for x in capsys.readouterr().out.splitlines() if "Brier" in x]
    assert line.split() == ["Brier", "score", "(f", "-", "y)^2", "0.0625", "0.2500"]
