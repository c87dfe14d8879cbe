"""Readings: Arrow batches as rows on the grid, with every bad row counted and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.blocks import Block
from redcal_spark.core.columns import Layout
from redcal_spark.core.fixed_point import ONE, Floats, Grid, Ints, Mask, on_grid, to_grid
from redcal_spark.core.number_text import plain, plural
from redcal_spark.core.segments import Coded, coded
from redcal_spark.core.shown_values import value_of
from redcal_spark.core.weights import (
    FINEST,
    NO_MULTIPLE,
    WRONG,
    common_unit,
    finer_unit,
    multiples,
)
from redcal_spark.errors import InputError
from redcal_spark.settings import MAX_CLASSES, setting

SUM_TOLERANCE = ONE // 1_000 + MAX_CLASSES // 2  # 0.001 from 1, and what rounding may add
EXAMPLES = 3
MISSING, NULL = "without scores of model", "with null"  # what is wrong with a row
UNNAMED = "with a label not among"
OUTSIDE, NO_INDEX = "with a value outside [0, 1]", "with a label that is no class index"


@dataclass
class BadRow:
    """unit: of weights that are no multiples of theirs, one that they are multiples of."""

    rows: int = 0
    examples: list[str] = field(default_factory=list)
    unit: Fraction | None = None

    @property
    def way_out(self) -> str:
        if self.unit is None:
            return ""
        if self.unit < FINEST:
            return (
                f"; they have too many digits: round them to three decimals, say, and set "
                f"{setting('weight_unit', 0.001)}"
            )
        return f"; {setting('weight_unit', float(self.unit))} would do"


class BadRows:
    """Bad rows, by column and kind, with the first few of each. Adds up over batches."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[str, str], BadRow] = {}

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def add(
        self,
        column: str,
        kind: str,
        rows: int,
        examples: Sequence[str],
        unit: Fraction | None = None,
    ) -> None:
        problem = self.kinds.setdefault((column, kind), BadRow())
        problem.rows += rows
        problem.examples += examples[: EXAMPLES - len(problem.examples)]
        if unit is not None:
            known = problem.unit
            problem.unit = unit if known is None else common_unit(known, unit)

    def merge(self, other: BadRows) -> None:
        for (column, kind), problem in other.kinds.items():
            self.add(column, kind, problem.rows, problem.examples, problem.unit)

    def to_json(self) -> list[Any]:
        return [
            [column, kind, p.rows, p.examples, None if p.unit is None else str(p.unit)]
            for (column, kind), p in self.kinds.items()
        ]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> BadRows:
        problems = cls()
        for column, kind, rows, examples, unit in data:
            problems.add(column, kind, rows, examples, None if unit is None else Fraction(unit))
        return problems

    def lines(self) -> list[str]:
        return [
            f"column {column!r}: {plural(problem.rows, 'row')} {kind}; "
            f"first: {', '.join(problem.examples)}{problem.way_out}"
            for (column, kind), problem in self.kinds.items()
        ]

    def raise_if_any(self, where: str, advice: str = "") -> None:
        if self.kinds:
            raise InputError(
                "\n  ".join([f"{where} has rows that cannot be used:", *self.lines()]) + advice
            )


@dataclass
class Reading:
    """A batch on the grid. Rows that are not `valid` hold zeros; `labelled` rows have a known y.

    weightless: rows that could be used and count as none.
    """

    block: Block
    valid: Mask
    labelled: Mask
    off_sum: int  # valid rows whose scores do not sum to 1
    segments: tuple[Coded, ...] = ()

    @property
    def usable(self) -> Mask:
        """Rows that can be fitted or held out."""
        usable = self.valid & self.labelled
        return usable if self.block.w is None else usable & (self.block.w > 0)

    @property
    def weightless(self) -> int:
        w = self.block.w
        return 0 if w is None else int(np.count_nonzero(self.valid & self.labelled & (w == 0)))


def read(
    batch: pa.RecordBatch, layout: Layout, problems: BadRows, start: int | None = 0
) -> Reading:
    """A batch as rows on the grid. `start`: the number of its first row, if known, for messages."""
    reader = _Reader(batch, layout, problems, start)
    f = tuple(reader.scores(model) for model in range(1, layout.columns.n_models + 1))
    y, labelled = reader.labels()
    w = reader.weights(labelled)
    segments = () if layout.label is None else layout.columns.segments
    columns = tuple(coded(batch.column(name)) for name in segments)
    s = np.stack([column.codes for column in columns], axis=1) if columns else None
    return Reading(Block(f, y, w, s), reader.valid, labelled, reader.off_sum, columns)


def with_label(batch: pa.RecordBatch, layout: Layout) -> Mask:
    """Rows with a label that can be used, and that count. Who fits on them tells of bad ones."""
    reader = _Reader(batch, layout, BadRows(), None)
    _, labelled = reader.labels()
    w = reader.weights(labelled)
    usable = reader.valid & labelled
    return usable if w is None else usable & (w > 0)


class _Reader:
    def __init__(self, batch: pa.RecordBatch, layout: Layout, problems: BadRows, start: int | None):
        self.batch, self.layout, self.problems, self.start = batch, layout, problems, start
        self.n, self.d = batch.num_rows, layout.n_classes
        self.valid = np.ones(self.n, np.bool_)
        self._off = np.zeros(self.n, np.bool_)
        self._absent: Mask | None = None  # rows whose missing scores are told already, or skipped
        id = layout.columns.id
        if id is not None and id in batch.schema.names:
            self._reject(id, NULL, _nulls(batch.column(id)))

    @property
    def off_sum(self) -> int:
        return int(np.count_nonzero(self._off & self.valid))

    def scores(self, model: int) -> Grid:
        names, form = self.layout.columns.of_model(model), self.layout.forms[model - 1]
        self._missing(model, names)
        grid = np.empty((self.n, self.d), np.int32)
        if form == "binary":
            self._quantise(names[0], self._numbers(names[0])[:, None], grid[:, 1:])
            np.subtract(ONE, grid[:, 1], out=grid[:, 0])
            return grid
        if form == "array":
            self._off |= self._quantise(names[0], self._vectors(names[0], self.valid), grid)
            return grid
        sums = np.zeros(self.n)
        for j, name in enumerate(names):
            self._quantise(name, self._numbers(name)[:, None], grid[:, j : j + 1])
            sums += grid[:, j]
        self._off |= np.abs(sums - ONE) > SUM_TOLERANCE
        return grid

    def _missing(self, model: int, names: Sequence[str]) -> None:
        """Rows without any score of a model: told with its name, where it has one, or skipped."""
        self._absent, called = None, self.layout.columns.model_names
        columns = [self.batch.column(name) for name in names]
        if not all(column.null_count for column in columns):
            return
        missing = np.logical_and.reduce([_nulls(column) for column in columns])
        if self.layout.skip_missing:
            self._absent = missing
            self.valid &= ~missing
        elif called is not None:
            self._absent = missing
            self._reject(names[0], f"{MISSING} {called[model - 1]!r}", missing)

    def _reject_nulls(self, name: str, column: pa.Array) -> None:
        nulls = _nulls(column)
        self._reject(name, NULL, nulls if self._absent is None else nulls & ~self._absent)

    def labels(self) -> tuple[Grid | None, Mask]:
        form, name = self.layout.label, self.layout.columns.label
        if form is None:
            return None, np.zeros(self.n, np.bool_)
        column = self.batch.column(name)
        known = ~_nulls(column)
        if form == "vector":
            grid = np.empty((self.n, self.d), np.int32)
            self._quantise(name, self._vectors(name, known.copy(), nulls=False), grid)
            if self.layout.binary:  # a patch must keep f0 + f1 = 1, and labels decide patches
                off = np.abs(grid.sum(axis=1, dtype=np.int64) - ONE) > SUM_TOLERANCE
                self._reject(name, "with a label that does not sum to 1", off & known & self.valid)
                grid[:, 0] = ONE - grid[:, 1]  # as for scores: float32 halves need not add up
            return grid, known
        if form == "name":
            classes = pa.array(self.layout.columns.classes, pa.string())
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            index = pc.index_in(column.cast(pa.string()), classes)
            bad = known & _nulls(index)
            self._reject(name, f"{UNNAMED} the {len(classes)} classes", bad)
            return _filled(index, 0).astype(np.int32), known
        values = _filled(column, 0)
        bad = known & ~((values >= 0) & (values < self.d) & (values == np.floor(values)))
        self._reject(name, f"{NO_INDEX} from 0 to {self.d - 1}", bad)
        return np.where(bad | ~known, 0, values).astype(np.int32), known

    def weights(self, labelled: Mask) -> Ints | None:
        """As how often rows count. Only labelled ones are looked at."""
        name = self.layout.columns.weight
        if name is None or self.layout.label is None:
            return None
        column, unit = self.batch.column(name), self.layout.columns.unit
        self._reject(name, "with null", _nulls(column) & labelled)
        w, codes = multiples(column, unit)
        for code, kind in WRONG.items():
            self._reject(name, kind, labelled & (codes == code))
        odd = labelled & (codes == NO_MULTIPLE)
        if odd.any():
            finer = finer_unit(column.filter(pa.array(odd)), unit)
            kind = f"with a weight that is no multiple of {plain(self.layout.columns.weight_unit)}"
            self._reject(name, kind, odd, finer)
        return w

    def _quantise(self, name: str, values: Floats, grid: Grid) -> Mask:
        """Round onto the grid, chunk by chunk in cache. Returns rows that do not sum to 1."""
        off = np.zeros(self.n, np.bool_)
        rows = max(1, 2**17 // values.shape[1])
        buffer = np.empty((min(rows, self.n), values.shape[1]))
        ones = np.ones(values.shape[1])
        for start in range(0, self.n, rows):
            part = slice(start, min(start + rows, self.n))
            q = buffer[: part.stop - start]
            with np.errstate(over="ignore"):  # 1e308 is told as outside [0, 1]
                to_grid(values[part], out=q)
            if not on_grid(q):
                self._reject_values(name, values, q, part)
            grid[part] = q
            # unlike `@`, np.dot lets other threads work meanwhile
            off[part] = np.abs(np.dot(q, ones) - ONE) > SUM_TOLERANCE
        return off

    def _reject_values(self, name: str, values: Floats, q: Floats, part: slice) -> None:
        inside = (q >= 0) & (q <= ONE)
        q[~inside] = 0
        fresh = np.zeros(self.n, np.bool_)
        fresh[part] = ~inside.all(axis=1)
        number = np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=np.inf)
        endless = fresh & np.isinf(number).any(axis=1)
        self._reject(name, "with NaN or infinity", endless)
        self._reject(name, OUTSIDE, fresh & ~endless)

    def _numbers(self, name: str) -> Floats:
        column = self.batch.column(name)
        self._reject_nulls(name, column)
        return _filled(column, 0)

    def _vectors(self, name: str, wanted: Mask, nulls: bool = True) -> Floats:
        """An array column as n x d; zeros where a row cannot be read."""
        column = self.batch.column(name)
        if nulls:
            self._reject_nulls(name, column)
        flat = column.flatten()
        whole = len(flat) == self.n * self.d and not column.null_count and not flat.null_count
        if whole and (
            pa.types.is_fixed_size_list(column.type)
            or bool((np.diff(column.offsets.to_numpy()) == self.d).all())
        ):
            return _filled(flat, 0).reshape(self.n, self.d)
        lengths = _filled(pc.list_value_length(column), 0).astype(np.int64)
        short = wanted & (lengths != self.d)
        self._reject(name, f"without exactly {self.d} values", short)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = np.zeros((self.n, self.d))
        full = np.flatnonzero((lengths == self.d) & ~_nulls(column))
        places = offsets[full][:, None] + np.arange(self.d)
        values[full] = _filled(flat, 0)[places]
        holes = np.zeros(self.n, np.bool_)
        holes[full] = _nulls(flat)[places].any(axis=1)
        self._reject(name, "with a null among its values", holes & wanted)
        return values

    def _reject(self, name: str, kind: str, bad: Mask, unit: Fraction | None = None) -> None:
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        self.valid[rows] = False
        shown = [f"{self._row(int(i))}: {self._shown(name, int(i))}" for i in rows[:EXAMPLES]]
        self.problems.add(name, kind, len(rows), shown, unit)

    def _row(self, i: int) -> str:
        id = self.layout.columns.id
        if id is not None and (value := value_of(self.batch.column(id)[i])) is not None:
            return f"id {value!r}"
        return "a row" if self.start is None else f"row {self.start + i}"

    def _shown(self, name: str, i: int) -> str:
        value = value_of(self.batch.column(name)[i])
        if isinstance(value, list) and len(value) > 6:
            return f"[{', '.join(f'{v}' for v in value[:5])}, ... {len(value)} values]"
        return str(value)


def _nulls(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _filled(column: pa.Array, fill: Any) -> npt.NDArray[Any]:
    """Numbers as float64, nulls replaced."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_float64(column.type):
        column = column.cast(pa.float64(), safe=False)
    if column.null_count:
        column = column.fill_null(fill)
    return np.asarray(column.to_numpy(zero_copy_only=False))
