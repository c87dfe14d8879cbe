"""The files of one version of a Delta table, and which of their rows are in it.

delta-rs reads the log: files, the values of their partitions, rows that are deleted, columns that
are mapped to other names. The files are read as all others are, by pyarrow, in their order and by
several threads. So there is one way of reading for all tables; a plain one has nothing deleted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from redcal_spark.backends.delta_protocol import mapping_of, not_read
from redcal_spark.backends.local.delta_columns import StoredColumns
from redcal_spark.backends.local.errors import unreadable
from redcal_spark.backends.location import Location
from redcal_spark.config.addresses import ADDRESS, scheme_of
from redcal_spark.errors import InputError


class DeltaFiles:
    """The live files of a table: a dataset for pyarrow, and the shape of its rows."""

    def __init__(self, place: Location, table: DeltaTable):
        self._place = place
        self._name = name = place.name
        # as delta-rs names it, who follows links
        self._folder = place.path if place.is_address else os.path.realpath(name)
        self._table = table
        schema = pa.schema(table.schema().to_arrow())
        self._columns = StoredColumns(name, schema, mapping_of(table))
        self.schema = self._columns.schema

    @cached_property
    def paths(self) -> list[str]:
        """Where the files are, in the order of the log."""
        paths = [self._path(path) for path in self._added["path"].to_pylist()]
        if len(set(paths)) < len(paths):
            raise InputError(f"{self._name}: cannot be read: its log has a file twice")
        return paths

    @cached_property
    def dataset(self) -> ds.Dataset:
        # pyarrow's own view of the files: delta-rs would hand it one written in Python, and a
        # thread of pyarrow's that calls it while the interpreter shuts down aborts the process
        # (seen in 6 of 60 runs that read a table and ended)
        files, form = self._place.file_system, ds.ParquetFileFormat()
        fragments = [form.make_fragment(path, files) for path in self.paths]
        return ds.FileSystemDataset(fragments, self.schema, form, files)

    @property
    def sizes(self) -> list[int]:
        """Bytes of the files, in the same order."""
        sizes: list[int] = self._added["size_bytes"].to_pylist()
        return sizes

    @property
    def odd(self) -> str | None:
        """Why the rows are not just those of the files by the names of their columns, if so."""
        if mapping_of(self._table) != "none":
            return "its columns are mapped to other names (columnMapping)"
        return "it has deleted rows in its files (deletionVectors)" if self._live else None

    def count_all(self) -> int:
        """The number of rows that are there, deleted ones not among them."""
        known = dict(zip(self.paths, self._added["num_records"].to_pylist(), strict=True))
        total = 0
        for fragment in self.dataset.get_fragments():
            rows = known[fragment.path]  # writers need not say it
            total += self.count(fragment, 0, fragment.metadata.num_rows if rows is None else rows)
        return total

    # --- the shape of the rows ------------------------------------------------------------------

    def stored(self, file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
        there = file.schema_arrow
        self._columns.check(there)
        return self._columns.names(there, [name for name in columns if name not in self.parted])

    def rows(
        self,
        fragment: ds.ParquetFileFragment,
        batch: pa.RecordBatch,
        start: int,
        columns: Sequence[str],
        repeated: Sequence[str] = (),
    ) -> pa.RecordBatch:
        live = self._live.get(fragment.path)
        if live is not None:
            batch = batch.filter(_within(live, start, batch.num_rows))
        there = [name for name in columns if name not in self.parted]
        stored = self._columns.find(batch, there, repeated)
        arrays, wanted = [], []
        for field in map(self.schema.field, columns):
            if field.name in self.parted:
                value = self.parted[field.name][self._number[fragment.path]]
                arrays.append(pa.repeat(value.cast(field.type), batch.num_rows))
            else:
                arrays.append(stored[field.name])
            wanted.append(field.with_type(arrays[-1].type) if field.name in repeated else field)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(wanted))

    def count(self, fragment: ds.ParquetFileFragment, start: int, rows: int) -> int:
        live = self._live.get(fragment.path)
        return rows if live is None else _within(live, start, rows).true_count

    # --- what the log says ----------------------------------------------------------------------

    @cached_property
    def _added(self) -> pa.Table:
        with unreadable(self._name, InputError, "cannot be read"):
            return pa.table(self._table.get_add_actions())

    @cached_property
    def _number(self) -> dict[str, int]:
        return {path: i for i, path in enumerate(self.paths)}

    @cached_property
    def parted(self) -> dict[str, pa.Array]:
        """The columns that the log has the values of, one for each file."""
        names = self._table.metadata().partition_columns
        if not names:
            return {}
        values = self._added["partition"].combine_chunks()
        return {name: values.field(name) for name in names}

    @cached_property
    def _live(self) -> dict[str, pa.BooleanArray]:
        """Of files with deleted rows: which rows are left."""
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return {}
        with unreadable(self._name, InputError, "its deleted rows cannot be read"):
            deleted = pa.table(self._table.deletion_vectors().read_all())
        paths = [self._path(path) for path in deleted["filepath"].to_pylist()]
        vectors = (live.values for live in deleted["selection_vector"])
        live = dict(zip(paths, vectors, strict=True))
        if unknown := live.keys() - self._number.keys():
            raise InputError(
                f"{self._name}: cannot be read: its log deletes rows of {min(unknown)}, which is "
                "none of its files"
            )
        return live

    def _path(self, name: str) -> str:
        """A file as the log names it: percent-encoded, below the table's folder or anywhere."""
        if ADDRESS.match(name) is None:
            return os.path.join(self._folder, unquote(name))
        if self._place.is_address and scheme_of(name) == scheme_of(self._name):
            return self._place.beside(unquote(name)).path
        if self._place.is_address or not name.startswith("file:"):
            raise not_read(self._name, f"its file {name} is in another place")
        return unquote(re.sub("^file:(//)?", "", name))


def _within(live: pa.BooleanArray, start: int, rows: int) -> pa.BooleanArray:
    """Which of some rows are left. What a vector does not speak of is."""
    known = live.slice(start, rows)
    short = rows - len(known)
    return pa.concat_arrays([known, pa.repeat(True, short)]) if short else known
