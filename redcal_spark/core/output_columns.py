"""Output: a batch of rows with its reconciled scores, actions and flags added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.columns import Columns, Layout, listed
from redcal_spark.core.decisions import Tie, decisions
from redcal_spark.core.fixed_point import Grid, Mask, from_grid
from redcal_spark.core.kernel import Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.normalised import check_normalise, normalised
from redcal_spark.core.patches import Patch
from redcal_spark.core.reading import BadRows, read
from redcal_spark.core.roles import UNKNOWN, Roles
from redcal_spark.core.rows import replay, replay_touched
from redcal_spark.errors import InputError
from redcal_spark.settings import setting

SUFFIX = "_reconciled"


def tag(suffix: str) -> str:
    """What goes on the names of new columns that hold no scores."""
    return "" if suffix == SUFFIX else suffix


@dataclass(frozen=True)
class OutputNames:
    """The names of the new columns. A suffix of one's own goes on all of them, to avoid clashes.

    roles: whether there is a column `split`, as in the rows of every job. normalise: whether there
    are scores that sum to 1, beside the reconciled ones. tie: what decides where the models
    disagree; off: there are no decisions. skip_missing: rows without a model's scores pass through
    untouched. carried: the input columns that are kept beside them; None: all. touched_only: rows
    whose scores did not change are left out.
    """

    columns: Columns
    losses: LossFamily
    suffix: str = SUFFIX
    roles: bool = False
    normalise: bool = False
    tie: Tie = "off"
    carried: tuple[str, ...] | None = None
    touched_only: bool = False
    skip_missing: bool = False

    @property
    def _tag(self) -> str:
        return tag(self.suffix)

    def of_model(self, model: int) -> list[str]:
        return [f"{name}{self.suffix}" for name in self.columns.of_model(model)]

    def normalised(self, model: int) -> list[str]:
        return [f"{name}_normalised" for name in self.of_model(model)]

    @property
    def _models(self) -> range:
        return range(1, self.columns.n_models + 1)

    @property
    def raw(self) -> list[str]:
        return [name for model in self._models for name in self.of_model(model)]

    @property
    def scores(self) -> list[str]:
        """The columns of new scores; those that sum to 1 last."""
        models = self._models if self.normalise else ()
        return self.raw + [name for model in models for name in self.normalised(model)]

    def action(self, loss: str, model: int, when: str) -> str:
        """By the model's name, where it has one."""
        names = self.columns.model_names
        called = model if names is None else names[model - 1]
        return f"{loss}_{called}_{when}{self._tag}"

    def agree(self, loss: str) -> str:
        return f"{loss}_agree{self._tag}"

    def decision(self, loss: str) -> str:
        return f"{loss}_decision{self._tag}"

    @property
    def touched(self) -> str:
        return f"touched{self._tag}"

    @property
    def split(self) -> str:
        return f"split{self._tag}"

    @property
    def valid(self) -> str:
        return f"valid{self._tag}"

    def all(self, skip: bool) -> list[str]:
        names = self.scores
        for loss in self.losses.losses:
            for when in ("before", "after"):
                names += [self.action(loss.name, model, when) for model in self._models]
            names.append(self.agree(loss.name))
            if self.tie != "off":
                names.append(self.decision(loss.name))
        names.append(self.touched)
        if self.roles:
            names.append(self.split)
        return [*names, *([self.valid] if skip or self.skip_missing else [])]

    def kept(self, existing: Sequence[str], where: str) -> list[str]:
        """The input columns that are carried, in the input's order."""
        if self.carried is None:
            return list(existing)
        missing = [name for name in self.carried if name not in existing]
        if missing:
            raise InputError(
                f"output.columns: no column {', '.join(map(repr, missing))} in {where}; it "
                f"has: {listed(existing)}"
            )
        return [name for name in existing if name in self.carried]

    def read(self, existing: Sequence[str], roles: Roles, where: str) -> list[str]:
        """The input columns that are needed, carried or not, in the input's order."""
        needed = {*self.kept(existing, where), *self.decide(roles)}
        return [name for name in existing if name in needed]

    def decide(self, roles: Roles) -> list[str]:
        """The input columns that new ones are made of."""
        return list(dict.fromkeys([*self.columns.names(label=False), *roles.columns]))

    def check(self, existing: Sequence[str], skip: bool, where: str) -> None:
        """New columns never replace old ones."""
        new = self.all(skip)
        # Delta does not tell upper from lower case
        there = {name.casefold(): name for name in self.kept(existing, where)}
        clash = [there[name.casefold()] for name in new if name.casefold() in there]
        if clash:
            raise InputError(
                f"{where} has already the column{'s' if len(clash) > 1 else ''} "
                f"{', '.join(map(repr, clash))}; name the new ones otherwise, for instance with "
                + setting("suffix", "_v2")
            )
        counts = Counter(name.casefold() for name in new)
        twice = sorted({name for name in new if counts[name.casefold()] > 1})
        if twice:
            raise InputError(
                f"two new columns would have the same name: {', '.join(map(repr, twice))}; "
                "rename the loss, or the score columns"
            )


@dataclass(frozen=True)
class Added:
    """New columns of a batch. rows: the places of the rows that they are of; None: all."""

    columns: dict[str, pa.Array]
    rows: npt.NDArray[np.intp] | None

    def beside(self, batch: pa.RecordBatch, names: OutputNames) -> pa.RecordBatch:
        """The columns of the batch that are carried, and the new ones."""
        if names.carried is not None:
            batch = batch.select(names.kept(batch.schema.names, "the data"))
        if self.rows is not None:
            batch = batch.take(pa.array(self.rows))
        fields = [*batch.schema, *(pa.field(name, a.type) for name, a in self.columns.items())]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *self.columns.values()],
            schema=pa.schema(fields, metadata=batch.schema.metadata),
        )


@dataclass(frozen=True)
class Extension:
    """What makes new columns: scores, per loss the actions before and after, and `touched`.

    Rows that cannot be read pass through untouched, with null actions. roles: what `split` says,
    where `names` has it. What `names` leaves out is left out.
    """

    layout: Layout
    rules: Rules
    log: Sequence[Patch]
    names: OutputNames
    skip: bool = False
    roles: Roles = UNKNOWN

    def rows(
        self, batch: pa.RecordBatch, problems: BadRows, start: int | None = 0
    ) -> pa.RecordBatch:
        """The batch with new columns. start: the number of its first row, where that is known."""
        return self.columns(batch, problems, start).beside(batch, self.names)

    def columns(self, batch: pa.RecordBatch, problems: BadRows, start: int | None = 0) -> Added:
        """The new columns alone, and the rows that they are of."""
        layout, names, roles = self.layout, self.names, self.roles
        names.check(batch.schema.names, self.skip, "the data")
        if names.normalise:
            check_normalise(layout)
        reading = read(batch, replace(layout, skip_missing=names.skip_missing), problems, start)
        valid, rows = reading.valid, None
        if names.touched_only:
            rows, done = replay_touched(reading.block, self.rules, self.log, valid)
            batch = batch.select(names.decide(roles)).take(pa.array(rows))
            valid = valid[rows]
        else:
            done = replay(reading.block, self.rules, self.log)
        touched = [t & valid for t in done.touched]
        models = range(1, len(touched) + 1)
        arrays: dict[str, pa.Array] = {}
        nulls = None if valid.all() else ~valid
        for model in models:
            columns = _scores(batch, layout, model, done.f[model - 1], touched[model - 1], valid)
            arrays.update(zip(names.of_model(model), columns, strict=True))
        for model in models if names.normalise else ():
            columns = normalised(done.f[model - 1], valid, layout.forms[model - 1])
            arrays.update(zip(names.normalised(model), columns, strict=True))
        for place, loss in enumerate(names.losses.losses):
            called = pa.array(loss.actions, pa.string())
            for when, actions in (("before", done.before), ("after", done.after)):
                for model in models:
                    index = pa.array(actions[model - 1][place].astype(np.int32), mask=nulls)
                    arrays[names.action(loss.name, model, when)] = called.take(index)
            first, *others = (after[place] for after in done.after)
            same = np.logical_and.reduce([first == other for other in others])
            arrays[names.agree(loss.name)] = pa.array(same, mask=nulls)
            if names.tie != "off":
                now = [after[place] for after in done.after]
                arrays[names.decision(loss.name)] = decisions(loss, done.f, now, valid, names.tie)
        arrays[names.touched] = pa.array(np.logical_or.reduce(touched))
        if names.roles:
            arrays[names.split] = roles.column(batch, valid)
        if self.skip or names.skip_missing:
            arrays[names.valid] = pa.array(valid)
        return Added(arrays, rows)


def _scores(
    batch: pa.RecordBatch, layout: Layout, model: int, f: Grid, touched: Mask, valid: Mask
) -> list[pa.Array]:
    """New scores in the form of the old ones, float64; untouched rows keep theirs to the bit."""
    columns = [batch.column(name) for name in layout.columns.of_model(model)]
    form, rows = layout.forms[model - 1], np.flatnonzero(touched)
    if form == "array":
        return [_vectors(columns[0], f, rows, valid)]
    first = 1 if form == "binary" else 0
    return [_numbers(column, f[:, j], rows) for j, column in enumerate(columns, first)]


def _numbers(column: pa.Array, f: npt.NDArray[Any], rows: npt.NDArray[np.intp]) -> pa.Array:
    old = column.cast(pa.float64(), safe=False)
    if not len(rows):
        return old
    values = np.array(old.to_numpy(zero_copy_only=False))
    values[rows] = from_grid(f[rows])
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, mask=nulls)


def _vectors(column: pa.Array, f: Grid, rows: npt.NDArray[np.intp], valid: Mask) -> pa.Array:
    old = _as_float64_lists(column)
    if not len(rows):
        return old
    if not valid.all():  # ragged or null rows are among them: new rows are taken in one by one
        lists = pa.array(list(from_grid(f[rows])), old.type)
        place = np.arange(len(old))
        place[rows] = len(old) + np.arange(len(rows))
        return pa.concat_arrays([old, lists]).take(pa.array(place))
    values = np.array(old.flatten().to_numpy(zero_copy_only=False)).reshape(f.shape)
    values[rows] = from_grid(f[rows])
    flat = pa.array(values.reshape(-1))
    if pa.types.is_fixed_size_list(old.type):
        return pa.FixedSizeListArray.from_arrays(flat, f.shape[1])
    offsets = pa.array(np.arange(len(f) + 1, dtype=np.int32) * f.shape[1])
    return pa.ListArray.from_arrays(offsets, flat)


def _as_float64_lists(column: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(pa.float64(), column.type.list_size), safe=False)
    return column.cast(pa.list_(pa.float64()), safe=False)
