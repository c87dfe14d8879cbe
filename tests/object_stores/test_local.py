"""The local engine on a real S3 server: as on folders of this machine."""

from __future__ import annotations

import pytest

from tests.e2e.work import configuration, scores, write
from tests.object_stores.conftest import Lake


def test_a_run_and_a_run_again(lake: Lake) -> None:
    first = lake.ran()
    assert first["status"] == "converged"
    again = lake.ran()
    assert again["run_id"] == first["run_id"]
    assert {name.split("/")[1] for name in lake.names("out/")} == {
        "rows",
        "rows_patches",
        "rows_history",
        "rows_metrics",
        "rows_runs",
        "rows_report.html",
    }
    assert not list(lake.folder.glob("s3*"))
