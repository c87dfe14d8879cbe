"""What holds on every problem: Brier, replay, refit, resume, save and load, untouched rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from redcal_spark import ReconciledPair
from redcal_spark.core.rows import replay
from redcal_spark.model.named_log import NamedLog
from tests import oracle, problems
from tests.helpers import (
    DRAWN,
    Array,
    apply,
    arrays,
    block_of,
    check_brier,
    fit,
    fit_gathered,
    fitted,
    gathered,
    log_of,
    prefix,
    quietly,
    reconciler,
    reordered,
    seeds,
    with_scores,
)
from tests.oracle import ALGORITHMS, ONE, Problem

SEEDS = range(60)
CONVERGING = range(100, 140)


@cache
def case(seed: int) -> tuple[Problem, ReconciledPair]:
    """A problem and its fit; the algorithms take turns."""
    problem = problems.random_problem(seed, algorithm=ALGORITHMS[seed % 4])
    return problem, fit(problem)


@cache
def converged(seed: int, width: Any = np.float64) -> tuple[Problem, ReconciledPair]:
    """A converged run of ReDCal on a problem that moves, or the next one that is so."""
    while True:
        problem = problems.random_problem(seed, algorithm="redcal", max_rounds=200, max_steps=200)
        f1, f2 = (np.array(f).astype(width).tolist() for f in (problem.f1, problem.f2))
        problem = replace(problem, f1=f1, f2=f2)
        pair = fit(problem)
        if pair.status == "converged" and pair.log:
            return problem, pair
        seed += 1_000


# Brier


@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_every_patch_lowers_the_brier_sum_by_what_its_mean_says(seed: int) -> None:
    problem, pair = case(seed)
    scores = check_brier(block_of(problem), pair.rules, pair.log)
    assert fitted(pair, problem) == tuple(f.tolist() for f in scores)


@DRAWN
@given(problems.problems())
def test_drawn_problems_lower_it_too(problem: Problem) -> None:
    pair = fit(problem)
    check_brier(block_of(problem), pair.rules, pair.log)


# Replay


@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_replay_on_other_unlabelled_rows_is_the_oracles(seed: int) -> None:
    problem, pair = case(seed)
    d = 2 if problem.binary else len(problem.f1[0])
    other = problems.random_problem(seed + 500, binary=problem.binary, d=d, n=30)
    rows = replace(problem, f1=other.f1 + problem.f1[:5], f2=other.f2 + problem.f2[:5], y=[])
    assert fitted(pair, rows) == oracle.replay(rows, log_of(pair))


@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_replay_looks_at_no_label_and_leaves_its_input_alone(seed: int) -> None:
    problem, pair = case(seed)
    block = block_of(problem)
    before = [f.copy() for f in block.f]
    done = replay(replace(block, y=None), pair.rules, pair.log)
    assert tuple(f.tolist() for f in done.f) == fitted(pair, problem)
    assert all(map(np.array_equal, block.f, before))


@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_every_prefix_of_a_log_is_a_model(seed: int) -> None:
    problem, pair = case(seed)
    for cut in {0, 1, len(pair.log) // 2, len(pair.log) - 1} & set(range(len(pair.log))):
        part = replace(pair, log=NamedLog(prefix(log_of(pair)[:cut])))
        assert fitted(part, problem) == oracle.replay(problem, log_of(part))


# Untouched rows


@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_rows_that_no_patch_touched_keep_their_floats_to_the_bit(seed: int) -> None:
    problem, pair = case(seed)
    nudge = 2.0**-40  # far below the grid, so that going through the grid would lose it
    f1, f2, _ = (np.array(x, dtype=np.float64) for x in arrays(problem))
    f1, f2 = np.where(f1 < 0.5, f1 + nudge, f1 - nudge), np.where(f2 < 0.5, f2 + nudge, f2 - nudge)
    with quietly():
        new = pair.apply(f1, f2)
    run = oracle.Run(problem)
    touched: dict[int, set[int]] = {1: set(), 2: set()}
    for line in log_of(pair):
        touched[line["model"]] |= set(run.rows_of(line))
        run.replay(line)
    for model, old, found in ((1, f1, new[0]), (2, f2, new[1])):
        still = [i for i in range(len(old)) if i not in touched[model]]
        assert found[still].tobytes() == old[still].tobytes()
        moved = found[sorted(touched[model])]
        assert np.array_equal(moved * ONE, np.rint(moved * ONE))


@pytest.mark.parametrize("kind", ["numpy", "pandas", "arrow"])
def test_float32_scores_are_widened(kind: str) -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    f1, f2 = (np.array(f, dtype=np.float32) for f in (problem.f1, problem.f2))
    model = reconciler(problem)
    pair = model.fit(f1, f2, np.array(problem.y))
    new1, new2 = pair.apply(f1, f2) if kind == "numpy" else through(kind, pair, f1, f2, problem.y)
    assert new1.dtype == new2.dtype == np.float64
    still = [i for i in range(len(f1)) if not 40 <= i < 50]  # f1 is patched on the second unit
    assert new1[still].tobytes() == f1[still].astype(np.float64).tobytes()
    assert (new1[40:50] != f1[40:50]).all()


# Fitting again


@pytest.mark.parametrize("seed", seeds(CONVERGING, 20))
def test_fitting_again_on_the_output_gives_no_patch(seed: int) -> None:
    problem, pair = converged(seed)
    f1, f2 = apply(pair, problem)
    again = fit(replace(problem, f1=f1.tolist(), f2=f2.tolist()))
    assert (again.status, again.log) == ("converged", ())
    on_grid = fit(with_scores(problem, *fitted(pair, problem)))
    assert (on_grid.status, on_grid.log) == ("converged", ())


def through(kind: str, pair: ReconciledPair, f1: Array, f2: Array, y: Any) -> list[Array]:
    """Apply to a table; the reconciled columns as arrays."""
    columns = {"model_1": list(f1), "model_2": list(f2), "label": list(np.asarray(y))}
    data: Any = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if f1.ndim == 1:
        data = data.astype({"model_1": f1.dtype, "model_2": f2.dtype})
    if kind == "arrow":
        data = pa.Table.from_pandas(data, preserve_index=False)
    with quietly():
        done = pair.apply(data)
    new = (done[name] for name in ("model_1_reconciled", "model_2_reconciled"))
    return [np.array(x.to_pylist() if kind == "arrow" else x.tolist()) for x in new]


@pytest.mark.parametrize("width", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
@pytest.mark.parametrize("seed", seeds(CONVERGING[:12], 6))
def test_fitting_again_through_a_table_gives_no_patch(seed: int, kind: str, width: Any) -> None:
    problem, expected = converged(seed, width)
    f1, f2 = (np.array(f).astype(width) for f in (problem.f1, problem.f2))
    y = arrays(problem)[2]
    model = reconciler(problem)
    with quietly():
        pair = model.fit(f1, f2, y)
        assert pair.log == expected.log
        new1, new2 = through(kind, pair, f1, f2, y)
        again = model.fit(new1, new2, y)
    assert (again.status, again.log) == ("converged", ())


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
@pytest.mark.parametrize("seed", seeds(CONVERGING[:12], 6))
def test_fitting_again_on_the_new_columns_of_the_same_table(seed: int, kind: str) -> None:
    problem, pair = converged(seed)
    f1, f2, y = arrays(problem)
    data: Any = pd.DataFrame({"model_1": list(f1), "model_2": list(f2), "label": list(y)})
    if kind == "arrow":
        data = pa.Table.from_pandas(data, preserve_index=False)
    with quietly():
        done = pair.apply(data)
        names = {f"model_{i}": f"model_{i}_reconciled" for i in (1, 2)}
        again = reconciler(problem, 1, **names).fit(done)
    assert (again.status, again.log) == ("converged", ())


# Resuming


@pytest.mark.quick_cases(14)
@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_a_log_cut_anywhere_and_continued_gives_the_same_log(seed: int) -> None:
    problem = problems.random_problem(
        seed + 200, algorithm=ALGORITHMS[seed % 4], adaptive_beta=seed % 8 >= 4, max_steps=14
    )
    whole = fit(problem)
    for cut in range(len(whole.log) + 1):
        model, found, layout = gathered(problem, [3, 5])
        resumed = fit_gathered(model, found, layout, log=whole.log[:cut])
        assert (resumed.log, resumed.status) == (whole.log, whole.status)
        assert resumed.zero_calibrations <= whole.zero_calibrations


@pytest.mark.parametrize("name", ["norm_equals_adaptive_beta", "norm_above_adaptive_beta"])
def test_an_adaptive_beta_is_found_again_inside_the_round(name: str) -> None:
    problem = problems.edge_cases()[name]
    whole = fit(problem)
    assert len(fit(replace(problem, adaptive_beta=False)).log) > len(whole.log)  # it is in force
    for cut in range(1, len(whole.log) + 1):
        model, found, layout = gathered(problem)
        assert fit_gathered(model, found, layout, log=whole.log[:cut]).log == whole.log


@pytest.mark.quick_cases(14)
@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_caps_cut_the_log_and_a_capped_run_can_go_on(seed: int) -> None:
    problem = problems.random_problem(
        seed + 300, algorithm=ALGORITHMS[seed % 4], max_rounds=10_000, max_steps=20
    )
    whole = fit(problem)
    rng = Random(seed)
    for most in {0, 1, rng.randint(0, len(whole.log)), len(whole.log)}:
        capped = replace(problem, max_steps=most)
        part = fit(capped)
        due = most < len(whole.log) or whole.status == "capped"
        assert (part.log, part.status) == (whole.log[:most], "capped" if due else whole.status)
        model, found, layout = gathered(problem)
        assert fit_gathered(model, found, layout, log=part.log).log == whole.log
    for most in (0, 1, 2):
        result = oracle.fit(replace(problem, max_rounds=most))
        assert log_of(fit(replace(problem, max_rounds=most))) == result.log


def test_on_patch_sees_every_new_patch_once_and_in_order() -> None:
    problem, pair = converged(CONVERGING[0])
    seen: list[Any] = []
    model, found, layout = gathered(problem)
    fit_gathered(model, found, layout, log=pair.log[:1], on_patch=lambda p, _: seen.append(p))
    assert seen == list(pair.log[1:])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_gathered_can_be_fitted_twice(algorithm: str) -> None:
    for seed in range(12):
        problem = problems.random_problem(seed, algorithm=algorithm)
        model, found, layout = gathered(problem)
        first = fit_gathered(model, found, layout)
        assert fit_gathered(model, found, layout).log == first.log
        assert fit_gathered(model, found, layout, log=first.log[:1]).log == first.log


# Save and load


@pytest.mark.parametrize("seed", seeds(SEEDS, 28))
def test_save_load_apply_is_apply(seed: int, tmp_path: Path) -> None:
    problem, pair = case(seed)
    pair.save(tmp_path / "model.json")
    loaded = ReconciledPair.load(tmp_path / "model.json")
    assert loaded.to_json() == pair.to_json()
    assert (loaded.log, loaded.status, loaded.resolved) == (pair.log, pair.status, pair.resolved)
    rows = reordered(problem, range(len(problem.f1) - 1, -1, -1))
    for ours, theirs in zip(apply(loaded, rows), apply(pair, rows), strict=True):
        assert ours.tobytes() == theirs.tobytes()
