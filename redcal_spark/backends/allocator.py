"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """glibc keeps freed pieces of some MB for later, in every thread: hundreds of MiB in all."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    """Nothing where the C library is another one."""
    trim: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
    return trim
