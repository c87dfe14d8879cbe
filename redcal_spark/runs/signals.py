"""SIGTERM and SIGINT: the end of a run, told in words; or a request to end, for streams."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OF_PY4J = ("KeyboardInterrupt while sending command", "Exception while sending command")
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(KeyboardInterrupt):
    """SIGTERM: a scheduler, a container or `kill` wants the process to end."""


def in_words(err: BaseException) -> str:
    """Why a run ended that someone interrupted, for its row in the ledger."""
    return "ended by SIGTERM" if isinstance(err, Terminated) else "interrupted by Ctrl-C (SIGINT)"


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """The first SIGTERM is raised, so that the run can say how it ended; a second one ends it."""
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return

    def handle(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, handle)
    root = logging.getLogger()
    root.addFilter(_no_interrupts)
    try:
        yield
    finally:
        root.removeFilter(_no_interrupts)
        signal.signal(signal.SIGTERM, before)


def _no_interrupts(record: logging.LogRecord) -> bool:
    """py4j logs an interrupt, and a JVM that it ended, with tracebacks: no more than we say."""
    return not str(record.msg).startswith(OF_PY4J)


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
