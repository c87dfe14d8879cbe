"""Trying again what failed because another writer was quicker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TRIES = 20  # of a write that lost a race for the next version


def retried(
    work: Callable[[], T],
    passes: Callable[[Exception], bool],
    *,
    pause: float = 0.0,
    tries: int = TRIES,
) -> T:
    """What the work gives. passes: whether an error may be gone the next time.

    pause: seconds to wait at most, at random, so that two writers do not meet again.
    """
    for left in reversed(range(tries)):
        try:
            return work()
        except Exception as err:
            if not left or not passes(err):
                raise
            time.sleep(random.uniform(0, pause))
    raise AssertionError
