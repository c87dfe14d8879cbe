"""The types of the columns of CSV files, which the files do not say."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds

from redcal_spark.backends.location import Location
from redcal_spark.errors import InputError, SeparatorError

SEEN_BYTES = 2**24  # of a CSV file, to tell the types of its columns
MOST_COLUMNS = 100_000  # of a CSV file: pyarrow takes 3 kB for each


def csv_types(
    place: Location, files: list[PurePath], separator: str, fractions: Sequence[str]
) -> tuple[pa.Schema, ds.CsvFileFormat]:
    """Types come from the beginning, where fractions may still look like whole numbers."""
    _check_header(place, files[0], separator)
    parse = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    convert = pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
    look = pa.csv.ReadOptions(block_size=SEEN_BYTES)
    kinds: dict[str, pa.DataType] = {}
    seen = 0
    for file in files:
        with pa.csv.open_csv(place.stream(file), look, parse, convert) as reader:
            for field in reader.schema:
                if pa.types.is_binary(field.type):
                    raise InputError(
                        f"{place.shown(file)}: column {field.name!r} is not UTF-8 text"
                    )
                kinds[field.name] = _either(kinds.get(field.name, pa.null()), field.type)
        whole = [n for n in kinds if kinds[n] == pa.int64()]
        for name in _with_leading_zeros(place, file, whole, parse):
            kinds[name] = pa.string()
        seen += place.size(file)
        if seen > SEEN_BYTES:
            break
    for name in fractions:
        if name in kinds:
            kinds[name] = _either(kinds[name], pa.float64())
    schema = pa.schema(
        [(name, pa.string() if pa.types.is_null(kind) else kind) for name, kind in kinds.items()]
    )
    convert.column_types = schema
    options = ds.CsvFileFormat(parse_options=parse, convert_options=convert)
    return schema, options


def _with_leading_zeros(
    place: Location, file: PurePath, columns: list[str], parse: pa.csv.ParseOptions
) -> Iterator[str]:
    """Columns of codes, such as 00123, which are no numbers."""
    options = pa.csv.ConvertOptions(
        include_columns=columns,
        include_missing_columns=True,
        column_types=dict.fromkeys(columns, pa.string()),
    )
    look = pa.csv.ReadOptions(block_size=SEEN_BYTES)
    if not columns:
        return
    with pa.csv.open_csv(place.stream(file), look, parse, options) as reader:
        for batch in islice(reader, 1):
            for name in columns:
                if pc.any(pc.match_substring_regex(batch.column(name), "^[+-]?0[0-9]")).as_py():
                    yield name


def _either(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    """A type for the values of both."""
    if one == two or pa.types.is_null(two):
        return one
    if pa.types.is_null(one):
        return two
    numbers = {pa.int64(), pa.float64()}
    return pa.float64() if {one, two} <= numbers else pa.string()


def _check_header(place: Location, path: PurePath, separator: str) -> None:
    """The first line must have columns, each with a name of its own."""
    file = place.shown(path)
    with place.stream(path) as opened:
        start = opened.read(65_536)
        first = start.splitlines()[:2]
        if len(first) < 2 or first[0].count(b'"') % 2:  # it goes on, perhaps behind a line's end
            start += opened.read(SEEN_BYTES)
    if not start.strip(b"\xef\xbb\xbf\r\n\t "):
        raise InputError(f"{file}: is empty")
    if b"\0" in start:
        raise InputError(f"{file}: is neither Parquet nor a CSV file in UTF-8")
    header = start.splitlines()[0].decode("utf-8-sig", errors="replace")
    if separator not in header:
        likely = [s for s in ",;\t|" if s in header]
        hint = ""
        if likely:
            hint = f"; perhaps input.separator: {json.dumps(likely[0])} (all CSV files have one)"
        raise SeparatorError(
            f"{file}: the first line has no {separator!r} between column names{hint}; "
            f"it reads: {header[:100]}",
            likely[0] if likely else None,
        )
    text = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline="")
    try:
        names = next(csv.reader(text, delimiter=separator))
    except csv.Error as err:
        raise InputError(f"{file}: the first line cannot be read: {err}") from err
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{file}: the first line has more than {MOST_COLUMNS:,} columns; write scores of many "
            "classes as arrays, in Parquet or Delta"
        )
    refuse_repeated(file, names)


def refuse_repeated(file: str, names: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"{file}: columns named twice: {', '.join(map(repr, repeated))}")


def folder_columns(
    place: Location, files: list[PurePath], options: ds.CsvFileFormat, taken: Sequence[str]
) -> list[pa.Field]:
    """The columns of CSV files that folders such as day=3 tell, but for those in the files."""
    name, root = place.name, place.pure_path
    above = (part for file in files for part in file.relative_to(root).parts[:-1])
    keys = dict.fromkeys(part.partition("=")[0] for part in above if "=" in part[1:])
    new = [key for key in keys if key not in taken]
    if not new:
        return []
    if len(new) < len(keys):
        both = next(key for key in keys if key in taken)
        raise InputError(f"{name}: column {both!r} is in the files and in the names of folders")
    looked = ds.dataset(
        [str(file) for file in files],
        format=options,
        filesystem=place.file_system,
        partitioning=ds.partitioning(flavor="hive"),
        partition_base_dir=str(root),
    )
    return [looked.schema.field(key) for key in new]
