"""The history: complete, and the same as the numbers taken anew from the tables."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair
from redcal_spark.core.history import POINTS
from redcal_spark.core.patches import PatchLog
from redcal_spark.core.splits import HashSplit
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, problem, scores, split_rows
from tests.oracle import Problem


def points(work: Work) -> dict[tuple[str, int], list[Any]]:
    """The history by split and step: losses x models."""
    found: dict[tuple[str, int], list[Any]] = {}
    for row in work.table("out/rows_history").to_pylist():
        found.setdefault((row["split"], row["step"]), []).append(row)
    return found


def same_as_anew(rows: list[Any], given: Problem, scores_: tuple[Any, ...]) -> None:
    """One point against the plain functions of the oracle."""
    y = oracle.grid_labels(given)
    acting: dict[str, list[list[int]]] = {}
    for name, costs in given.losses.items():
        loss = oracle.quantise_loss(costs)
        acting[name] = [[oracle.argmin(oracle.action_scores(loss, r)) for r in f] for f in scores_]
    assert len(rows) == 2 * len(LOSSES)
    for row in rows:
        f = scores_[row["model"] - 1]
        assert row["rows"] == len(f)
        assert int(row["brier_sum"]) == oracle.brier_sum(f, y)
        assert row["brier"] == float(Fraction(oracle.brier_sum(f, y), len(f) << 52))
        assert row["decision_loss"] == float(oracle.decision_loss(given, row["loss"], f))
        optimum = oracle.decision_loss(given, row["loss"], y)
        gap = oracle.decision_loss(given, row["loss"], f) - optimum
        assert row["loss_gap"] == float(gap)
        one, two = acting[row["loss"]]
        apart = sum(a != b for a, b in zip(one, two, strict=True))
        assert (row["disagreement_rows"], row["disagreement"]) == (apart, apart / len(f))
        run = oracle.Run(given, y)
        run.f = {1: scores_[0], 2: scores_[1]}
        largest = max(len(e[3]) for e in run.events() if e[0] == row["loss"])
        assert row["largest_event_rows"] == largest
        norms = []
        for action in range(len(given.losses[row["loss"]])):
            own = acting[row["loss"]][row["model"] - 1]
            found = run.residual_sums(row["model"], [i for i, a in enumerate(own) if a == action])
            norms.append(oracle.dot(found, found))
        assert row["calibration_gap"] == pytest.approx(
            float(Fraction(max(norms), (len(f) << 26) ** 2)) ** 0.5, rel=1e-12
        )


def grids(table: pa.Table, suffix: str = "") -> tuple[Any, ...]:
    return (
        oracle.grid_scores(table[f"a{suffix}"].to_pylist()),
        oracle.grid_scores(table[f"b{suffix}"].to_pylist()),
    )


def replayed(work: Work, pair: ReconciledPair, steps: int, part: pa.Table) -> tuple[Any, ...]:
    given = problem(part)
    return oracle.replay(given, pair.log.to_json()[:steps])


def test_by_column_every_round_of_both_splits(work: Work) -> None:
    work.ran()
    work.redcal("export", "-o", "model.json")
    pair = ReconciledPair.load("model.json")
    found = points(work)
    ends = [0, *(p.step for p in pair.log if p.kind == "reconcile"), len(pair.log)]
    ends = sorted(set(ends) - {0} | {0})
    written = work.table().sort_by("case")
    for split, fold in (("fit", "train"), ("holdout", "test")):
        assert sorted(step for s, step in found if s == split) == ends
        assert [found[split, step][0]["round"] for step in ends] == list(range(len(ends)))
        part = split_rows(written, fold)
        same_as_anew(found[split, 0], problem(part), grids(part))
        same_as_anew(found[split, ends[-1]], problem(part), grids(part, "_reconciled"))
        middle = ends[len(ends) // 2]
        same_as_anew(found[split, middle], problem(part), replayed(work, pair, middle, part))


def test_by_hash(work: Work) -> None:
    work.tree["input"]["split"] = {"holdout_fraction": 0.4, "salt": "x"}
    work.ran()
    found = points(work)
    written = work.table().sort_by("case").combine_chunks()
    labelled = written.filter(pa.array([x is not None for x in written["outcome"].to_pylist()]))
    fit, holdout = HashSplit("case", 0.4, "x").masks(labelled.to_batches()[0])
    assert (fit ^ holdout).all()
    assert 0.3 < holdout.mean() < 0.5
    last = max(step for _, step in found)
    for split, mask in (("fit", fit), ("holdout", holdout)):
        part = labelled.filter(pa.array(mask))
        same_as_anew(found[split, 0], problem(part), grids(part))
        same_as_anew(found[split, last], problem(part), grids(part, "_reconciled"))


def test_without_a_split_there_is_one(work: Work) -> None:
    del work.tree["input"]["split"]
    work.ran()
    assert {split for split, _ in points(work)} == {"fit"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("algorithm", ["decision_calibration", "dc_then_redcal"])
def test_a_calibration_everywhere_has_at_most_200_points(
    work: Work, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    assert POINTS == 200
    monkeypatch.setattr("redcal_spark.core.history.POINTS", 40)  # this calibration is a short one
    work.tree["reconcile"] |= {"algorithm": algorithm, "beta": 1e-6, "max_steps": 500}
    work.redcal("run")
    work.redcal("export", "-o", "model.json")
    log = ReconciledPair.load("model.json").log
    free = [patch for patch in log if patch.round is None]
    found = points(work)
    steps = sorted(step for split, step in found if split == "fit")
    inside = [step for step in steps if 0 < step <= len(free)]
    assert len(free) > 80
    assert 20 < len(inside) <= 41  # one more where the calibration of model 2 begins
    assert np.diff(inside).max() <= -(-len(free) // 40)
    assert steps[-1] == len(log)
    part = split_rows(work.table().sort_by("case"), "test")
    for step in (inside[0], inside[20]):
        same_as_anew(
            found["holdout", step],
            problem(part, algorithm=algorithm),
            oracle.replay(problem(part, algorithm=algorithm), PatchLog(log[:step]).to_json()),
        )


def test_reconcile_without_losses(work: Work) -> None:
    work.tree["losses"] = None
    work.tree["reconcile"] = {"algorithm": "reconcile", "alpha": 0.1, "eta": 0.05}
    told = work.redcal("run")
    assert told.code == 0, told.err
    assert "largest share beyond alpha" in told.out
    found = points(work)
    rounds = work.runs()[-1]["rounds"]
    assert rounds > 2
    assert len(found) == 2 * (rounds + 1)
    part = split_rows(work.table().sort_by("case"), "train")
    y = oracle.grid_labels(problem(part))
    f1, f2 = grids(part, "_reconciled")
    one, two = found["fit", rounds]
    assert (one["loss"], one["decision_loss"]) == (None, None)
    assert int(one["brier_sum"]) == oracle.brier_sum(f1, y)
    assert int(two["brier_sum"]) == oracle.brier_sum(f2, y)
    gap = 2**26 // 10  # floor(alpha * 2^26)
    beyond = [
        sum(abs(p[j] - q[j]) > gap for p, q in zip(f1, f2, strict=True))
        for j in range(len(CLASSES))
    ]
    assert one["largest_event_rows"] == max(beyond) < 0.05 * part.num_rows


@pytest.mark.slow
def test_the_same_numbers_for_any_number_of_threads_and_a_delta_input(work: Work) -> None:
    from deltalake import write_deltalake

    def numbers() -> list[Any]:
        kept = [c for c in work.table("out/rows_history").column_names if c != "run_id"]
        order = [(name, "ascending") for name in ("split", "step", "loss", "model")]
        run = work.runs()[-1]["run_id"]
        table = work.table("out/rows_history")
        mine = table.filter(pa.compute.equal(table["run_id"], run))
        return list(mine.select(kept).sort_by(order).to_pylist())

    work.ran("fit")
    first = numbers()
    work.tree["engine"] = {"name": "local", "threads": 3}
    work.ran("fit", "--force")
    assert numbers() == first
    write_deltalake("in/scores", scores())
    work.tree["input"]["table"] = "in/scores"
    work.ran("fit")
    assert numbers() == first
