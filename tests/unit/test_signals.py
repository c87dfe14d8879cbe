"""The first signal asks, the second one insists."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from redcal_spark.runs.signals import SIGNALS, asked_to_stop


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_asks_and_the_second_does_what_it_always_did(number: signal.Signals) -> None:
    seen = []
    before = signal.signal(number, lambda number, frame: seen.append(number))
    try:
        with asked_to_stop() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            assert stop.wait(5)
            assert seen == []
            os.kill(os.getpid(), number)
            assert seen == [number]
        with asked_to_stop() as stop:
            pass
        os.kill(os.getpid(), number)
        assert seen == [number, number]
        assert not stop.is_set()
    finally:
        signal.signal(number, before)


def test_other_threads_get_no_signals() -> None:
    found = []

    def run() -> None:
        with asked_to_stop() as stop:
            found.append(stop.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False]
