"""`pair.plot`: charts for notebooks, drawn by matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redcal_spark.model.views import views

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Plots:
    """Charts of a pair. Each returns matplotlib's axes, or draws on those that are given.

    They need matplotlib: pip install 'redcal-spark[notebook]'.
    """

    pair: Any

    def steps(self, loss: str | None = None, ax: Axes | None = None) -> Axes:
        """The mean cost of every model's decisions after every round, on every split.

        loss: which one; by default the first. Without losses it is the Brier score.

        ```python
        pair.plot.steps().set_title("cost by patch")
        ```
        """
        axes: Axes = views().steps(self.pair, loss=loss, ax=ax)
        return axes

    def disagreement(self, loss: str | None = None, ax: Axes | None = None) -> Axes:
        """The share of rows with different decisions after every round, on every split.

        ```python
        pair.plot.disagreement()
        ```
        """
        axes: Axes = views().disagreement(self.pair, loss=loss, ax=ax)
        return axes

    def costs(self, loss: str | None = None, ax: Axes | None = None) -> Axes:
        """The mean cost of every model's decisions before and after, on every split.

        ```python
        pair.plot.costs()
        ```
        """
        axes: Axes = views().costs(self.pair, loss=loss, ax=ax)
        return axes

    def patches(self, ax: Axes | None = None) -> Axes:
        """Every patch in its order, as high as it has rows: models upwards and downwards by turns.

        ```python
        pair.plot.patches()
        ```
        """
        axes: Axes = views().patches(self.pair, ax=ax)
        return axes
