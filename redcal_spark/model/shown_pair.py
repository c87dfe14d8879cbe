"""What a pair is like, for people: in a line, a summary, charts, a card in a notebook, a report."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from redcal_spark.certificate.certify import Certificate
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.number_text import plural
from redcal_spark.errors import UsageError
from redcal_spark.model.evidence import Evidence, History
from redcal_spark.model.named_log import NamedLog
from redcal_spark.model.plots import Plots
from redcal_spark.model.summary import Summary
from redcal_spark.model.views import views
from redcal_spark.settings import called_from_python


@dataclass(frozen=True, eq=False, repr=False)
class ShownPair(Fitted):
    """A pair with what is known of it."""

    log: NamedLog
    certificate: Certificate | None = None
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        about = (self.columns, self.losses, self.rows, (self.n_classes, self.binary))
        object.__setattr__(self, "log", NamedLog.of(self.log, *about))
        if self.certificate is not None:
            named = replace(self.certificate, models=self.models)
            object.__setattr__(self, "certificate", named)

    # --- what it is -----------------------------------------------------------------------------

    @property
    def models(self) -> tuple[str, ...]:
        """What the models are called: by their columns, where these tell them apart."""
        return self.columns.shown

    @property
    def history(self) -> History | None:
        """What was measured after every round; None where nobody measured.

        ```python
        pair.history.to_pandas().groupby(["split", "model"])["decision_loss"].last()
        ```
        """
        return None if self.evidence is None else self.evidence.history

    def __repr__(self) -> str:
        return f"<ReconciledPair: {self.headline()}>"

    def headline(self) -> str:
        """The pair in a line."""
        log = self.log
        return (
            f"{' and '.join(self.models)}, {self.parameters.algorithm} {self.status}, "
            f"{plural(len(log), 'patch', 'patches')} in {plural(log.rounds, 'round')} on "
            f"{plural(self.counted, 'row')}"
        )

    def _repr_html_(self) -> str | None:
        return views().html(self)

    def summary(self) -> Summary:
        """What the models were like before and after, on fitting and on holdout rows.

        Printed it is a text; `to_pandas()` and `to_arrow()` give a table.

        ```python
        print(pair.summary())
        pair.summary().to_pandas()
        ```
        """
        audits = self.measured("a summary").audits
        return Summary.of(self.headline(), audits, self.models, self.binary)

    @property
    def plot(self) -> Plots:
        """Charts: `pair.plot.steps()`, `.disagreement()`, `.costs()`, `.patches()`."""
        return Plots(self)

    @called_from_python
    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the report: one HTML file that loads nothing and runs nothing.

        ```python
        pair.report("report.html")
        ```
        """
        views().write_report(self, path)

    def measured(self, purpose: str) -> Evidence:
        """What was measured of the pair. purpose: what needs it, for the message."""
        if self.evidence is None:
            raise UsageError(
                f"{purpose} needs what was measured when the pair was fitted, and this pair's "
                "source does not have it: a file that `redcal export` or an earlier release wrote. "
                "pair.evaluate(data) measures it on labelled rows"
            )
        return self.evidence
