"""Parquet files, batch by batch, on whatever machine.

pyarrow's own scan of a dataset unpacks whole row groups, several at once, and keeps what it fetched
of a file until the file is done: memory grows with both. Read file by file it needs little more
than a batch, and no more time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark.core.arrow import BATCH
from redcal_spark.core.columns import inside, is_text

BATCH_BYTES = 2**25  # of a batch, about: rows may be wide
READ_BYTES = 2**20  # of a column at a time


def parquet_file(
    file: Any, metadata: pq.FileMetaData | None = None, repeated: Sequence[str] = ()
) -> pq.ParquetFile:
    """A file that is open, to be read in little memory. repeated: texts to read as dictionaries."""
    return pq.ParquetFile(
        file,
        metadata=metadata,
        read_dictionary=list(repeated),
        pre_buffer=False,
        buffer_size=READ_BYTES,
        coerce_int96_timestamp_unit="us",
    )


def check_texts(batch: pa.RecordBatch) -> None:
    """pyarrow takes the bytes of texts as they are; to show one that is no UTF-8 would fail."""
    for column in batch.columns:
        if any(map(is_text, inside(column.type))):
            column.validate(full=True)


def put_together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches, of small files, made larger: each costs a millisecond, however small.

    Batches of other types stay apart: one file may have a dictionary where the next has none.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and batch.schema != waiting[0].schema:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH // 4 or size >= BATCH_BYTES // 4:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else batch
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(waiting)


def batch_rows(file: pq.ParquetFile, columns: Sequence[str]) -> int | None:
    """Rows a batch: fewer where they are wide, as a thousand scores a row would be.

    None: the file has none.
    """
    if not file.metadata.num_row_groups:
        return None
    # pyarrow ends the process if it is asked about a chunk that was tampered with; reading says so
    next(file.iter_batches(1, row_groups=[0], columns=columns), None)
    group, schema = file.metadata.row_group(0), file.schema
    wanted = [i for i in range(len(schema)) if schema.column(i).path.split(".")[0] in columns]
    chunks = [group.column(i) for i in wanted]
    # a dictionary may make 8,000 bytes a few; the number of values tells what they unpack to
    size = sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in chunks)
    return max(1, min(BATCH, BATCH_BYTES * int(group.num_rows) // max(1, int(size))))
