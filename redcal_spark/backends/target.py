"""Where reconciled rows go, how they get there, and what can be seen beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote

import pyarrow as pa

from redcal_spark.backends.delta_types import delta_schema, delta_type
from redcal_spark.config.schema import Config
from redcal_spark.core.columns import Columns
from redcal_spark.core.decisions import Tie, tie_of
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.output_columns import OutputNames, tag
from redcal_spark.core.shown_values import value_of
from redcal_spark.errors import InputError, UsageError

MAX_FOLDER = 250  # signs of a folder's name; file systems take 255
RUN_ID = "run_id"  # the column that tells the runs of an appended table apart
Change = Literal["nothing", "new columns", "all of it"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The table of reconciled rows: its name, the new columns, and how rows get into it.

    suffix, skip: of the new columns, and whether bad rows pass through. skip_missing: whether rows
    without a model's scores do. normalise: scores that sum to 1 are added. tie: decisions are
    added, by this rule where the models disagree. id: what rows are merged on. partition_by,
    cluster_by: for a new table; nothing keeps what an old one has. evolve: an old table with other
    columns is changed, not refused. columns: of the input, that are carried; None: all.
    touched_only: other rows are not written. direct: on Spark, by the tasks themselves.
    """

    table: str
    suffix: str = "_reconciled"
    skip: bool = False
    skip_missing: bool = False
    normalise: bool = False
    tie: Tie = "off"
    mode: Literal["overwrite", "merge", "append"] = "overwrite"
    id: str | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    evolve: bool = False
    columns: tuple[str, ...] | None = None
    touched_only: bool = False
    direct: bool = False

    @property
    def touched(self) -> str:
        """The column that says of a row whether its scores changed."""
        return f"touched{tag(self.suffix)}"

    @property
    def id_written(self) -> str | None:
        """The id, if the table has it."""
        return self.id if self.columns is None or self.id in self.columns else None

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partition columns that are asked for."""
        runs = (RUN_ID,) if self.mode == "append" else ()
        return tuple(dict.fromkeys((*runs, *self.partition_by)))

    def partitions_for(self, old: Existing | None, names: Sequence[str]) -> tuple[str, ...]:
        """The partition columns of the table once rows of these columns are in it."""
        if self.partitions or old is None or self.cluster_by:
            return self.partitions
        return tuple(name for name in old.partitions if name in names)

    def clusters_for(self, old: Existing | None, names: Sequence[str]) -> tuple[str, ...]:
        """The columns that the table is clustered by then."""
        if self.cluster_by or old is None or self.partitions:
            return self.cluster_by
        return tuple(name for name in old.clusters if name in names)

    def names(self, columns: Columns, losses: LossFamily) -> OutputNames:
        """The names of the new columns: those that every job writes; and what is left out."""
        return OutputNames(
            *(columns, losses, self.suffix),
            roles=True,
            normalise=self.normalise,
            tie=self.tie,
            carried=self.columns,
            touched_only=self.touched_only,
            skip_missing=self.skip_missing,
        )

    def names_to_write(self, columns: Columns, losses: LossFamily) -> OutputNames:
        """The same for who writes: a merge must know of the other rows, to remove old ones."""
        names = self.names(columns, losses)
        return replace(names, touched_only=names.touched_only and self.mode != "merge")

    def with_run(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the rows as they are written: appended ones name their run."""
        return schema.append(pa.field(RUN_ID, pa.string())) if self.mode == "append" else schema


@dataclass(frozen=True)
class Existing:
    """A target that is there already.

    any_name: its columns may have any sign in their names. append_only: its rows never change.
    managed: by its catalog, which lets nobody replace it.
    """

    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    any_name: bool = False
    append_only: bool = False
    managed: bool = False

    def is_earlier(self, schema: pa.Schema) -> bool:
        """Whether a side table is of an earlier release, which had fewer columns of the same."""
        return {*self.schema.names} < {*schema.names}


def target_of(config: Config) -> Target:
    """What a configuration says of its rows."""
    output = config.output
    return Target(
        table=output.table,
        suffix=output.suffix,
        skip=config.input.on_bad_rows == "skip",
        skip_missing=config.input.missing_model == "skip_row",
        normalise=output.normalise,
        tie=tie_of(output.tie, config.input.n_models, config.input.model_names),
        mode=output.mode,
        id=config.input.id,
        partition_by=output.partition_by or (),
        cluster_by=output.cluster_by or (),
        evolve=output.schema_ == "evolve",
        columns=output.columns,
        touched_only=output.rows == "touched",
        direct=output.writer == "direct",
    )


def check_rows(target: Target, schema: pa.Schema, existing: Existing | None) -> None:
    """Refuse rows that the target could not take. `schema`: theirs, without a run."""
    check_append_only(target, existing)
    problems = _column_problems(target, schema)
    if existing is not None and not problems:
        problems = _drift(target, delta_schema(target.with_run(schema)), existing)
    if problems:
        raise UsageError("\n".join(problems))


def is_append_only(properties: Mapping[str, str]) -> bool:
    return properties.get("delta.appendOnly", "").lower() == "true"


def check_append_only(target: Target, old: Existing | None) -> None:
    if old is not None and old.append_only and target.mode != "append":
        raise UsageError(
            f"output.table: {target.table} takes new rows only (delta.appendOnly): use "
            "output.mode: append, or name another table"
        )


def _column_problems(target: Target, schema: pa.Schema) -> list[str]:
    problems = []
    if target.mode == "append" and RUN_ID in (name.casefold() for name in schema.names):
        problems.append(
            f"output.mode: append adds a column {RUN_ID!r}, and the rows have one already: rename "
            "it in the input"
        )
    names = target.with_run(schema).names
    for key, columns in (("partition_by", target.partition_by), ("cluster_by", target.cluster_by)):
        for name in columns:
            if name not in names:
                left_out = "" if target.columns is None else " (output.columns leaves out others)"
                there = f"there are: {', '.join(names)}{left_out}"
                problems.append(f"output.{key}: no column {name!r}; {there}")
            elif key == "partition_by" and "/" in name:
                problems.append(f"output.{key}: column {name!r}: a folder's name cannot have a '/'")
            elif name != RUN_ID and pa.types.is_nested(schema.field(name).type):
                kind = delta_type(schema.field(name).type)
                problems.append(
                    f"output.{key}: column {name!r} has type {kind}, which cannot be used"
                )
    return problems


def short_partitions(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch, if the values of its partition columns fit the names of folders."""
    for name in columns:
        for value in map(value_of, batch.column(name).unique()):
            folder = quote(f"{name}={value}", safe="")
            if len(folder) > MAX_FOLDER:
                raise InputError(
                    f"output.partition_by: column {name!r} has a value of {len(str(value))} signs, "
                    f"too long for the name of a folder: {str(value)[:40]!r}..."
                )
    return batch


def change_of(target: Target, schema: pa.Schema, old: Existing) -> Change:
    """What an overwrite by rows of this schema changes of a table beside its rows."""
    added, missing, retyped, parted = _differences(target, delta_schema(schema), old)
    if missing or retyped or parted:
        return "all of it"
    return "new columns" if added else "nothing"


def _differences(
    target: Target, new: pa.Schema, old: Existing
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Columns that are new, missing or of another type, and another layout, in words."""
    given = {field.name: delta_type(field.type) for field in new}
    there = {field.name: delta_type(field.type) for field in old.schema}
    added = [f"  new: {name!r}, {kind}" for name, kind in given.items() if name not in there]
    missing = [f"  missing: {name!r}, {kind}" for name, kind in there.items() if name not in given]
    retyped = [
        f"  of another type: {name!r} is {there[name]}, would be {kind}"
        for name, kind in given.items()
        if there.get(name, kind) != kind
    ]
    return added, missing, retyped, _laid_out_otherwise(target, old)


def _drift(target: Target, new: pa.Schema, old: Existing) -> list[str]:
    """What the existing table would have to change for these rows, and the way out."""
    added, missing, retyped, parted = _differences(target, new, old)
    changes = [*added, *missing, *retyped, *parted]
    fixed = [*retyped, *parted]  # only a new version of the whole table can change these
    if not changes or (target.evolve and (target.mode == "overwrite" or not fixed)):
        return []
    if target.mode == "overwrite":
        way_out = "name another output.table, or output.schema: evolve overwrites them too"
    elif not fixed:
        way_out = "output.schema: evolve adds new columns and leaves missing ones empty"
    else:
        way_out = f"mode: {target.mode} cannot change this; name another output.table"
    head = f"output.table: {target.table} is there with other columns than would be written:"
    return ["\n".join([head, *changes, f"  ({way_out})", *_upgrade(target, new.names, old)])]


def _upgrade(target: Target, given: Sequence[str], old: Existing) -> list[str]:
    """A column of ours that an earlier release did not write yet."""
    ours, there = tag(target.suffix), old.schema.names
    name = f"split{ours}"
    if name not in given or name in there or f"touched{ours}" not in there:
        return []
    upgrade = f"an earlier release wrote the table, without {name!r}; once with"
    return [f"  ({upgrade} --set output.schema=evolve, and later runs need nothing)"]


def _laid_out_otherwise(target: Target, old: Existing) -> list[str]:
    changes = []
    wanted = (
        ("partitioned", target.partitions, old.partitions),
        ("clustered", target.cluster_by, old.clusters),
    )
    for word, asked, has in wanted:
        if asked and asked != has:
            changes.append(f"  {word} by: {_listed(has)}, would be {_listed(asked)}")
    if target.cluster_by and old.partitions:
        changes.append(f"  partitioned by: {_listed(old.partitions)}, would be clustered")
    return changes


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
