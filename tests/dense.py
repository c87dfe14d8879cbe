"""From the stored form of the real predictions to dense vectors; needs numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]


def vectors(column: Any) -> npt.NDArray[Any]:
    """A list column of equal lengths, as a matrix."""
    rows = column.combine_chunks()
    return np.asarray(rows.flatten()).reshape(len(rows), -1)


def from_top5(
    table: Any,
    model: str,
    rows: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    renormalised: bool = True,
) -> Scores:
    """ImageNet's five largest of 1,000 as vectors over some classes.

    renormalised: they sum to 1, as if there were no other classes.
    """
    cls = vectors(table[f"{model}_cls"])[rows].astype(np.intp)
    prob = vectors(table[f"{model}_prob"])[rows].astype(np.float64)
    rest = np.maximum(1 - prob.sum(axis=1), 1e-6) / 995
    dense = np.repeat(rest[:, None], 1_000, axis=1)
    np.put_along_axis(dense, cls, prob, axis=1)
    dense /= dense.sum(axis=1, keepdims=True)
    part = dense[:, classes]
    if not renormalised:
        return np.ascontiguousarray(part)
    return np.asarray(part / part.sum(axis=1, keepdims=True))
