"""SIGTERM and SIGINT as a request to end, for work that has no end of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """An event that the first signal sets. The second one does what it always did."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield stop
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def handle(number: int, frame: Any) -> None:
        stop.set()
        restore()

    for number in SIGNALS:
        before[number] = signal.signal(number, handle)
    try:
        yield stop
    finally:
        restore()
