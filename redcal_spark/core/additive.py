"""Additive statistics: sums over rows that merge field by field, in any order and anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import count, takewhile
from operator import add, sub
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Additive:
    """Sums: numbers, arrays, other statistics, and tuples of these.

    A flag is the same on both sides. What one side has not, None or an empty tuple, is that of the
    other.
    """

    def __add__(self, other: Self) -> Self:
        return self._merged(other, add)

    def __sub__(self, other: Self) -> Self:
        return self._merged(other, sub)

    def _merged(self, other: Self, how: Callable[[Any, Any], Any]) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(*(_merged(getattr(self, n), getattr(other, n), how) for n in names))

    def to_arrays(self, prefix: str = "") -> dict[str, Array]:
        """Every array by its field's name; those of a tuple are numbered."""
        values: dict[str, Any] = {}
        for field in fields(self):
            value, name = getattr(self, field.name), f"{prefix}{field.name}"
            many = enumerate(value) if isinstance(value, tuple) else ()
            values |= {name: value} | {f"{name}.{i}": part for i, part in many}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str = "", **others: Any) -> Self:
        """What `to_arrays` gave, with the fields that are no arrays."""
        values = dict(others)
        for field in (field for field in fields(cls) if field.name not in others):
            name = f"{prefix}{field.name}"
            if str(field.type).startswith("tuple"):
                parts = takewhile(arrays.__contains__, (f"{name}.{i}" for i in count()))
                values[field.name] = tuple(arrays[part] for part in parts)
            else:
                values[field.name] = arrays[name]
        return cls(**values)


def _merged(one: Any, two: Any, how: Callable[[Any, Any], Any]) -> Any:
    if isinstance(one, bool):
        return one
    if isinstance(one, tuple) and one and two:
        return tuple(_merged(a, b, how) for a, b in zip(one, two, strict=True))
    if isinstance(one, tuple) or one is None or two is None:
        return one or two
    return how(one, two)
