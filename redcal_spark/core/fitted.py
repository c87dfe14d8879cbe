"""What was fitted: the patch log, and all that a replay or a certificate must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from redcal_spark.core.columns import Columns, Layout
from redcal_spark.core.kernel import Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.output_columns import Extension, OutputNames
from redcal_spark.core.parameters import Parameters, Resolved, Status
from redcal_spark.core.patches import PatchLog
from redcal_spark.core.problem import rules_of
from redcal_spark.core.reading import BadRows
from redcal_spark.core.roles import UNKNOWN, Roles
from redcal_spark.core.serving import Serving
from redcal_spark.core.tuned import Tuned
from redcal_spark.core.weights import Weighed, Weights
from redcal_spark.errors import InputError


@dataclass(frozen=True, eq=False)
class Fitted(Weighed):
    """The data of a reconciled pair. `ReconciledPair` is its face for users.

    tuned: how eta and beta were chosen, if they were `auto`: the parameters have what they became.
    """

    parameters: Parameters
    resolved: Resolved
    losses: LossFamily
    columns: Columns
    binary: bool
    n_classes: int
    rows: int
    status: Status
    log: PatchLog
    zero_calibrations: int
    tuned: Tuned | None = None
    weights: Weights | None = None  # of the fitting rows, whose sum is `rows`
    frame_columns: tuple[str, ...] | None = None  # of frames that were fitted; in no file

    @property
    def rules(self) -> Rules:
        return rules_of(self.parameters, self.losses, self.binary, self.columns.n_models)

    @cached_property
    def serving(self) -> Serving:
        """The log made ready for few rows at a time."""
        return Serving(self.rules, self.log, self.n_classes)

    def check_layout(self, layout: Layout) -> None:
        if layout.binary != self.binary:
            form = "one column P(class 1)" if self.binary else f"arrays of {self.n_classes} classes"
            raise InputError(f"the pair was fitted on scores given as {form}; these are not")

    def apply_batch(
        self,
        batch: pa.RecordBatch,
        layout: Layout,
        names: OutputNames | None = None,
        problems: BadRows | None = None,
        start: int = 0,
        skip: bool = False,
        roles: Roles = UNKNOWN,
    ) -> pa.RecordBatch:
        """One batch with its new columns. Bad rows are added to `problems` and pass through."""
        names = names or OutputNames(self.columns, self.losses)
        problems = BadRows() if problems is None else problems
        extension = Extension(layout, self.rules, self.log, names, skip, roles)
        return extension.rows(batch, problems, start)
