"""Writes of delta-rs: what a commit says, races that are tried again, tables whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import DeltaError

from redcal_spark.backends.local.commits import commits
from redcal_spark.backends.local.delta_read import DeltaRsTable, quoted
from redcal_spark.backends.local.errors import delta_table, is_delta
from redcal_spark.backends.local.folders import beside
from redcal_spark.backends.location import Location, failed
from redcal_spark.backends.names import MAKING
from redcal_spark.backends.retries import TRIES, retried
from redcal_spark.backends.store import RECENT, Commit
from redcal_spark.backends.target import Existing, Target
from redcal_spark.errors import RunError, UsageError

T = TypeVar("T")


def properties(commit: Commit, retries: int = TRIES) -> CommitProperties:
    metadata = {"userMetadata": commit.user_metadata}
    return CommitProperties(custom_metadata=metadata, max_commit_retries=retries)


def once(commit: Commit) -> CommitProperties:
    """No retries inside: who changes rows and lost a race must look at the rows again."""
    return properties(commit, retries=0)


def again(name: str, change: Callable[[], T]) -> T:
    """Change a table, with it as it is then if another writer was quicker."""
    try:
        return retried(change, lambda err: isinstance(err, DeltaError), pause=0.1)
    except (DeltaError, OSError) as err:
        raise failed(RunError, f"{name}: could not be written", err) from err


def check_partitions(place: Location) -> None:
    """delta-rs does not hit files that Spark put into folders with other letters than ASCII.

    It would name them otherwise than Spark did, which would go on reading what was replaced.
    """
    name = place.name
    paths = pa.table(delta_table(place).get_add_actions())["path"].to_pylist()
    odd = next((path for path in paths if not path.isascii()), None)
    if odd is not None:
        raise UsageError(
            f"output.table: {name} has partitions that Spark wrote and the local engine cannot "
            f"replace, such as {os.path.dirname(odd)}: use engine.name: spark, or name another "
            "table"
        )


def merge_rows(
    table: Location, rows: pa.RecordBatchReader, old: Existing, target: Target, commit: Commit
) -> None:
    """Insert new rows, replace those that changed, leave all others as they are.

    Where only touched rows are kept, a row that is touched no more is removed.
    """
    assert target.id is not None
    id = quoted(target.id)
    differs = []
    for name in (n for n in rows.schema.names if n != target.id):
        new = f"source.{quoted(name)}"
        if name in old.schema.names:
            differs.append(f"({new} is distinct from target.{quoted(name)})")
        else:  # the table is about to get this column, empty
            differs.append(f"({new} is not null)")
    columns = {f"target.{quoted(n)}": f"source.{quoted(n)}" for n in rows.schema.names}
    merge = delta_table(table).merge(
        rows,
        predicate=f"target.{id} = source.{id}",
        source_alias="source",
        target_alias="target",
        merge_schema=target.evolve,
        commit_properties=properties(commit),
    )
    changed, wanted = " or ".join(differs) or "false", None
    if target.touched_only:
        wanted = f"source.{quoted(target.touched)}"
        merge, changed = merge.when_matched_delete(f"not {wanted}"), f"{wanted} and ({changed})"
    merge = merge.when_matched_update(columns, changed)
    merge.when_not_matched_insert(columns, wanted).execute()
    if not any(commit.wrote(e.get("userMetadata")) for e in commits(table, RECENT)):
        # nothing differed, and delta-rs made no version: an empty one says that the run was here
        nothing = old.schema.empty_table()
        put_rows(table, nothing, mode="append", commit_properties=properties(commit))


def touched_rows(rows: pa.RecordBatchReader, target: Target) -> pa.RecordBatchReader:
    """Of all rows, those that a patch acted on."""
    kept = (batch.filter(batch.column(target.touched)) for batch in rows)
    return pa.RecordBatchReader.from_batches(rows.schema, kept)


def put_rows(place: Location, rows: Any, **options: Any) -> None:
    write_deltalake(place.uri, rows, storage_options=place.delta, **options)


def put_new(
    place: Location,
    rows: pa.RecordBatchReader,
    put: Callable[[Location, pa.RecordBatchReader, CommitProperties], None],
    commit: Commit,
) -> None:
    """Make a table, so that it is whole or not at all.

    In an object store its first commit is what makes it, and fails if someone else was quicker:
    tried again by delta-rs alone it would leave the other's rows in. In a folder it is made beside
    its place and moved there.
    """
    if place.is_address:
        with _marked(place):
            put(place, rows, once(commit))
        return
    with beside(Path(place.name), commit.run_id) as partial:
        made = Location(str(partial))
        put(made, rows, properties(commit))
        try:
            partial.rename(place.name)
        except OSError:  # meanwhile someone else has made it: this is its next version
            table = DeltaRsTable(made, delta_table(made))
            again = pa.RecordBatchReader.from_batches(table.schema, table.batches())
            put(place, again, properties(commit))


@contextmanager
def _marked(place: Location) -> Iterator[None]:
    """A mark beside files that no commit has yet: if the run dies there, they are known as ours."""
    mark = place.below(MAKING)
    mark.write(b"the first commit of this table is still to come\n")
    yield
    with suppress(OSError):
        mark.file_system.delete_file(mark.path)


def made_whole(place: Location, rows: pa.Table, commit: Commit) -> bool:
    """Make a small table, unless someone else is quicker; nobody sees a part of it."""
    if place.is_address:
        with _marked(place):
            put_rows(place, rows, mode="error", commit_properties=once(commit))
        return True
    with beside(Path(place.name), commit.run_id) as partial:
        put_rows(Location(str(partial)), rows, commit_properties=once(commit))
        try:
            partial.rename(place.name)
        except OSError:  # meanwhile someone else has made it, or it is a link to an empty folder
            if is_delta(place):
                return False
            put_rows(place, rows, mode="error", commit_properties=once(commit))
    return True


class Remembering:
    """Batches on their way through Rust, which would turn an error of ours into text."""

    def __init__(self, batches: Iterable[pa.RecordBatch]):
        self.error: BaseException | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except BaseException as err:
            self.error = err
            raise
