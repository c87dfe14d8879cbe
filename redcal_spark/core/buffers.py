"""Memory that is used again: fresh pages cost more than the arithmetic done in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt


class Buffers:
    """Arrays by name, each in the place of the last one of that name.

    An array belongs to whoever asked for it until that name is asked for again. One piece of code
    at a time holds a `Buffers`, and hands it on by an argument: who is handed one says in its
    docstring if what it returns lies there. Whoever wants a name of its own borrows another.
    """

    _free: ClassVar[list[Buffers]] = []  # a list's pop and append are atomic: no lock

    def __init__(self) -> None:
        self._held: dict[str, npt.NDArray[np.uint8]] = {}

    @classmethod
    @contextmanager
    def borrowed(cls) -> Iterator[Buffers]:
        """For the chunks of one call, out of which no array of it may get.

        It is kept for later calls: use it for small arrays.
        """
        try:
            buffers = cls._free.pop()
        except IndexError:
            buffers = cls()
        yield buffers
        cls._free.append(buffers)

    def array(self, name: str, shape: tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array with anything in it."""
        size = math.prod(shape) * np.dtype(kind).itemsize
        held = self._held.get(name)
        if held is None or len(held) < size:
            self._held[name] = held = np.empty(size, np.uint8)
        return held[:size].view(kind).reshape(shape)
