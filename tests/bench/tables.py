"""Tables end to end: what the command line does, against bare reading and writing.

All cores are used, by us and by pyarrow. Data is made in a temporary folder and removed at the end.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.backend import Backend, Scan
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import config_from_tree
from redcal_spark.core.arrow import BATCH
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.problem import Problem
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs import start
from redcal_spark.runs.job import Job
from tests.bench import data
from tests.bench.memory import peak_bytes
from tests.bench.timing import Ratio, Result, best, timed

CLASSES = ACTIONS = 10
ALPHA, ETA = 1e-3, 1e-2
COLUMNS = ["scores_a", "scores_b", "label", "id"]
MOST_PATCHES = 100  # of the log that is applied
TWO = {"model_1": "scores_a", "model_2": "scores_b"}
MEMORY = 1.5 * 2**30  # bytes, beside the active rows


@dataclass(frozen=True)
class Sizes:
    rows: int = 10_000_000
    repeats: int = 5


QUICK = Sizes(rows=60_000, repeats=1)

# How far apart the models are: noise and tilt. 8 and 28 per cent of the rows are active.
ALIKE, APART = (0.1, 0.05), (0.35, 0.2)


@cache
def _folder() -> Path:
    """Emptied when the process ends."""
    made = tempfile.TemporaryDirectory(prefix="redcal_bench_")
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def scores(rows: int, noise: float, tilt: float) -> str:
    path = _folder() / f"scores_{rows}_{noise}.parquet"
    data.write_parquet(path, rows, CLASSES, seed=1, noise=noise, tilt=tilt)
    return str(path)


def job(
    table: str,
    target: Path,
    losses: LossFamily | None = None,
    work: Backend | None = None,
    segments: Sequence[str] = (),
    given: Mapping[str, Any] = TWO,
    **parameters: Any,
) -> Job:
    """The job that the command line would make of a configuration file; in memory unless said.

    given: the columns of models and weights, as the section `input` names them.
    """
    losses = losses or data.losses(1, CLASSES, ACTIONS)
    config = config_from_tree(
        {
            "input": {
                "table": table,
                "id": "id",
                "label": "label",
                **given,
                **({"segments": list(segments)} if segments else {}),
            },
            "losses": {
                loss.name: {"costs": [list(row) for row in loss.costs]} for loss in losses.losses
            },
            "reconcile": {"alpha": ALPHA, "eta": ETA} | parameters,
            "output": {"table": str(target)},
        }
    )
    return Job(config, work or LocalBackend(DeltaRsStore()))


# --- bare reading and writing -------------------------------------------------------------------


def read_whole(table: str, columns: list[str]) -> int:
    return int(pq.read_table(table, columns=columns).num_rows)


def read_by_scanner(table: str, columns: list[str]) -> int:
    return sum(batch.num_rows for batch in ds.dataset(table).to_batches(columns=columns))


def read_by_file(table: str, columns: list[str]) -> int:
    return sum(batch.num_rows for batch in batches_of(table, columns))


def batches_of(table: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Of a file, or of the files of a folder."""
    for path in files_of(table):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(BATCH, columns=columns)


def files_of(table: str) -> list[Path]:
    path = Path(table)
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


READERS: dict[str, Callable[[str, list[str]], int]] = {
    "read_table": read_whole,
    "dataset scanner": read_by_scanner,
    "ParquetFile.iter_batches": read_by_file,
}


def write(target: Path, reader: pa.RecordBatchReader) -> None:
    shutil.rmtree(target, ignore_errors=True)
    write_deltalake(str(target), reader)


# --- measurements -------------------------------------------------------------------------------


def fit(sizes: Sizes) -> Result:
    """`redcal fit` against reading the same columns and no more.

    Each time in a process of its own, as people run them, and in turns. What a reader leaves in
    memory is not given back: the next one finds its pages made, and what follows it finds none.
    """
    ratios, notes = [], []
    for called, apart in (("alike", ALIKE), ("apart", APART)):
        table, target = scores(sizes.rows, *apart), _folder() / "fit" / "rows"
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*READERS, "fit")}
        for _ in range(sizes.repeats):
            for name, told in found.items():
                shutil.rmtree(target.parent, ignore_errors=True)
                told.append(alone(name, table, target))
        times = {name: min(x["seconds"] for x in told) for name, told in found.items()}
        bare = {name: times[name] for name in READERS}
        quickest = min(bare, key=lambda name: bare[name])
        what = f"fit: {sizes.rows:,} rows, d = K = 10, models {called}, against a bare read"
        ratios.append(Ratio(what, times["fit"], bare[quickest], "cost", 2.5))
        reads = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in bare.items())
        row = min(found["fit"], key=lambda x: x["seconds"])
        phases = row["phases"]
        notes.append(
            f"fit, models {called}: {row['patches']} patches in {row['rounds']} rounds, "
            f"{row['status']}; of it scan {phases['scan']:.1f} s, patches {phases['fit']:.1f} s, "
            f"holdout {phases['holdout']:.1f} s; bare reads: {reads}; the quickest counts"
        )
    return Result(ratios, notes)


def alone(name: str, table: str, target: Path) -> dict[str, Any]:
    """A fit, or a reader by its name, timed in a process of its own."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.bench.tables", "time", name, table, str(target)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def time_one(name: str, table: str, target: str) -> dict[str, Any]:
    if name != "fit":
        return {"seconds": timed(lambda: READERS[name](table, COLUMNS))}
    rows: list[Any] = []
    seconds = timed(lambda: rows.append(start.fit(job(table, Path(target))).row))
    [row] = rows
    told = {"patches": row.patches, "rounds": row.rounds, "status": row.status}
    return told | {"seconds": seconds, "phases": json.loads(row.timings)}


def apply(sizes: Sizes) -> Result:
    """`redcal apply` against reading and writing columns as many and as large as its own."""
    table, folder = scores(sizes.rows, *APART), _folder()
    pair = _pair(table)
    ours, bare = folder / "apply" / "rows", folder / "bare"
    start.apply(job(table, ours), pair)
    output = folder / "output.parquet"
    copy(ours, output)

    def run() -> None:
        shutil.rmtree(ours.parent, ignore_errors=True)
        start.apply(job(table, ours), pair)

    ways = copies(output, bare)
    times = best(ways | {"apply": run}, sizes.repeats)
    quickest = min(ways, key=lambda name: times[name])
    what = f"apply: {sizes.rows:,} rows, {len(pair.log)} patches, against a bare read and write"
    told = ", ".join(f"{name} {times[name]:.1f} s" for name in ways)
    for path in (ours.parent, bare):
        shutil.rmtree(path, ignore_errors=True)
    output.unlink()
    return Result(
        [Ratio(what, times["apply"], times[quickest], "cost", 2)],
        [
            "apply: the baseline reads a Parquet file with all columns of the output and writes "
            f"them by delta-rs; {told}; the quickest counts"
        ],
    )


def copies(output: Path, bare: Path) -> dict[str, Callable[[], None]]:
    """Ways to read a Parquet file and write what it has by delta-rs."""

    def streamed() -> None:
        schema = pq.read_schema(output)
        write(bare, pa.RecordBatchReader.from_batches(schema, batches_of(str(output), None)))

    def scanned() -> None:
        write(bare, ds.dataset(output).scanner().to_reader())

    def whole() -> None:
        write(bare, pq.read_table(output).to_reader())

    return {"streamed": streamed, "scanned": scanned, "whole": whole}


def _pair(table: str) -> ReconciledPair:
    outcome = start.fit(job(table, _folder() / "pair" / "rows", max_steps=MOST_PATCHES))
    assert outcome.pair is not None
    return outcome.pair


def copy(source: Path, target: Path) -> None:
    """A Delta table's rows as one Parquet file, in the form of the input."""
    found = DeltaTable(str(source)).to_pyarrow_dataset()
    with pq.ParquetWriter(target, found.schema, compression="zstd") as file:
        for batch in found.to_batches(batch_size=data.ROW_GROUP, fragment_readahead=1):
            file.write_batch(batch)


def memory(sizes: Sizes) -> Result:
    """The most memory that `redcal fit` needs, in a process of its own."""
    notes = []
    for called, apart in (("alike", ALIKE), ("apart", APART)):
        target = _folder() / f"memory_{called}" / "rows"
        told = subprocess.run(
            [
                *(sys.executable, "-m", "tests.bench.tables", "peak"),
                *(scores(sizes.rows, *apart), str(target)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        peak, active = map(int, told.stdout.split())
        met = "yes" if peak - active <= MEMORY else "NO"
        notes.append(
            f"memory of fit, {sizes.rows:,} rows, models {called}: {peak / 2**30:.2f} GiB at its "
            f"peak, of which active rows {active / 2**30:.2f} GiB; at most {MEMORY / 2**30} GiB "
            f"beside them: {met}"
        )
    return Result([], notes)


def peak_of_fit(table: str, target: str) -> tuple[int, int]:
    """Bytes of this process at its peak after a fit, and of the active rows."""
    work = job(table, Path(target))
    active = active_bytes(work)
    start.fit(work)
    return peak_bytes(), sum(active)


def active_bytes(work: Job) -> list[int]:
    """Filled by the job's scan: the bytes of the active rows that it kept in memory."""
    scan, found = work.scan, []

    def counted(problem: Problem | None = None) -> Scan:
        scanned = scan(problem)
        found.append(sum(block.nbytes for block in scanned.gathered.fit.active))
        return scanned

    work.scan = counted  # type: ignore[method-assign]
    return found


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {
    "fit_table": fit,
    "apply_table": apply,
    "memory": memory,
}

if __name__ == "__main__":
    what, *given = sys.argv[1:]
    print(*peak_of_fit(*given)) if what == "peak" else print(json.dumps(time_one(*given)))
