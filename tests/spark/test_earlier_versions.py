"""Tables of 0.1 on Spark: the next run goes into them, ledger and all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from redcal_spark.cli import main
from tests.compat.test_earlier_versions import CONFIG, HERE, log_today


def test_the_next_run_goes_into_the_same_tables(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(HERE / "0.1", tmp_path / "left")
    monkeypatch.chdir(tmp_path / "left")
    Path("now.yaml").write_text(CONFIG.replace("name: local", "name: spark"), encoding="utf-8")
    run = ["run", "-c", "now.yaml", "--force", "--set", "output.schema=evolve"]
    assert main([*run, "--set", f"engine.scratch={tmp_path}"]) == 0
    capsys.readouterr()
    assert main(["runs", "-c", "now.yaml", "--json"]) == 0
    old, new = map(json.loads, capsys.readouterr().out.splitlines())
    assert main(["log", "-c", "now.yaml", "--json", "--run", new["run_id"]]) == 0
    log = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert log == log_today(Path())
    assert old["run_id"] != new["run_id"]
