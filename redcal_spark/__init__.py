"""Reconcile two models that lead to different decisions: ReDCal, exactly, on a laptop or on Spark.

from redcal_spark import Reconciler

pair = Reconciler(losses={"triage": [[0, 5, 9], [1, 0, 0]]}, alpha=0.01, eta=0.01).fit(p1, p2, y)
new1, new2 = pair.apply(p1, p2)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from redcal_spark.model.views import shown_by

if TYPE_CHECKING:
    from redcal_spark.model.pair import ReconciledPair
    from redcal_spark.model.reconciler import Reconciler

__version__ = "0.2.0"
__all__ = ["ReconciledPair", "Reconciler", "__version__"]

# Pairs are shown by the report, which stands above them; it is loaded when something is shown.
shown_by(lambda: importlib.import_module("redcal_spark.report.notebook"))


def __getattr__(name: str) -> Any:
    # Lazy: Spark workers import the package to find the kernel, and need numpy and pyarrow only.
    if name in (places := {"Reconciler": "model.reconciler", "ReconciledPair": "model.pair"}):
        return getattr(importlib.import_module(f"redcal_spark.{places[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
