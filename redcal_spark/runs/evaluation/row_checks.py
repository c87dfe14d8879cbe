"""The rows that a run wrote against those that it must have written, as multisets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark import __version__
from redcal_spark.backends.inputs import columns_read, parts_of
from redcal_spark.backends.store import Table
from redcal_spark.backends.target import RUN_ID, target_of
from redcal_spark.backends.views import Made
from redcal_spark.core.columns import ScoreColumns
from redcal_spark.core.differences import Difference, differences
from redcal_spark.core.metrics import Totals
from redcal_spark.core.multiset import BucketGap, FetchTask, Keyed, SumTask, gap, unpacked
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.roles import Roles
from redcal_spark.errors import InputError, RedcalError, RunError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.evaluation.findings import Checked
from redcal_spark.runs.evaluation.notes import of_the_input
from redcal_spark.runs.evaluation.redone import Source, columns_of, plain
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow

FROM_INPUT = "the log replayed on {}; rows compared as multisets by {}"
FROM_ROWS = "the log replayed on the written rows' own input columns"


class Written:
    """The rows of a run, in the version that is checked.

    newest: that is the newest one.
    """

    def __init__(self, job: Job, row: RunRow, table: Table, newest: bool):
        self._job, self._row, self.newest = job, row, newest
        self.everything = table
        self.append = job.config.output.mode == "append"

    @property
    def rows(self) -> Table:
        if not self.append:
            return self.everything
        return self._job.store.of_run(self.everything, self._row.run_id)

    @property
    def version(self) -> int:
        return int(self.everything.identity()["version"])


def written_by(job: Job, row: RunRow, last: str | None) -> Written | str:
    """The rows as readers find them; of a run that others followed, in its own version.

    last: the run that wrote the newest version, if one of ours did. A text: why there are none.
    """
    name = job.tables.table
    if not job.store.exists(name):
        return f"there is no table {name}"
    known = {other.run_id for other in job.ledger.rows()}
    newest = job.config.output.mode == "append" or last == row.run_id or last not in known
    version = None if newest else (plain(row.outputs) or {}).get(name)
    try:
        return Written(job, row, job.store.open(name, version), newest)
    except (InputError, RunError) as err:
        return str(err)


def input_left(job: Job, row: RunRow, written: Written, why: str) -> Source:
    """What the rows that were written still have of the input."""
    rows, columns = written.rows, columns_of(job, row)
    missing = {*columns.names(label=False)}.difference(rows.schema.names)
    if missing:
        names = ", ".join(map(repr, sorted(missing)))
        raise InputError(f"{rows.name} has not the input's {names}, from which they are made")
    problem = job.reading(rows, columns).problem
    new = target_of(job.config).names(problem.columns, problem.losses).all(job.skip)
    new += [RUN_ID] if written.append else []
    left = job.work.only(rows, [name for name in rows.schema.names if name not in new])
    return Source(job.reading(left, problem.columns), None, why)


def has_all_rows(job: Job) -> bool:
    """Whether the written rows are all rows, with all that splits and labels them."""
    output, columns = job.config.output, job.problem.columns
    scores = map(columns.of_model, range(1, columns.n_models + 1))
    needed = {*columns_read(columns, job.split)}.difference(*scores)
    return output.rows == "all" and (output.columns is None or needed <= {*output.columns})


def of_input(job: Job, written: Written, source: Source) -> Table:
    """The rows of the run: of a merged table, those that its input has."""
    if job.config.output.mode != "merge" or source.why is not None:
        return written.rows
    assert job.config.input.id is not None
    return job.work.with_ids(written.rows, source.table, job.config.input.id, True)


def written_totals(job: Job, rows: Table) -> dict[str, Totals]:
    """The sums of the reconciled scores as they are written."""
    problem = job.problem
    names = problem.columns
    new = OutputNames(names, problem.losses, job.config.output.suffix)
    columns = replace(
        names,
        models=tuple(_same_form(own, new.of_model(i)) for i, own in enumerate(names.models, 1)),
    )
    scan = job.scan_table(rows, replace(problem, columns=columns))
    scan.close()
    return {name: part.totals for name, part in scan.gathered.parts.items()}


def _same_form(source: ScoreColumns, names: list[str]) -> ScoreColumns:
    return names[0] if isinstance(source, str) else tuple(names)


def check_rows(
    job: Job, row: RunRow, written: Written, source: Source, pair: ReconciledPair, roles: Roles
) -> Checked:
    """All columns of all rows."""
    id = target_of(job.config).id_written
    by = "whole rows" if id is None else repr(id)
    how = FROM_INPUT.format(source.table.name, by) if source.why is None else FROM_ROWS
    name = job.tables.table
    checked = Checked("rows", row.run_id, name, f"{how}; version {written.version}")
    made = (pair, target_of(job.config), roles)
    if source.why is not None:
        left_out = "its input columns, and that all rows of the input are there and no others"
        checked.unchecked.append(f"{name}, {left_out}: {source.why}")
    try:
        rows = of_input(job, written, source)
        columns = _columns(job, source.table, rows, made)
        if row.package_version != __version__:  # it may not have known all columns of today
            new = [x for x in columns if x not in rows.schema.names]
            columns = [x for x in columns if x not in new]
            since = f"release {row.package_version} wrote none"
            checked.unchecked += [f"{name}, column {x!r}: {since}" for x in new]
        gaps, checked.more = _compared(job, source.table, made, rows, columns, id)
        if gaps and written.append:
            gaps = _named_runs(job, row, written, source.table, made, columns, id) or gaps
        checked.findings += gaps
        parts = parts_of(source.identity) if source.why is None else []
        if any(part["kind"] != "delta" for part in parts):  # files may be edited in place
            carried = source.table.schema.names
            checked.notes += of_the_input(gaps, carried, name, source.table.name)
        if source.why is None and made[1].mode == "merge":
            _check_others(job, row, written, source.table, checked)
    except (RedcalError, pa.ArrowException) as err:  # also types that nothing can hash
        checked.unchecked.append(f"{name}: {err}")
    return checked


def _columns(job: Job, table: Table, rows: Table, made: Made) -> list[str]:
    names = job.work.schema_made(table, made).names
    if made[1].mode == "merge":  # others may have columns that this run left alone
        return list(names)
    others = [name for name in rows.schema.names if name not in names]
    if made[1].mode == "append":
        others.remove(RUN_ID)
    return [*names, *others]


def _compared(
    job: Job, source: Table, made: Made | None, rows: Table, columns: list[str], id: str | None
) -> tuple[list[Difference], bool]:
    """The first differences; and whether there are others elsewhere."""
    keyed = Keyed(tuple(columns), id)
    sides = ((source, made), (rows, None))
    more = False
    while (place := _gap(job, keyed, sides)) is not None:
        more = more or place.more
        keyed = place.keyed
        if not place.too_wide:
            task = FetchTask(keyed, place.buckets)
            must, there = (_fetched(job, table, task, how, columns) for table, how in sides)
            return differences(must, there, columns, [] if id is None else [id]), more
    return [], more


def _gap(job: Job, keyed: Keyed, sides: Sequence[tuple[Table, Made | None]]) -> BucketGap | None:
    """Where two multisets differ, by the sums of their rows."""
    sums = [unpacked(job.work.compared(table, SumTask(keyed), how)) for table, how in sides]
    return gap(keyed, *sums)


def _fetched(
    job: Job, table: Table, task: FetchTask, made: Made | None, columns: list[str]
) -> pa.Table:
    batches = job.work.compared(table, task, made)
    if not batches:
        return pa.table({name: pa.nulls(0) for name in columns})
    return pa.Table.from_batches(batches)


def _named_runs(
    job: Job,
    row: RunRow,
    written: Written,
    source: Table,
    made: Made,
    columns: list[str],
    id: str | None,
) -> list[Difference]:
    """The same differences, with rows that now name a run that the ledger does not know."""
    keyed = Keyed(tuple(columns), id)
    place = _gap(job, keyed, ((source, made), (written.rows, None)))
    if place is None or place.too_wide:
        return []
    task = FetchTask(keyed, place.buckets)
    must = _fetched(job, source, task, made, columns)
    there = _fetched(job, written.everything, task, None, [*columns, RUN_ID])
    known = [one.run_id for one in job.ledger.rows() if one.run_id != row.run_id]
    ours = pc.invert(pc.is_in(there[RUN_ID].cast(pa.string()), pa.array(known, pa.string())))
    there = there.filter(ours)
    must = must.append_column(RUN_ID, pa.array([row.run_id] * must.num_rows, pa.string()))
    keys = [] if id is None else [id]
    return differences(must, there, [*columns, RUN_ID], keys)


def _check_others(job: Job, row: RunRow, written: Written, source: Table, checked: Checked) -> None:
    """Rows that a merge had no business with are as they were before it."""
    id, name = job.config.input.id, job.tables.table
    assert id is not None
    rows = job.work.with_ids(written.everything, source, id, False)
    first = int((plain(row.outputs) or {}).get(name, 0))
    if first > 0:
        try:
            before = job.store.open(name, first - 1)
            old = job.work.with_ids(before, source, id, False)
            columns = list(dict.fromkeys([*before.schema.names, *rows.schema.names]))
            gaps, more = _compared(job, old, None, rows, columns, id)
        except (InputError, RunError) as err:
            left = f"{name}, rows whose {id} the input has not, left by earlier runs"
            if job.work.first(rows, [id]) is not None:
                checked.unchecked.append(f"{left}: {err}")
            return
    else:
        nothing = job.work.with_ids(source, source, id, False)
        gaps, more = _compared(job, nothing, None, rows, rows.schema.names, id)
    checked.findings += gaps
    checked.more = checked.more or more
