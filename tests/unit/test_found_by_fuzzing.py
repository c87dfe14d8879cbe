"""What `make fuzz`, and looking for what it might find, have found: each once, by its name."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.cli import main
from redcal_spark.cli.streams import printable
from redcal_spark.core.columns import Columns
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.errors import InputError, RunError
from tests.fuzz import base
from tests.helpers import refused

Told = tuple[int, str]


@pytest.fixture
def redcal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    """`redcal check`, with keys of a configuration of CSV scores set otherwise."""
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_bytes(base.csv_bytes(base.flat_rows()))

    def run(command: str = "check", **changes: Any) -> Told:
        tree = base.csv_config()
        for key, value in changes.items():
            section, name = key.split("__")
            tree[section][name] = value
        Path("c.yaml").write_bytes(base.dumped(tree))
        code = main([command, "-c", "c.yaml"])
        return code, capsys.readouterr().err

    return run


def test_as_it_stands_it_is_fine(redcal: Callable[..., Told]) -> None:
    assert redcal() == (0, "")


@pytest.mark.parametrize("lease", [10**9 + 1, 10**30, 1e300])
def test_a_lease_beyond_all_dates(redcal: Callable[..., Told], lease: Any) -> None:
    """OverflowError: Python int too large to convert to C int."""
    code, err = redcal(engine__lease=lease)
    assert code == 2
    assert "engine.lease: must be from 1 to 1000000000, got " in err
    assert redcal(engine__lease=10**9) == (0, "")


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3_000, "out/" + "é" * 200])
def test_names_that_are_too_long(redcal: Callable[..., Told], name: str) -> None:
    """OSError: File name too long."""
    code, err = redcal(input__table=name)
    assert code == 2
    assert err.startswith(f"redcal check: {name}: no such file or folder; looked for /")
    code, err = redcal(output__table=name)
    assert code == 2
    assert f"output.table: {name} cannot be made: File name too long\n" in err
    assert redcal("runs", output__table=name)[0] == 0
    assert redcal("log", output__table=name)[0] == 2


@pytest.mark.parametrize("sign", ["[", "]", "^", "|", "#", "?", "\\", "%41"])
def test_signs_that_delta_rs_takes_for_parts_of_an_address(
    redcal: Callable[..., Told], sign: str
) -> None:
    """It panicked (a traceback, for a panic is no Exception), or looked in another folder."""
    code, err = redcal("run", output__table=f"out/x{sign}y")
    assert code == 2
    place = os.path.join(os.getcwd(), f"out/x{sign}y")
    assert err.splitlines()[0] == (
        f"redcal run: output.table: out/x{sign}y cannot be written: delta-rs cannot open tables "
        f"with {sign!r} in their path ({place}); rename the folder"
    )
    for command in ("log", "runs", "evaluate", "export", "resume"):
        code, err = redcal(command, output__table=f"out/x{sign}y")
        assert (code, "panicked" in err) == (0 if command == "runs" else 2, False)
    assert not Path("out").exists()
    write_deltalake("plain", pa.table({"a": [1]}))
    os.rename("plain", f"x{sign}y")
    code, err = redcal(input__table=f"x{sign}y")
    assert code == 2
    assert err.startswith(f"redcal check: x{sign}y: delta-rs cannot open tables with ")
    os.makedirs(f"deep{sign}er")
    os.chdir(f"deep{sign}er")
    code, err = redcal("run", input__table="../scores.csv", output__table="out/rows")
    assert code == 2 and "delta-rs cannot open tables with" in err


def test_files_are_read_whatever_signs_are_in_their_names(redcal: Callable[..., Told]) -> None:
    os.rename("scores.csv", "a[b]#c?%41^|.csv")
    assert redcal(input__table="a[b]#c?%41^|.csv") == (0, "")


def test_a_panic_while_writing_is_a_failed_run(tmp_path: Path) -> None:
    class Panic(BaseException):
        """Rust's own comes from a module of this name."""

    Panic.__module__ = "pyo3_runtime"

    def put(*_: Any) -> None:
        raise Panic("gave up")

    store, table = DeltaRsStore(), pa.table({"a": [1]})
    from redcal_spark.backends.store import Commit

    name = str(tmp_path / "t")
    told = refused(
        RunError,
        lambda: store._put(name, table.schema, table.to_batches(), put, Commit("r", "f")),
    )
    assert told == f"{name}: could not be written: gave up"


def flipped(find: bytes, new: bytes, path: str) -> None:
    """Write good rows as Parquet, with some of its bytes changed."""
    table = pa.table({"name": ["aaaa", "bbbb"], "case": [1, 2]})
    pq.write_table(table, path, compression="none", use_dictionary=False, store_schema=False)
    data = Path(path).read_bytes()
    assert find in data
    Path(path).write_bytes(data.replace(find, new))


def test_parquet_columns_whose_names_are_no_utf8(tmp_path: Path) -> None:
    """UnicodeDecodeError, out of pyarrow's own code."""
    path = str(tmp_path / "x.parquet")
    flipped(b"name", b"na\x9ae", path)
    told = refused(InputError, lambda: DeltaRsStore().open(path))
    assert told.startswith(f"{path}: cannot be read as Parquet: 'utf-8' codec can't decode byte")


def test_parquet_values_that_are_no_utf8(tmp_path: Path) -> None:
    """pyarrow reads them; whoever shows one fails, and delta-rs refuses them without a name."""
    path = str(tmp_path / "x.parquet")
    flipped(b"bbbb", b"b\xffbb", path)
    told = refused(InputError, lambda: list(DeltaRsStore().open(path).batches()))
    assert told == f"{path}: cannot be read: Invalid UTF8 sequence at string index 1"
    # not asked for, not looked at
    assert sum(b.num_rows for b in DeltaRsStore().open(path).batches(["case"])) == 2


def test_a_folder_that_was_not_meant_is_not_searched_to_its_end(
    redcal: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`input.table: /` opened every file on the disk before it said a word."""
    Path("disk/a").mkdir(parents=True)
    Path("disk/a/program").write_bytes(b"\x7fELF\x02\x01\0\0")
    for i in range(50):
        Path(f"disk/b{i}").mkdir()
        Path(f"disk/b{i}/x.csv").write_text("a,b\n1,2\n")
    seen: list[str] = []
    walk = os.walk

    def watched(folder: Any) -> Any:
        for found in walk(folder):
            seen.append(found[0])
            yield found

    monkeypatch.setattr("os.walk", watched)
    code, err = redcal(input__table="disk")
    told = "redcal check: disk/a/program: is neither Parquet nor a CSV file in UTF-8\n"
    assert (code, err) == (2, told)
    assert seen == ["disk", "disk/a"]


def test_names_that_standard_output_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """UnicodeEncodeError: names of classes on a terminal that has ASCII alone."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert main(["check", "-c", "no such file"]) == 2
    print("São 漢字")
    out.flush()
    assert out.buffer.getvalue().endswith(b"S\\xe3o \\u6f22\\u5b57\n")


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[2Jb\r\u202ec\nd\te é 漢") == "a\\x1b[2Jb\\r\\u202ec\nd\\te é 漢"


@pytest.mark.parametrize("rows", [2**37, 10**300])
def test_models_of_more_rows_than_there_can_be(
    redcal: Callable[..., Told], rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    model = base.csv_model()
    Path("m.json").write_text(json.dumps(model | {"rows": rows}))
    Path("c.yaml").write_bytes(base.dumped(base.csv_config()))
    assert main(["apply", "-c", "c.yaml", "--model", "m.json"]) == 2
    assert f"m.json: damaged model: rows {rows}, n_classes 3" in capsys.readouterr().err


def tampered(folder: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    """A Delta table whose log says something else."""
    name = str(folder / "table")
    write_deltalake(name, pa.table({"a": [1, 2]}))
    log = folder / "table" / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        change(entry)
    log.write_text("\n".join(map(json.dumps, entries)))
    return name


def test_a_history_that_delta_rs_cannot_read(tmp_path: Path) -> None:
    """DeltaProtocolError: Invalid JSON in file stats."""
    name = tampered(tmp_path, lambda entry: entry.get("commitInfo", {}).update(operation=0))
    assert DeltaRsStore().open(name, "2100-01-01").count() == 2  # our own reader minds nothing


def test_commits_that_do_not_say_when_they_were_made(tmp_path: Path) -> None:
    """KeyError: 'timestamp'. Delta does not ask for it."""
    name = tampered(tmp_path, lambda entry: entry.get("commitInfo", {}).pop("timestamp", None))
    told = refused(InputError, lambda: DeltaRsStore().open(name, "2100-01-01"))
    assert told == f"{name}: has no version as old as 2100-01-01"
    assert DeltaRsStore().open(name, 0).count() == 2


@pytest.mark.parametrize("said", [5, [], {"redcal_run_id": 1}, "no JSON", None])
def test_commits_of_others_may_say_what_they_like(tmp_path: Path, said: Any) -> None:
    name = tampered(tmp_path, lambda entry: entry.get("commitInfo", {}).update(userMetadata=said))
    assert DeltaRsStore().last_writer(name) is None


@pytest.mark.parametrize("place", ["file", "/dev/null"])
def test_a_ledger_that_is_a_file(redcal: Callable[..., Told], place: str) -> None:
    """OSError: Unable to walk dir."""
    Path("file").touch()
    code, err = redcal("log", output__runs=place)
    assert code == 2
    assert f"no finished run of this configuration in {place}" in err
    code, err = redcal(output__runs=place)
    assert code == 2
    assert err.startswith("redcal check: output.runs: ")


def parquet_case(change: Callable[[pa.Table], pa.Table], **output: Any) -> bytes:
    """Lay out scores in Parquet, changed; returns the file."""
    tree = base.parquet_config()
    tree["output"] |= output
    Path("c.yaml").write_bytes(base.dumped(tree))
    made = base.parquet(change(pq.read_table(io.BytesIO(base.reference_parquet()))))
    Path("scores.parquet").write_bytes(made)
    return made


def beyond(table: pa.Table, name: str) -> pa.Table:
    """With a column of moments beyond Python's calendar."""
    moments = pa.array([2**62] * len(table), pa.int64()).view(pa.timestamp("ms"))
    return table.set_column(table.schema.get_field_index(name), name, moments)


def test_moments_beyond_the_calendar(
    redcal: Callable[..., Told], capsys: pytest.CaptureFixture[str]
) -> None:
    """OverflowError: Python int too large to convert to C int."""
    parquet_case(lambda table: beyond(table, "scores_a"))
    assert main(["check", "-c", "c.yaml"]) == 2
    shown = f"or one number; first: '[ <value out of range: {2**62}> ]'"
    assert shown in capsys.readouterr().err
    parquet_case(lambda table: beyond(table, "fold"), partition_by=["fold"])
    assert main(["run", "-c", "c.yaml"]) == 1  # Delta counts in microseconds
    assert "redcal run: out/result: could not be written: " in capsys.readouterr().err


def test_lists_as_ids(redcal: Callable[..., Told], capsys: pytest.CaptureFixture[str]) -> None:
    """TypeError: unhashable type: 'numpy.ndarray'."""

    def listed(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("case_id")
        return table.set_column(place, "case_id", pa.array([[1.0]] * len(table)))

    parquet_case(listed, mode="merge")
    assert main(["run", "-c", "c.yaml"]) == 2
    assert (
        "id column 'case_id' has type list<element: double>; an id is one text, number or date"
        in capsys.readouterr().err
    )


def test_a_chunk_that_was_tampered_with(redcal: Callable[..., Told]) -> None:
    """The process died: terminate called after throwing a ParquetException."""
    whole = parquet_case(lambda table: table)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in range(footer, len(whole) - 8):  # make an optional element a required one
        if whole[place] != 2:
            continue
        Path("scores.parquet").write_bytes(whole[:place] + b"\0" + whole[place + 1 :])
        try:
            pq.ParquetFile("scores.parquet").read(columns=["scores_a"])
        except OSError as err:
            if "histogram size mismatch" in str(err):
                break
        except pa.ArrowException:
            continue
    else:
        pytest.fail("no place where the histogram would not fit")
    command = [sys.executable, "-m", "redcal_spark.cli", "check", "-c", "c.yaml"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 2, told.stderr
    assert "scores.parquet: cannot be read: Definition level histogram size" in told.stderr


MANY = [f"labl{i}" for i in range(12_000)]


def large(kind: str) -> tuple[dict[str, Any], bytes]:
    """A configuration and a CSV file with thousands of what there should be a few of."""
    tree, data = base.csv_config(), base.csv_bytes(base.flat_rows())
    if kind == "keys":
        tree["input"] |= dict.fromkeys(MANY, 1)
    elif kind == "columns":
        tree["input"] |= {"model_1": MANY, "model_2": MANY[::-1]}
        tree |= {"losses": {}, "reconcile": {"algorithm": "reconcile", "alpha": 0.1, "eta": 0.1}}
    elif kind == "empty header":
        data = b"," * 70_000 + b"\n1,2\n"
    else:
        data = ",".join(MANY[:6_000]).encode() + b"\n1,2\n"
    return tree, data


@pytest.mark.parametrize("kind", ["keys", "columns", "header", "empty header"])
def test_thousands_of_mistakes_are_told_at_once(
    kind: str, redcal: Callable[..., Told], capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes: each was compared with every other."""
    tree, data = large(kind)
    Path("c.yaml").write_bytes(base.dumped(tree))
    Path("scores.csv").write_bytes(data)
    start = time.process_time()
    assert main(["check", "-c", "c.yaml"]) == 2
    assert time.process_time() - start < 5
    err = capsys.readouterr().err
    assert err.count("\n") <= 2 * 102
    if kind == "keys":
        assert err.startswith("redcal check: c.yaml: 12000 problems\n")
        assert err.endswith("  ... and 11900 more\n")
    if kind == "columns":
        assert "it has: case_id, outcome, a_0, a_1, a_2, b_0, b_1, b_2, fold\n" in err


def test_new_columns_of_many_losses_are_compared_at_once() -> None:
    losses = LossFamily.of({f"l{i}": [[0, 1], [1, 0]] for i in range(2_000)})
    names = OutputNames(Columns(("a", "b")), losses)
    start = time.process_time()
    names.check([], False, "x")
    assert time.process_time() - start < 2
