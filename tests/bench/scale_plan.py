"""What `make bench-scale` measures, in the order of importance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from redcal_spark.config.schema import Read
from tests.bench.scale_data import Rows
from tests.bench.tables import TWO

Kind = Literal["fit", "apply", "worst", "driver"]
Engine = Literal["local", "spark"]

ALPHA = 1e-4
MOST_PATCHES = 200  # of a fit; more would measure more of the same
WORST_STEPS = 40
CORES = 2
MODELS, WEIGHTS = (2, 4, 8), (0, 5)


@dataclass(frozen=True)
class Case:
    """One measurement, in a process of its own. `series` says which table of results it is for.

    read: how Spark reads: by its tasks, or through the DataFrame.
    """

    kind: Kind
    engine: Engine
    rows: Rows
    count: int
    repeats: int = 1
    losses: int = 1
    series: str = ""
    cores: int = CORES  # of Spark's session
    read: Read = "auto"

    @property
    def name(self) -> str:
        rows, many = self.rows, f"{self.losses} losses" if self.losses > 1 else "1 loss"
        others = f", {rows.models} models" if rows.models > 2 else ""
        others += f", {self.weights}" if rows.weights else ""
        others += "" if self.cores == CORES else f", {self.cores} core"
        return (
            f"{self.series}: {self.kind} {self.how} {self.count:,} rows, d = {rows.classes}, "
            f"K = {rows.actions}, {many}, {rows.disagreement:.0%} disagree{others}"
        )

    @property
    def how(self) -> str:
        """The engine, and where it was chosen the way of reading."""
        return self.engine + {"auto": "", "direct": " direct", "spark": " DataFrame"}[self.read]

    @property
    def problem(self) -> tuple[str | None, int, str]:
        """What decides about the patches: all else must not."""
        return self.table, self.losses, self.kind

    @property
    def weights(self) -> str:
        return f"weights 1 to {self.rows.weights}" if self.rows.weights else "no weights"

    @property
    def columns(self) -> dict[str, Any]:
        """Of models and weights, as the section `input` names them."""
        names = [name for name in self.rows.schema.names if name.startswith("scores_")]
        models = TWO if self.rows.models == 2 else {"models": {name: name for name in names}}
        return models | ({"weight": "weight"} if self.rows.weights else {})

    @property
    def table(self) -> str | None:
        """The folder of its table; tables with the same rows are the same."""
        if self.kind == "driver":
            return None
        told = {**asdict(self.rows), "rows": self.count}
        return "_".join(f"{name}-{value}" for name, value in told.items())

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Case:
        return cls(**told | {"rows": Rows(**told["rows"])})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the fit: such that there are some rounds, and about the same at every size.

        beta: `auto` would be finer for more rows and so ask for more patches; here it is fixed, at
        what it is for a million.
        """
        eta = self.rows.disagreement / (4 * self.rows.actions)
        beta = float(f"{(eta / 4e6) ** 0.5:.2g}")
        given: dict[str, Any] = {"alpha": ALPHA, "eta": eta, "beta": beta}
        if self.kind == "worst":
            calibration = {"algorithm": "dc_then_redcal", "beta": 1e-7, "max_steps": WORST_STEPS}
            return given | calibration
        return given | {"max_steps": MOST_PATCHES}


@dataclass(frozen=True)
class Sizes:
    fits: tuple[tuple[int, int], ...] = ((1_000_000, 3), (10_000_000, 2), (100_000_000, 1))
    applied: tuple[tuple[int, int], ...] = ((1_000_000, 3), (10_000_000, 1))
    worst: tuple[int, ...] = (10_000_000, 1_000_000)
    score_bytes: int = 10**9  # of tables that differ in d
    many: int = 4_000_000  # rows of tables that differ in disagreement, K or weights
    few: int = 1_000_000  # rows where losses differ
    some: int = 2_000_000  # rows where models differ
    repeats: int = 2
    losses: tuple[int, ...] = (1, 10, 100)
    classes: tuple[int, ...] = (2, 10, 100, 1_000)


FULL = Sizes()
QUICK = Sizes(
    fits=((20_000, 1), (40_000, 1), (80_000, 1)),
    applied=((20_000, 1), (40_000, 1)),
    worst=(40_000, 20_000),
    score_bytes=4 * 10**6,
    many=40_000,
    few=20_000,
    some=20_000,
    repeats=1,
    losses=(1, 3),
    classes=(2, 10, 100),
)

BASE = Rows()


def plan(sizes: Sizes) -> list[Case]:
    return [
        *_rows(sizes),
        *_worst(sizes),
        *_applied(sizes),
        *_columns(sizes),
        *_series(sizes),
    ]


def _rows(sizes: Sizes) -> Iterator[Case]:
    """All of one table, one after the other: the largest is not made twice, nor kept for long."""
    for count, repeats in sizes.fits:
        case = Case("fit", "local", BASE, count, repeats, series="rows")
        yield case
        yield replace(case, engine="spark", read="direct")
        yield replace(case, engine="spark", read="spark")


def _worst(sizes: Sizes) -> Iterator[Case]:
    yield Case("driver", "spark", BASE, 0, 3, series="driver")
    for count in sizes.worst:
        yield Case("worst", "spark", BASE, count, series="worst")
    # what is said of more cores rests on this: that one of them takes twice the time
    yield Case("worst", "spark", BASE, sizes.worst[-1], series="worst", cores=1)


def _applied(sizes: Sizes) -> Iterator[Case]:
    for count, repeats in sizes.applied:
        for engine in ("local", "spark"):
            yield Case("apply", engine, BASE, count, repeats, series="apply")


def _columns(sizes: Sizes) -> Iterator[Case]:
    """Tables with more columns of the same rows."""
    tables = [("models", replace(BASE, models=models), sizes.some) for models in MODELS]
    tables += [("weights", replace(BASE, weights=weights), sizes.many) for weights in WEIGHTS]
    for series, rows, count in tables:
        case = Case("fit", "local", rows, count, sizes.repeats, series=series)
        yield case
        yield replace(case, engine="spark", read="direct")


def _series(sizes: Sizes) -> Iterator[Case]:
    for d in sizes.classes:
        rows = replace(BASE, classes=d)
        count = sizes.score_bytes // rows.row_bytes
        yield Case("fit", "local", rows, count, sizes.repeats, series="d")
    for losses in sizes.losses:
        yield Case("fit", "local", BASE, sizes.few, 1, losses, "losses")
    for share in (0.01, 0.1, 0.5):
        # models with errors more alike cannot disagree on half of the rows
        rows = replace(BASE, disagreement=share, correlation=0.5)
        yield Case("fit", "local", rows, sizes.many, sizes.repeats, series="disagreement")
    for actions in (2, 10, 50):
        rows = replace(BASE, actions=actions)
        yield Case("fit", "local", rows, sizes.many, sizes.repeats, series="K")
