"""Blocks on several threads, one BLAS thread each, and the memory that threads keep."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")


@cache
def blas() -> ThreadpoolController:
    """The BLAS libraries of this process, looked up once: looking costs a millisecond.

    Used as `with blas().limit(limits=1)`: on tall thin products two BLAS threads were two to nine
    times slower than one, and we have blocks to spread over the cores instead.
    """
    return ThreadpoolController()


def cores(threads: int | None = None) -> int:
    """As many threads as wanted. Default: one per core."""
    return threads or os.cpu_count() or 1


def ordered(
    work: Callable[[T], R],
    items: Iterable[T],
    threads: int | None = None,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[R]:
    """`work` on every item, results in order, few items in flight.

    pool: for who calls this often; new threads have no memory yet, and fresh pages cost a lot.
    Every thread keeps some of what it freed, too, which `give_back` does not get.
    """
    threads = cores(threads)
    with blas().limit(limits=1, user_api="blas"):
        if threads == 1 or (isinstance(items, Sequence) and len(items) < 2):
            yield from map(work, items)
            return
        waiting: deque[Future[R]] = deque()
        with nullcontext(pool) if pool is not None else ThreadPoolExecutor(threads) as own:
            try:
                for item in items:
                    waiting.append(own.submit(work, item))
                    if len(waiting) > 2 * threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def give_back() -> None:
    """glibc keeps freed pieces of some MB for later, in every thread: hundreds of MiB in all."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    """Nothing where the C library is another one."""
    trim: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
    return trim
