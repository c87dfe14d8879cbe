"""Lazy handover: rows come to the driver by event, and every count is that of all rows."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from redcal_spark.algorithms.redcal import redcal
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.backends import threads
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.spark import budget
from redcal_spark.backends.spark.cells import SinkOf, read_cells, row
from redcal_spark.backends.spark.lazy import LazyEngine, Room
from redcal_spark.backends.spark.statistics import MergeTask
from redcal_spark.backends.spark.tasks import (
    AskTask,
    BlockState,
    KeepTask,
    Question,
    ScanTask,
    answer,
)
from redcal_spark.backends.spark.written import Manifest
from redcal_spark.core import groups
from redcal_spark.core.blocks import Block
from redcal_spark.core.events import Disagreement
from redcal_spark.core.packing import gathered_of, unpack, unpack_block
from redcal_spark.core.rows import Rows
from redcal_spark.core.scan import ScanResult
from redcal_spark.errors import ScratchError
from tests import problems
from tests.helpers import batches_of, fit, gathered, log_of, quietly, reconciler
from tests.oracle import Problem

SEEDS = range(40)


def case(seed: int, **fixed: Any) -> Problem:
    """Of two, three or five models."""
    given: dict[str, Any] = {"max_n": 60, "max_steps": 60, "models": (2, 3, 5)[seed % 3]}
    return problems.random_problem(seed, **{"algorithm": "redcal"} | given | fixed)


class Written:
    """What two tasks wrote, looked at without a Spark: as rows, or in files of a folder."""

    def __init__(self, problem: Problem, folder: Path | None):
        with quietly():
            self.problem = reconciler(problem).problem
        _, self.scanned, self.layout = gathered(problem)
        rows = batches_of(problem, [7, 5])
        sink = SinkOf(None if folder is None else str(folder))
        names = tuple(rows[0].schema.names)
        task = ScanTask(self.problem.scanner(self.layout), names, sink=sink)
        self.sent = [batch for share in (rows[::2], rows[1::2]) for batch in task(share)]
        self.manifest = Manifest(cells_in(self.sent))
        self.folder = folder
        self.fetched: list[list[int] | None] = []

    def passed(self, *_: Any) -> Any:
        raise AssertionError("no job is needed")

    def fetch(self, kind: str, wanted: Sequence[int] | None = None) -> Iterator[memoryview]:
        self.fetched.append(None if wanted is None else sorted(wanted))
        if self.folder is None:
            for batch in self.sent:
                place = batch.column("group")[0].as_py()
                if batch.column("kind")[0].as_py() == kind and place in (wanted or ()):
                    yield memoryview(batch.column("data")[0].as_buffer())
            return
        cells = [c for c in self.manifest.cells if c.kind == kind and c.group in (wanted or ())]
        yield from (data for _, data in read_cells(str(self.folder), cells))

    def lazy(self, most: int = 10**6, threads: int = 1) -> LazyEngine:
        fit_part = self.scanned.fit
        resolved = self.problem.parameters.resolve(fit_part.rows, self.layout.n_classes)
        assert resolved.eta is not None
        large = max(1, -int(-resolved.eta * fit_part.rows // 1))
        rules = self.problem.fitting_rules(self.layout)
        return LazyEngine(self, rules, fit_part.rows, Room(most, large, threads))


def cells_in(batches: Sequence[Any]) -> list[tuple[str, Any]]:
    return [
        (b.column("kind")[0].as_py(), b.column("data")[0].as_buffer())
        for b in batches
        if b.column("kind")[0].as_py() not in ("fit", "holdout")
    ]


class Watched:
    """The lazy engine, whose counts are compared with those of all rows, patched from the start."""

    def __init__(self, written: Written, run: Trajectory):
        self.lazy, self.written, self.run = written.lazy(), written, run
        self.rows, self.totals, self.looks = written.scanned.fit.rows, None, 0
        self.models = written.problem.columns.n_models

    def disagreements(self) -> Any:
        self.looks += 1
        scanned, rules = self.written.scanned, self.written.problem.fitting_rules
        every = LocalEngine(scanned.fit.scans, self.rows, rules(self.written.layout), 1)
        region = every.replay(self.run.patches)
        if region is not None:
            region.close()
        counts = self.lazy.disagreements()
        for ours, theirs in zip(counts, every.disagreements(), strict=True):
            assert (ours == theirs).all()
        every.close()
        return counts

    def freeze(self, event: Any) -> Any:
        return self.lazy.freeze(event)

    def replay(self, log: Any) -> None:
        raise AssertionError("not a run that goes on")

    gaps = patch = close = replay


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("events", [1 << 20, 7])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_and_every_count_are_those_of_all_rows(
    seed: int, events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where events share groups, with several losses, in rows and in files."""
    monkeypatch.setattr(groups, "COUNTS_AT_MOST", events)
    problem = case(seed)
    written = Written(problem, tmp_path if seed % 2 else None)
    given = written.problem
    resolved = given.parameters.resolve(written.scanned.fit.rows, written.layout.n_classes)
    run = Trajectory(given.parameters, resolved, given.losses)
    engine = Watched(written, run)
    status = redcal(engine, run)  # type: ignore[arg-type]
    with quietly():
        pair = fit(problem)
    assert list(run.log) == list(pair.log)
    assert status == pair.status
    assert engine.looks
    engine.lazy.close()


@pytest.mark.slow
def test_there_is_something_to_see() -> None:
    """Several losses, rows active under later ones only, rounds after the first, and no fetch."""
    logs = [log_of(fit(case(seed))) for seed in SEEDS]
    assert sum(len({p["round"] for p in log}) > 2 for log in logs) >= 5
    assert sum(len(case(seed).losses) > 1 for seed in SEEDS) >= 10


def test_a_group_is_fetched_once_and_only_when_it_is_wanted(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    f1, f2 = rng.dirichlet([1] * 3, 400), rng.dirichlet([1] * 3, 400)
    costs = {"t": [[0.0, 5.0, 9.0], [1.0, 0.0, 3.0], [4.0, 2.0, 0.0]]}
    problem = Problem(
        *(f1.tolist(), f2.tolist(), rng.integers(0, 3, 400).tolist(), costs),
        algorithm="redcal",
        alpha=0.01,
        eta=0.2,
    )
    written = Written(problem, tmp_path)
    lazy = written.lazy()
    counts = lazy.disagreements()[0]
    order = np.argsort(-counts, axis=None)[:2]
    for place in (*order, *order):
        a1, a2 = divmod(int(place), 3)
        region = lazy.freeze(Disagreement(0, a1, a2))
        assert region is not None
        region.close()
        assert (lazy.disagreements()[0] == counts).all()
    assert written.fetched == [[int(order[0])], [int(order[1])]]
    lazy.close()


def test_more_than_the_driver_may_hold_is_left_where_it_is(tmp_path: Path) -> None:
    written = Written(case(3), tmp_path)
    counts = written.lazy().disagreements()
    lazy = written.lazy(most=1)
    assert max(count.max() for count in counts) > 1
    assert lazy.freeze(largest(lazy)) is None
    assert written.fetched == []
    assert all((a == b).all() for a, b in zip(counts, lazy.disagreements(), strict=True))


def test_dropped_rows_are_given_back_though_someone_still_has_the_region(tmp_path: Path) -> None:
    lazy = Written(case(3), tmp_path).lazy()
    region = lazy.freeze(largest(lazy))
    assert region is not None
    old = [weakref.ref(part) for part in lazy.held._parts]
    assert old
    region.close()
    lazy.held.compact()
    assert [part() for part in old] == [None] * len(old)
    lazy.close()


def test_rows_are_taken_over_by_the_engines_own_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would each keep memory that they freed: a hundred MiB and more in all."""
    lazy = Written(case(3), tmp_path).lazy(threads=2)

    def more(*_: object) -> NoReturn:
        raise AssertionError("more threads")

    monkeypatch.setattr(threads, "ThreadPoolExecutor", more)
    region = lazy.freeze(largest(lazy))
    assert region is not None and lazy.held.held_rows
    lazy.close()


def largest(lazy: LazyEngine) -> Disagreement:
    counts = lazy.disagreements()
    loss = max(range(len(counts)), key=lambda place: counts[place].max())
    return Disagreement(loss, *divmod(int(counts[loss].argmax()), len(counts[loss][0])))


# --- statistics that are added up on workers -----------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_what_workers_add_up_is_what_the_driver_would(seed: int, tmp_path: Path) -> None:
    written = Written(case(seed), tmp_path)
    small = [b for b in written.sent if b.column("kind")[0].as_py() not in ("fit", "holdout")]
    merged = list(MergeTask("scan")(small))
    kinds = [b.column("kind")[0].as_py() for b in merged]
    assert kinds.count("statistics") == kinds.count("groups") == 1
    one, two = Manifest(cells_in(small)), Manifest(cells_in(merged))
    rules = written.problem.rules(False)
    assert (one.groups(rules).counts == two.groups(rules).counts).all()
    assert (one.groups(rules).rows == two.groups(rules).rows).all()
    assert sorted(one.cells) == sorted(two.cells)
    assert (one.rows, one.bytes) == (two.rows, two.bytes)
    [whole] = two.statistics
    total = ScanResult.nothing(
        written.problem.rules(written.layout.binary), written.layout.n_classes
    )
    for data in one.statistics:
        total.merge(gathered_of(*unpack(data)))
    again = gathered_of(*unpack(whole))
    assert (again.rows, again.fit.rows) == (total.rows, total.fit.rows)
    assert again.fit.totals.brier == total.fit.totals.brier
    assert (again.fit.totals.labels[1] == total.fit.totals.labels[1]).all()


def test_a_lost_or_cut_off_file_is_noticed(tmp_path: Path) -> None:
    written = Written(case(1), tmp_path)
    [file, *_] = tmp_path.glob("*.cells")
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ScratchError, match="cut off"):
        list(read_cells(str(tmp_path), written.manifest.cells))
    file.unlink()
    with pytest.raises(ScratchError, match="cannot be read"):
        list(read_cells(str(tmp_path), written.manifest.cells))
    assert row("fit", 1, b"")["rows"].to_pylist() == [1]


# --- the budget ----------------------------------------------------------------------------------


def machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, files: dict[str, str]
) -> int:
    """The budget of a process in a control group of a machine with 8 GiB free."""
    (folder / "self").mkdir()
    (folder / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {8 * 2**20} kB\n")
    (folder / "self" / "cgroup").write_text(group)
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(budget, "PROC", folder)
    monkeypatch.setattr(budget, "CGROUPS", folder / "groups")
    monkeypatch.delenv(budget.SERVERLESS, raising=False)
    return budget.budget_of("auto")


@pytest.mark.parametrize(
    ("group", "files", "gib"),
    [
        ("0::/\n", {}, 8),
        ("0::/job\n", {"job/memory.max": "max", "job/memory.current": "5"}, 8),
        ("0::/job\n", {"job/memory.max": str(3 << 30), "job/memory.current": str(1 << 30)}, 2),
        (
            "0::/pod/job\n",
            {
                "pod/memory.max": str(4 << 30),
                "pod/memory.current": str(3 << 30),
                "pod/memory.stat": f"anon 5\ninactive_file {2 << 30}\n",
            },
            3,
        ),
        (
            "5:cpu:/x\n4:memory:/job\n",
            {
                "memory/job/memory.limit_in_bytes": str(2 << 30),
                "memory/job/memory.usage_in_bytes": str(1 << 30),
            },
            1,
        ),
    ],
)
def test_the_budget_is_a_quarter_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, files: dict[str, str], gib: int
) -> None:
    assert machine(tmp_path, monkeypatch, group, files) == gib << 28


def test_budgets_that_no_memory_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert budget.budget_of(0) == 0 and budget.budget_of(77) == 77
    monkeypatch.setattr(budget, "PROC", tmp_path)  # as on a system without it
    assert budget.budget_of("auto") == 256 << 20
    monkeypatch.undo()
    monkeypatch.setenv(budget.SERVERLESS, "TRUE")
    assert budget.budget_of("auto") == 256 << 20


# --- questions about more than two models ---------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["redcal", "reconcile"])
@pytest.mark.parametrize("seed", range(4))
def test_tasks_answer_what_all_rows_say(seed: int, algorithm: str) -> None:
    """After every patch: counts, sums and gaps of all pairs, and the rows of the next event."""
    problem = case(seed, algorithm=algorithm, models=3, max_n=40, max_steps=20)
    with quietly():
        pair, written = fit(problem), Written(problem, None)
    cells = [
        batch.select(["kind", "data"])
        for batch in written.sent
        if batch.column("kind")[0].as_py() == "fit"
    ]
    rules = written.problem.fitting_rules(written.layout)
    blocks = [unpack_block(batch.column("data")[0].as_buffer()) for batch in cells]
    rows = Rows(Block.concat(blocks), rules) if blocks else None
    for step, patch in enumerate([*pair.log, None]):
        if rows is None:
            break
        state = BlockState(rules, tuple(pair.log[:step]))
        asked: list[Question] = ["sums", "gaps"] if algorithm == "reconcile" else ["sums"]
        if algorithm == "redcal" and (patch is None or patch.kind == "reconcile"):
            asked.append("events")
        for question in asked:
            told = list(AskTask(state, question)(iter(cells)))[-1]
            _, found = unpack(told.column("data")[0].as_buffer())
            expected = answer(rows, question)
            assert found.keys() == expected.keys()
            assert all((found[name] == expected[name]).all() for name in expected)
        if patch is not None and patch.kind == "reconcile":
            event = patch.event(rules.losses)
            assert isinstance(event, Disagreement)
            kept = KeepTask(state, event)(iter(cells))
            of_event = [b for b in kept if b.column("kind")[0].as_py() == "fit"]
            assert sum(b.column("rows")[0].as_py() for b in of_event) == patch.rows
        if patch is not None:
            rows.apply(patch)
