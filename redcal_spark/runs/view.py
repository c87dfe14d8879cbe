"""`redcal view`: the SQL that puts an input and its touched rows together again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.store import Table
from redcal_spark.backends.target import RUN_ID, Target, target_of
from redcal_spark.core.columns import Layout, plan
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.roles import Roles
from redcal_spark.core.splits import HashSplit
from redcal_spark.errors import InputError, UsageError
from redcal_spark.runs import view_sql as sql
from redcal_spark.runs.evaluation.applied_model import roles_applied
from redcal_spark.runs.evaluation.redone import Source, job_of, source_of
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow


@dataclass(frozen=True)
class View:
    """A statement, and the run whose rows it shows."""

    run_id: str
    statement: str


def view_of(job: Job, run_id: str | None, name: str | None) -> View:
    """A SELECT of the rows that `output.rows: all` would have written, for Spark.

    run_id: default is the run whose rows the table has. name: a CREATE VIEW of that name.
    """
    row = _run(job, run_id)
    job = job_of(job, row)
    _check(job)
    source = source_of(job, row)
    if not isinstance(source, Source):
        raise InputError(f"view: the input of run {row.run_id} is not what it was: {source}")
    target = target_of(job.config)
    assert target.id is not None
    problems = job.work.id_problems(source.table, target.id)
    if problems:
        head = "view: rows are put together by input.id, on every row once:"
        raise InputError("\n  ".join([head, *problems]))
    roles = roles_applied(source.job, row) if row.command == "apply" else _roles(source.job)
    version = (json.loads(row.outputs or "{}") or {}).get(job.tables.table)
    statement = _Statement(source, target, roles, row, version).text()
    if name is not None:
        statement = f"CREATE OR REPLACE VIEW {Place(name).sql} AS\n{statement}"
    return View(row.run_id, statement)


def _roles(job: Job) -> Roles:
    return Roles(job.check_input(), job.split)


def _run(job: Job, run_id: str | None) -> RunRow:
    wanted = run_id or job.store.last_writer(job.tables.table)
    for row in job.ledger.rows():
        if row.run_id == wanted and row.finished and row.command in ("run", "apply"):
            return row
    if run_id is not None:
        raise UsageError(f"view: no finished run {run_id!r} in {job.tables.runs} that wrote rows")
    raise UsageError(
        f"view: no finished run in {job.tables.runs} wrote {job.tables.table}; write it with: "
        "redcal run -c FILE"
    )


def _check(job: Job) -> None:
    """Refuse what cannot be put together."""
    given, output = job.config.input, job.config.output
    problems = []
    if output.rows == "all":
        problems.append(f"output.rows: all: {output.table} has all rows already")
    if given.id is None:
        problems.append("input.id: is not set; rows are put together by it")
    elif output.columns is not None and given.id not in output.columns:
        problems.append(f"output.columns: must have {given.id!r} (input.id)")
    if given.weight is not None and job.skip:
        text = "input.weight with input.on_bad_rows: skip: SQL cannot tell which weights were bad"
        problems.append(f"{text}; mend them and run with on_bad_rows: error")
    if any(given.score_table(model) is not None for model in range(1, given.n_models + 1)):
        problems.append("input: scores of other tables are not joined: join them into one first")
    if problems:
        raise UsageError("\n".join(f"view: {problem}" for problem in problems))


class _Statement:
    """The statement, from the inside out: rows side by side, their grid, their actions, columns.

    Input columns are `_i` and a number, columns of touched rows `_t` and a number: their own names
    may be used by the other side.
    """

    def __init__(
        self, source: Source, target: Target, roles: Roles, row: RunRow, version: int | None
    ):
        self._table, self._identity = source.table, source.identity
        self._target, self._roles, self._row, self._version = target, roles, row, version
        problem = source.job.problem
        self._names: OutputNames = target.names(problem.columns, problem.losses)
        self._layout: Layout = plan(
            *(self._table.schema, problem.columns, self._table.name, problem.n_classes),
            source.job.work.first(self._table, problem.columns.names(label=False)),
            labels=False,
        )
        _check_types(self._table, self._names)
        self._read = self._names.read(self._table.schema.names, roles, self._table.name)
        self._new = self._names.all(target.skip)

    @property
    def _models(self) -> range:
        return range(1, self._names.columns.n_models + 1)

    def text(self) -> str:
        levels = [self._side_by_side(), *self._hashes(), self._grids(), self._actions()]
        inner = levels[0]
        for level in levels[1:]:
            inner = f"{level}\nFROM (\n{_indented(inner)}\n)"
        return f"{self._remark()}\n{self._columns()}\nFROM (\n{_indented(inner)}\n)"

    def _remark(self) -> str:
        version = self._identity.get("version")
        read = self._table.name if version is None else f"{self._table.name}, version {version}"
        rows = f"{self._target.table}, version {self._version}"
        text = f"run {self._row.run_id}: {read}, and the rows that it touched in {rows}"
        return "-- " + text.replace("\n", " ")

    def _input(self, name: str) -> str:
        return f"_i{self._read.index(name)}"

    def _old(self, name: str) -> str:
        return f"_t{self._new.index(name)}"

    def _side_by_side(self) -> str:
        id = quoted(self._target.id or "")
        columns = [f"i.{quoted(n)} AS {self._input(n)}" for n in self._read]
        columns += [f"t.{quoted(n)} AS {self._old(n)}" for n in self._new]
        columns.append(f"t.{id} IS NOT NULL AS _touched")
        rows = f"{Place(self._target.table).absolute.sql} VERSION AS OF {self._version}"
        if self._target.mode == "append":
            rows = f"(SELECT * FROM {rows} WHERE {RUN_ID} = {sql.text(self._row.run_id)})"
        source = f"{_place(self._identity, self._table.name)} AS i"
        return f"SELECT {_listed(columns)}\nFROM {source}\nLEFT JOIN {rows} AS t ON i.{id} = t.{id}"

    def _hashes(self) -> list[str]:
        split = self._roles.split
        if self._roles.layout is None or not isinstance(split, HashSplit):
            return []
        kind = self._table.schema.field(split.id).type
        steps = sql.hash_steps(split, kind, self._input(split.id))
        return [f"SELECT *, {step} AS _h{number}" for number, step in enumerate(steps)]

    def _grids(self) -> str:
        d, parts, valid = self._layout.n_classes, [], []
        for model in self._models:
            form = self._layout.forms[model - 1]
            given = [self._input(name) for name in self._names.columns.of_model(model)]
            array = sql.numbers(given, form)
            valid.append(sql.on_grid(array, 1 if form == "binary" else d))
            parts.append(f"{sql.grid(array, form)} AS _q{model}")
        if self._names.columns.id is not None:
            valid.append(f"{self._input(self._names.columns.id)} IS NOT NULL")
        both = " AND ".join(valid)
        return f"SELECT *, {_listed([*parts, f'{both} AS _valid'])}"

    def _actions(self) -> str:
        asked = "_valid AND NOT _touched"
        places = [
            f"IF({asked}, {sql.best_response(loss, f'_q{model}')}, NULL) AS _a{number}_{model}"
            for number, loss in enumerate(self._names.losses.losses)
            for model in self._models
        ]
        return f"SELECT *{''.join(f', {place}' for place in places)}"

    def _columns(self) -> str:
        names = self._names
        kept = names.kept(self._table.schema.names, self._table.name)
        columns = [f"{self._input(name)} AS {quoted(name)}" for name in kept]
        fresh: dict[str, str] = {}
        for model in self._models:
            given = [self._input(name) for name in names.columns.of_model(model)]
            wide = "ARRAY<DOUBLE>" if self._layout.forms[model - 1] == "array" else "DOUBLE"
            for name, column in zip(names.of_model(model), given, strict=True):
                fresh[name] = f"CAST({column} AS {wide})"
            if names.normalise:
                fresh |= self._normalised(model)
        for number, loss in enumerate(names.losses.losses):
            first, *others = (f"_a{number}_{model}" for model in self._models)
            for when in ("before", "after"):
                for model in self._models:
                    action = sql.named(loss, f"_a{number}_{model}")
                    fresh[names.action(loss.name, model, when)] = action
            fresh[names.agree(loss.name)] = " AND ".join(f"{first} = {two}" for two in others)
            places = [first, *others]
            fresh[names.decision(loss.name)] = sql.decision(loss, names.tie, places)
        fresh[names.touched] = "false"
        fresh[names.split] = self._role()
        fresh[names.valid] = "_valid"
        columns += [
            f"IF(_touched, {self._old(name)}, {fresh[name]}) AS {quoted(name)}"
            for name in self._new
        ]
        if self._target.mode == "append":
            columns.append(f"{sql.text(self._row.run_id)} AS {RUN_ID}")
        return f"SELECT {_listed(columns)}"

    def _normalised(self, model: int) -> dict[str, str]:
        whole = f"IF(_valid, {sql.normalised(f'_q{model}')}, NULL)"
        names = self._names.normalised(model)
        if self._layout.forms[model - 1] == "array":
            return {names[0]: whole}
        return {name: f"element_at({whole}, {j})" for j, name in enumerate(names, 1)}

    def _role(self) -> str:
        roles = self._roles
        if roles.layout is None:
            return sql.role(roles, "", "", "", "")
        columns = roles.layout.columns
        label, valid = self._input(columns.label), "_valid"
        if columns.weight is not None:  # on labelled rows it is a number: a run refuses others
            valid += f" AND coalesce({self._input(columns.weight)} > 0, false)"
        split = "" if roles.split is None else self._input(roles.split.column)
        return sql.role(roles, valid, label, split, sql.HASH)


def _check_types(table: Table, names: OutputNames) -> None:
    models = range(1, names.columns.n_models + 1)
    for name in (name for model in models for name in names.columns.of_model(model)):
        kind = table.schema.field(name).type
        kind = kind.value_type if pa.types.is_nested(kind) else kind
        if pa.types.is_decimal(kind):
            raise UsageError(
                f"view: column {name!r} has type {kind}: Spark may round decimals otherwise; cast "
                "it to double in the input"
            )


def _place(identity: Any, name: str) -> str:
    """The input in Spark's SQL, in the version that the run read."""
    place = Place(name).absolute
    if identity.get("kind") == "delta":
        return f"{place.sql} VERSION AS OF {identity['version']}"
    if identity.get("kind") == "parquet":
        return f"parquet.{quoted(place.name)}"
    raise UsageError(f"view: {name}: SQL reads Delta tables and Parquet files; this is neither")


def _listed(columns: list[str]) -> str:
    return ",\n  ".join(columns)


def _indented(statement: str) -> str:
    return "\n".join(f"  {line}" for line in statement.splitlines())
