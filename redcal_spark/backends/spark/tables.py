"""Tables as Spark sees them: where they are, their rows as frames, and what went wrong in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from redcal_spark.backends.delta_types import delta_schema
from redcal_spark.backends.local.delta_read import DeltaRsTable
from redcal_spark.backends.local.files import FileTable
from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.retries import retried
from redcal_spark.backends.spark.errors import UNREADABLE, is_sparks, message_of, of_a_disk
from redcal_spark.backends.spark.frames import arrow_schema
from redcal_spark.backends.spark.workers import of_worker
from redcal_spark.backends.store import Table, vacuumed
from redcal_spark.core.scan import BatchGroup, each_alone
from redcal_spark.errors import InputError, RedcalError, RunError

T = TypeVar("T")
FIRST_ROWS = 64
BY_BYTES = "UTF8_BINARY"  # the collation of all texts that are not given another one
CONFLICT = re.compile(
    r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)|delta\.exceptions\.Concurrent"
)
# Other catalogs may hide rows or columns from some users.
OWN = "spark_catalog"
Open = Callable[[str, int], tuple[DeltaRsTable | None, InputError | None]]


class SparkTable:
    """One version of a table, as a DataFrame.

    newest: asks for the newest version of a Delta table.
    seen: the same table as this process sees it without Spark, if it can. It says what files hold
    and what is wrong with them, in the words of the embedded store. unseen: why it cannot.
    """

    def __init__(
        self,
        name: str,
        frame: Callable[[], DataFrame],
        identity: Callable[[], dict[str, Any]],
        seen: Table | None = None,
        newest: Callable[[], int] | None = None,
        unseen: str = "its rows are not simply those of one table",
    ):
        self.name = name
        self._newest = newest
        self.identity = identity
        self._read = frame
        self.seen = seen
        self.unseen = unseen

    @cached_property
    def frame(self) -> DataFrame:
        with explained(self.explain):
            return self._read()

    @cached_property
    def schema(self) -> pa.Schema:
        files = self._files
        if files is not None:
            return files.schema
        check_collations(self.name, self.frame.schema)
        return arrow_schema(self.frame)

    @property
    def _files(self) -> FileTable | None:
        return self.seen if isinstance(self.seen, FileTable) else None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows at the driver: for small tables."""
        frame = self.frame if columns is None else self.frame.select(*map(quoted, columns))
        with explained(self.explain):
            rows = frame.toArrow()
        yield from rows.to_batches()

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        return each_alone(self.batches(columns))

    def first(self, columns: Sequence[str]) -> pa.RecordBatch | None:
        """A few rows, to look at."""
        batches: Any
        if self._files is not None:  # Spark would open every file to tell their types
            batches = self._files.batches(columns)
        else:
            with explained(self.explain):
                chosen = self.frame.select(*map(quoted, columns))
                batches = chosen.limit(FIRST_ROWS).toArrow().to_batches()
        return next((batch.slice(0, FIRST_ROWS) for batch in batches if batch.num_rows), None)

    def count(self) -> int | None:
        """Where this process sees the table, too: Spark would take a job to tell."""
        try:
            return None if self.seen is None else self.seen.count()
        except InputError:
            return None

    def explain(self, err: Exception) -> Exception:
        """Why a pass over the rows failed: files are looked at here to tell, in words."""
        if (worker := of_worker(err, self.name)) is not None and not of_a_disk(err):
            return worker
        if self._files is not None:
            try:
                for _ in self._files.batches():
                    pass
            except InputError as problem:
                return problem
        if self._newest is not None and any(word in str(err) for word in UNREADABLE):
            version, newest = self.identity()["version"], self._newest()
            if version < newest:
                return vacuumed(self.name, version, newest)
        if isinstance(self.seen, DeltaRsTable):
            lost = self.seen.lost_file()
            if lost is not None:
                return InputError(f"{self.name}: cannot be read: {lost}: No such file or directory")
        text = message_of(err)
        if any(word in str(err) for word in UNREADABLE):
            return InputError(f"{self.name}: cannot be read: {text}")
        return RunError(f"{self.name}: {text}")


def at_location(
    spark: SparkSession, place: Place, location: str, identity: Mapping[str, Any], open_: Open
) -> tuple[DeltaRsTable | None, str]:
    """A table of Spark's own catalog, opened at its location; or why it is not.

    It is the same one if its log has the same id.
    """
    path = unquote(re.sub("^file:(//)?", "", location))
    here = location.startswith("file:") and Path(path, "_delta_log").is_dir()
    if not here or _catalog(spark, place) != OWN:
        return None, f"it is a table of a catalog, at {location}"
    table, why = open_(path, identity["version"])
    if table is None or table.identity()["id"] != identity["id"]:
        return None, f"this process cannot read {path}: {why or 'another table is there'}"
    return table, ""


def _catalog(spark: SparkSession, place: Place) -> str:
    parts = place.sql.strip("`").split("`.`")
    if len(parts) > 2:
        return parts[0]
    return str(spark.sql("SELECT current_catalog()").collect()[0][0])


def check_collations(name: str, schema: StructType) -> None:
    """Refuse texts with a collation, however deep: open source Delta does not write them."""
    collated = [
        f"column {field.name!r} has type {field.dataType.simpleString()}"
        for field in schema.fields
        if any(getattr(kind, "collation", BY_BYTES) != BY_BYTES for kind in inside(field.dataType))
    ]
    if collated:
        way_out = "Delta may not write a text with a collation; cast it to string, or leave it out"
        raise InputError("\n".join(f"{name}: {column}: {way_out}" for column in collated))


def inside(kind: DataType) -> Iterator[DataType]:
    """A type and all types in it, however deep."""
    yield kind
    parts: list[DataType] = []
    if isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    for part in parts:
        yield from inside(part)


def spark_types(schema: pa.Schema) -> StructType:
    """The schema in Spark's types. Times without a zone stay without one."""
    fields = [(field.name, from_arrow_type(field.type, True)) for field in schema]
    return StructType([StructField(name, kind, True) for name, kind in fields])


def frame_of(
    spark: SparkSession, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> DataFrame:
    """Rows that are at the driver as a frame, in the types that the embedded store writes."""
    stored = delta_schema(schema)
    table = pa.Table.from_batches(list(batches), schema).cast(stored)
    rows: Any = table if table.num_rows else []  # PySpark takes no empty table
    return spark.createDataFrame(rows, spark_types(stored))


def frame_of_files(spark: SparkSession, table: FileTable, separator: str) -> DataFrame:
    """Parquet and CSV files as a frame: those that this process saw, by the names Spark knows."""
    place, reader = table.place, spark.read
    files = [Place(place.shown(file)).absolute.name for file in table.files]
    root = Place(table.name).absolute.name
    if table.kind == "parquet":
        if place.is_dir():
            reader = reader.option("basePath", root)
        return reader.parquet(*files)
    kinds = spark_types(table.schema)
    if table.folders:
        reader = reader.option("basePath", root)
    rows = (
        reader.schema(_texts_for_fractions(kinds))
        .options(header=True, sep=separator, multiLine=True, escape='"', mode="FAILFAST")
        .csv(files)
    )
    return rows.select(*(col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in kinds.fields))


def _texts_for_fractions(kinds: StructType) -> StructType:
    """For CSV files: Spark's reader knows one way to write infinity, its casts know them all."""
    return StructType(
        [
            StructField(f.name, StringType() if isinstance(f.dataType, DoubleType) else f.dataType)
            for f in kinds.fields
        ]
    )


@contextmanager
def explained(explain: Callable[[Exception], Exception]) -> Iterator[None]:
    """Spark's errors in our words."""
    try:
        yield
    except Exception as err:
        if not is_sparks(err):
            raise
        raise explain(err) from err


def again(write: Callable[[], T]) -> T:
    """Write, and write again when another writer was quicker: on the table as it is then."""
    return retried(write, is_conflict, pause=0.5)


def is_conflict(err: Exception) -> bool:
    """Whether Delta refused a commit because of another one, and nothing was written."""
    return is_sparks(err) and CONFLICT.search(str(err)) is not None


def refused(text: str, name: str) -> InputError | None:
    """Rows that we refused inside a Spark job come back as text inside Spark's own error."""
    cause = of_worker(RunError(text), name)
    return cause if isinstance(cause, InputError) else None


def unwritten(name: str, err: Exception) -> RedcalError:
    """Rows may be computed as they are written, so that a worker may be the cause."""
    if (worker := of_worker(err)) is not None and not of_a_disk(err):
        return type(worker)(f"{name}: could not be written: {worker}")
    return RunError(f"{name}: could not be written: {message_of(err)}")


def unread(name: str, err: Exception) -> RunError:
    return RunError(f"{name}: cannot be read: {message_of(err)}")
