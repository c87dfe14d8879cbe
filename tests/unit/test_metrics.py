"""Metrics and history: at every point what the oracle computes from scratch."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark import Reconciler
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.backends.threads import ordered
from redcal_spark.core.arrow import batches, joined
from redcal_spark.core.history import Point, history, segments
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics, Totals, measure, optimal_label_sums
from redcal_spark.core.patches import Patch
from redcal_spark.core.scan import each_alone
from redcal_spark.core.sums import cell_score_sums
from redcal_spark.model.measurements import MEASURED, history_rows
from redcal_spark.runs.tables import OF_MODEL, PER_MODEL, SHARES
from tests import oracle, problems
from tests.helpers import block_of, brier, fit, gathered, log_of, reconciler, seeds
from tests.oracle import ALGORITHMS, ONE, Grid, Problem

SEEDS = range(700, 732)


def by_hand(problem: Problem, f1: Grid, f2: Grid) -> dict[str, object]:
    """Every metric from scratch, by the oracle's functions."""
    y = oracle.grid_labels(problem)
    run = oracle.Run(problem, y)
    run.f = {1: f1, 2: f2}
    n, rows = len(f1), list(range(len(f1)))
    found: dict[str, object] = {"brier": (brier(f1, y), brier(f2, y))}
    for place, (name, costs) in enumerate(problem.losses.items()):
        quantised = run.losses[name]
        acts = {
            i: [oracle.argmin(oracle.action_scores(quantised, row)) for row in run.f[i]]
            for i in (1, 2)
        }
        best = Fraction(0)
        for label in y:
            action = oracle.argmin(oracle.action_scores(quantised, label))
            best += sum(q * oracle.exact(c) for q, c in zip(label, costs[action], strict=True))
        best /= n * ONE
        differ = sum(a != b for a, b in zip(acts[1], acts[2], strict=True))
        found[f"disagreement {place}"] = Fraction(differ, n)
        for i in (1, 2):
            loss = oracle.decision_loss(problem, name, run.f[i])
            found[f"loss {place} {i}"] = (loss, loss - best)
            norms = []
            for action in range(len(costs)):
                residual = run.residual_sums(i, run.rows_acting(i, name, action, rows))
                norms.append(Fraction(oracle.dot(residual, residual), (n * ONE) ** 2))
            found[f"calibration {place} {i}"] = max(norms)
        if problem.algorithm in ("redcal", "dc_then_redcal"):
            events = [len(e[3]) for e in run.events() if e[0] == name]
            found[f"event {place}"] = Fraction(max(events), n)
        elif problem.algorithm == "reconcile":  # its alpha is of scores: every margin counts
            pairs = Counter(p for p in zip(acts[1], acts[2], strict=True) if p[0] != p[1])
            found[f"event {place}"] = Fraction(max(pairs.values(), default=0), n)
    if problem.algorithm == "reconcile":
        coordinates = [1] if problem.binary else range(run.d)
        far = [len(run.rows_beyond(j, ">") + run.rows_beyond(j, "<")) for j in coordinates]
        found["gap"] = Fraction(max(far), n)
    return found


def by_package(problem: Problem, totals: Totals, losses: LossFamily) -> dict[str, object]:
    m = Metrics(totals, losses)
    assert m.rows == len(problem.f1)
    found: dict[str, object] = {"brier": (m.brier(1), m.brier(2))}
    for place in range(len(problem.losses)):
        found[f"disagreement {place}"] = m.disagreement(place)
        for i in (1, 2):
            found[f"loss {place} {i}"] = (m.decision_loss(place, i), m.loss_gap(place, i))
            found[f"calibration {place} {i}"] = m.squared_calibration_gap(place, i)
        if problem.algorithm != "decision_calibration":
            found[f"event {place}"] = m.largest_event(place)
    if problem.algorithm == "reconcile":
        found["gap"] = m.largest_gap()
    return found


def case(seed: int) -> Problem:
    return problems.random_problem(
        seed, algorithm=ALGORITHMS[seed % 4], max_n=25, max_steps=12, vector_labels=seed % 3 == 0
    )


def points_of(problem: Problem, sizes: list[int], threads: int = 1) -> list[Point]:
    pair = fit(problem)
    model, found, layout = gathered(problem, sizes, threads)
    rules = model.problem.rules(layout.binary)
    spread = partial(ordered, threads=threads)
    return history(found.fit.totals, found.fit.scans, rules, pair.log, spread)


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_history_at_every_point_is_what_the_oracle_computes_from_scratch(seed: int) -> None:
    problem = case(seed)
    log, losses = log_of(fit(problem)), reconciler(problem).losses
    points = points_of(problem, [4, 7])
    assert points[-1].steps == len(log)
    for point in points:
        assert point.rounds == len({p["round"] for p in log[: point.steps]} - {None})
        scores = oracle.replay(problem, log[: point.steps])
        assert by_package(problem, point.totals, losses) == by_hand(problem, *scores)


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_blocks_and_threads_do_not_change_history(seed: int) -> None:
    problem, losses = case(seed), reconciler(case(seed)).losses
    one, two = points_of(problem, []), points_of(problem, [1] * len(problem.f1), threads=2)
    assert [(p.steps, p.rounds) for p in one] == [(p.steps, p.rounds) for p in two]
    for a, b in zip(one, two, strict=True):
        assert by_package(problem, a.totals, losses) == by_package(problem, b.totals, losses)


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_totals_add_up_and_can_be_taken_away(seed: int) -> None:
    problem = case(seed)
    model = reconciler(problem)
    rules, block = model.problem.rules(problem.binary), block_of(problem)
    whole = measure(block, rules)
    assert by_package(problem, whole, model.losses) == by_hand(
        problem, oracle.grid_scores(problem.f1), oracle.grid_scores(problem.f2)
    )
    parts = [measure(piece, rules) for piece in block.pieces(3)]
    total = sum(parts[1:], parts[0])
    assert by_package(problem, total, model.losses) == by_package(problem, whole, model.losses)
    rest = total - parts[0] + parts[0] + Totals.none(rules, block.n_classes)
    assert by_package(problem, rest, model.losses) == by_package(problem, whole, model.losses)


@pytest.mark.parametrize("actions", [[2], [7], [300], [3, 9], [9, 2, 9]])
@pytest.mark.parametrize("rows", [0, 1, 500, 40_000])
def test_sums_by_action_are_those_of_one_row_after_the_other(rows: int, actions: list[int]) -> None:
    """Few and many actions, few and many rows are summed in different ways. Actions may be unused.

    The scores are large: their sums must not be rounded.
    """
    rng, d = np.random.default_rng([rows, *actions]), 40
    losses = LossFamily.of({f"l{k}_{i}": rng.integers(0, 9, (k, d)) for i, k in enumerate(actions)})
    f = rng.integers(0, ONE, (rows, d), np.int32, endpoint=True)
    taken = np.stack([rng.integers(0, max(1, k - 1), rows) for k in actions])
    wanted = np.zeros((losses.n_cells, d), np.int64)
    for line, start in zip(taken, losses.offsets, strict=False):
        np.add.at(wanted, start + line, f)
    found = cell_score_sums(taken.astype(losses.action_type), f, losses)
    np.testing.assert_array_equal(found, wanted)


def test_class_labels_and_the_same_vectors_measure_alike() -> None:
    problem = problems.random_problem(5, algorithm="redcal", vector_labels=False)
    vectors = [[q / ONE for q in row] for row in oracle.grid_labels(problem)]
    model, found, _ = gathered(problem)
    _, other, _ = gathered(replace(problem, y=vectors))
    assert by_package(problem, found.fit.totals, model.losses) == by_package(
        problem, other.fit.totals, model.losses
    )


def test_the_optimum_by_hand() -> None:
    losses = {"triage": [[0.0, 5.1, 9.0], [1.0, 0.1, 0.0]]}
    scores = [[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]
    problem = Problem(scores, scores, [1, 0], losses, "redcal", 0.1, 0.1)
    model, found, _ = gathered(problem)
    m = Metrics(found.fit.totals, model.losses)
    # Row 0 is discharged and costs 5.1, row 1 treated and costs 1; knowing y: .1 and 0.
    assert m.decision_loss(0, 1) == Fraction("6.1") / 2
    assert m.optimal_loss(0) == Fraction("0.1") / 2
    assert m.loss_gap(0, 1) == 3


def test_the_optimum_takes_no_more_memory_than_the_losses() -> None:
    """A matrix of classes by classes would take 2 GiB for as many classes as are allowed."""
    d = 2_048
    family = LossFamily.of({"l": np.random.default_rng(0).random((3, d))})
    y = np.arange(10, dtype=np.int32)
    optimal_label_sums(y, d, family)
    tracemalloc.start()
    found = optimal_label_sums(y, d, family)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.sum() == 10 * ONE
    assert found[:, 3].argmax() == np.argmin(family[0].quantised[:, 3])
    assert peak < 4 * 2**20  # d * d * 8 is 32 MiB


# Where history measures


def calibration(step: int, round: int | None, model: int = 1) -> Patch:
    return Patch(step, round, "calibrate", model, None, "l", None, None, 0, None, None, 1, (1, 0))


def opening(step: int, round: int) -> Patch:
    return Patch(step, round, "reconcile", 1, 2, "l", 0, 1, None, None, None, 1, (1, 0))


def test_history_is_cut_at_the_ends_of_rounds() -> None:
    log = [opening(0, 0), calibration(1, 0), calibration(2, 0), opening(3, 1), opening(4, 2)]
    assert [[p.step for p in part] for part in segments(log, 10)] == [[0, 1, 2], [3], [4]]
    assert segments([], 10) == []


@pytest.mark.parametrize("steps", [1, 199, 200, 201, 1_000, 5_000])
def test_a_calibration_everywhere_has_at_most_200_points_for_each_model(steps: int) -> None:
    log = [calibration(i, None, 1 if i < steps // 3 else 2) for i in range(steps)]
    log += [opening(steps, 0), calibration(steps + 1, 0)]
    found = segments(log, 10)
    assert [p for part in found for p in part] == log
    assert found[-1] == log[-2:]
    assert len(found) - 1 <= 201
    assert all(len({p.model for p in part}) == 1 for part in found)


def chunked(rows: int, d: int) -> pa.Table:
    """Two rows a chunk, as when many small files were read."""
    rng = np.random.default_rng(8)
    one, two = rng.dirichlet(np.ones(d), (2, rows))
    columns = {"f": one.tolist(), "g": two.tolist(), "y": rng.integers(0, d, rows)}
    return pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=2))


def test_small_chunks_of_many_losses_take_no_memory_of_their_own() -> None:
    """The counts of all events would be 160 kB for each of them."""
    losses = {f"l{i}": np.random.default_rng(i).random((50, 3)).round(3) for i in range(8)}
    parameters: dict[str, Any] = {"alpha": 0.01, "eta": 0.2, "beta": 0.1, "max_steps": 1}
    columns: dict[str, Any] = {"model_1": "f", "model_2": "g", "label": "y"}
    problem = Reconciler(losses=losses, **parameters, **columns).problem
    table = chunked(1_200, 3)
    for pieces in (each_alone(batches(table)), each_alone(joined(batches(table)))):
        tracemalloc.start()
        result, _ = gather_pieces(problem, pieces, table.schema, "x", threads=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.fit.rows == 1_200
        assert peak < 20e6  # 96 MB if they were kept


def test_small_chunks_are_joined_up_to_a_bound() -> None:
    table = chunked(10_000, 2)
    found = list(joined(batches(table)))
    assert [batch.num_rows for batch in found] == [4_096, 4_096, 1_808]
    assert pa.Table.from_batches(found).combine_chunks() == table.combine_chunks()
    large = pa.table({"x": range(200_000)})
    assert list(joined(batches(large))) == list(batches(large))


@pytest.mark.parametrize("losses", [True, False])
def test_every_number_has_its_column_and_its_place_in_the_metrics(losses: bool) -> None:
    """What a history row has, what its table has, and what the table of metrics has of it."""
    problem = problems.random_problem(1, algorithm="redcal" if losses else "reconcile")
    problem = problem if losses else replace(problem, losses={})
    points = points_of(problem, [4, 7])
    rows = list(history_rows(reconciler(problem).losses, {"fit": points}))
    columns = {name for name, *_ in MEASURED}
    for row in rows:
        assert set(row) <= columns, f"MEASURED has no {set(row) - columns}"
    if losses:
        assert set(rows[0]) == columns, f"measurements has no {columns - set(rows[0])}"
        numbers = {name for name, kind, _ in MEASURED if pa.types.is_float64(kind)}
        told = Counter([*OF_MODEL, *PER_MODEL, *SHARES])
        assert told == Counter(numbers), "OF_MODEL, PER_MODEL and SHARES of runs/tables.py"
