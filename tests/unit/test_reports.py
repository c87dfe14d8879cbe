"""How far jobs are: what tasks report, what the driver makes of it, and what people see."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from redcal_spark.backends.spark import reports
from redcal_spark.backends.spark.reports import CountedCells, CountedRows
from redcal_spark.cli.streams import Screen
from redcal_spark.cli.terminal import Terminal

BATCHES = [pa.record_batch({"id": list(range(n))}) for n in (3, 4, 5)]


def test_a_task_reports_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads, and at its end; what it reads is as without."""
    monkeypatch.setattr(reports, "EVERY", 0.0)
    seen = []
    for batch in CountedRows(None, str(tmp_path))(BATCHES):
        seen.append((batch.num_rows, reports.done(str(tmp_path))))
    assert seen == [(3, 0), (4, 3), (5, 7)]
    assert reports.done(str(tmp_path)) == 12
    cells = [("fit", memoryview(b"abc")), ("holdout", memoryview(b"de"))]
    assert list(CountedCells(lambda _: iter(cells), str(tmp_path))([])) == cells
    assert reports.done(str(tmp_path)) == 12 + 5
    (tmp_path / "half-written").write_text("")
    assert reports.done(str(tmp_path)) == 17


def test_a_report_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    assert list(CountedRows(None, str(tmp_path / "gone"))(BATCHES)) == BATCHES


def test_a_terminal_shows_rows_and_passes() -> None:
    told, shown = Terminal(screen=Screen()), io.StringIO()
    told.console = Console(file=shown, force_terminal=True, width=120)
    told.live = True
    told.phase("scan", 1_000)
    told.advance(400)
    told.done()
    told.phase("fit")
    told.passing("residuals", 420_000_000, 840_000_000)
    told.done()
    assert "400 of 1,000 rows" in shown.getvalue()
    assert "reconciling, residuals 50% of 840 MB" in shown.getvalue()


class Lines(logging.Handler):
    """Each message once, whatever else listens."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    log, heard = logging.getLogger("redcal_spark"), Lines()
    monkeypatch.setattr(log, "level", logging.INFO)
    log.addHandler(heard)
    yield heard.messages
    log.removeHandler(heard)


def test_without_a_terminal_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("redcal_spark.cli.terminal.time.monotonic", lambda: clock[0])
    told = Terminal(screen=Screen())
    assert not told.live
    told.phase("scan", 10_000)
    for second in range(1, 66):
        clock[0] = float(second)
        told.advance(100 if second % 2 else 0)  # even when nothing is known to be done
    told.done()
    told.phase("fit")
    for second in range(66, 99):
        clock[0] = float(second)
        told.passing("events", second * 1_000_000, 200_000_000)
    assert lines == [
        "scanning 10,000 rows",
        "scanning: 1,500 of 10,000 rows, 30 s so far",
        "scanning: 3,000 of 10,000 rows, 60 s so far",
        "reconciling",
        "reconciling: counting events 48% of 200 MB, 30 s so far",
    ]
