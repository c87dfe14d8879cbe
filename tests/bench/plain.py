"""ReDCal as one would write it in numpy: float64, everything looked at anew after every patch.

The yardstick of the benchmark. No cleverness, but no carelessness either: whole-array products,
argmin, bincount and masks, nothing looked at twice between two patches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.fixed_point import Floats

Look = tuple[list[npt.NDArray[np.intp]], npt.NDArray[np.intp]]


def redcal(
    scores: tuple[Floats, Floats],
    labels: Floats,
    loss: Floats,
    *,
    alpha: float,
    eta: float,
    beta: float,
    m: int,
) -> Iterator[int]:
    """Patch copies of the scores to the end; after every patch yields how many rows it touched.

    labels: one-hot. loss: K x d, in [0, 1]. Patches are multiples of 1 / m.
    """
    n, k = len(labels), len(loss)
    f = [x.copy() for x in scores]
    actions, events = look(f, loss, alpha)
    while True:
        counts = np.bincount(events, minlength=k * k + 1)[:-1]
        largest = int(counts.argmax())
        if counts[largest] < eta * n:
            return
        inside = events == largest
        contrast = loss[largest // k] - loss[largest % k]
        residuals = [(labels[inside] - x[inside]).sum(axis=0) for x in f]
        i = 0 if abs(residuals[0] @ contrast) >= abs(residuals[1] @ contrast) else 1
        rows, residual = inside, residuals[i]
        while True:
            touched = int(np.count_nonzero(rows))
            phi = np.rint(residual / touched * m) / m
            if not phi.any():
                break
            f[i][rows] = np.clip(f[i][rows] + phi, 0.0, 1.0)
            actions, events = look(f, loss, alpha)
            yield touched
            cells = [inside & (actions[i] == a) for a in range(k)]
            sums = np.array([(labels[cell] - f[i][cell]).sum(axis=0) for cell in cells])
            norms = (sums * sums).sum(axis=1)
            worst = int(norms.argmax())
            if norms[worst] <= (beta * n) ** 2:
                break
            rows, residual = cells[worst], sums[worst]


def look(f: list[Floats], loss: Floats, alpha: float) -> Look:
    """Best responses of both models, and the event of every row: a1 * K + a2, or K * K."""
    k, every = len(loss), np.arange(len(f[0]))
    costs: list[Any] = [x @ loss.T for x in f]
    a1, a2 = (c.argmin(axis=1) for c in costs)
    sure = costs[0][every, a2] - costs[0][every, a1] > alpha
    sure |= costs[1][every, a1] - costs[1][every, a2] > alpha
    return [a1, a2], np.where(sure & (a1 != a2), a1 * k + a2, k * k)
