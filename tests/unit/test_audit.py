"""The audit: every number again from the raw rows, with Python integers, and equal."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from redcal_spark.backends.spark.cells import cells_of
from redcal_spark.backends.spark.tasks import ScanTask
from redcal_spark.certificate.intervals import calibration_margin, cost_margin
from redcal_spark.cli.audit_tables import audit_tables
from redcal_spark.core import metrics as metrics_module
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.packing import gathered_of, gathered_parts, unpack
from redcal_spark.core.scan import ScanResult
from redcal_spark.model.audit import audit, audit_rows
from tests import oracle, problems
from tests.helpers import batches_of, cuts, fit, gather, gathered, log_of, quietly, reconciler
from tests.oracle import ALGORITHMS, ONE, Problem
from tests.real_data import load

SEEDS = range(900, 940)


def case(seed: int) -> Problem:
    return problems.random_problem(
        seed, algorithm=ALGORITHMS[seed % 4], max_n=30, max_steps=12, vector_labels=seed % 3 == 0
    )


def audited(problem: Problem, sizes: list[int] | None = None, threads: int = 1) -> dict[str, Any]:
    blocks = batches_of(problem, sizes or [])
    with quietly():
        auditor = reconciler(problem, threads)
        found, _ = gather(auditor, blocks, blocks[0].schema, audit=True)
    assert not found.fit.scans  # an audit keeps no rows
    return audit_rows(auditor.problem, found)


# --- the independent path ---------------------------------------------------------------------


def cost_of(labels: list[list[int]], costs: list[float]) -> Fraction:
    """The mean cost of an action on some rows, in the user's units."""
    total = sum(
        (y * oracle.exact(c) for label in labels for y, c in zip(label, costs, strict=True))
    )
    return Fraction(total) / (ONE * len(labels))


def margin_of(problem: Problem, d: int) -> int:
    """The integer gap from which on a disagreement is an event; Reconcile counts any."""
    alpha = problem.alpha if problem.algorithm != "reconcile" else None
    exact = Fraction(0) if alpha is None else oracle.exact(alpha)
    return int(exact * ONE * 2 ** oracle.loss_bits(d))


def loss_by_hand(problem: Problem, name: str) -> dict[str, Any]:
    costs, y = problem.losses[name], oracle.grid_labels(problem)
    quantised, n = oracle.quantise_loss(costs), len(y)
    f = [oracle.grid_scores(s) for s in (problem.f1, problem.f2)]
    scores = [[oracle.action_scores(quantised, row) for row in rows] for rows in f]
    acts = [[oracle.argmin(s) for s in own] for own in scores]
    k = len(costs)
    rows, events = ([[0] * k for _ in range(k)] for _ in range(2))
    members: dict[tuple[int, int], list[int]] = {}
    for i, (a1, a2) in enumerate(zip(*acts, strict=True)):
        rows[a1][a2] += 1
        gaps = scores[0][i][a2] - scores[0][i][a1], scores[1][i][a1] - scores[1][i][a2]
        if max(gaps) > margin_of(problem, len(y[0])):
            events[a1][a2] += 1
        if a1 != a2:
            members.setdefault((a1, a2), []).append(i)
    pairs = {}
    for (a1, a2), inside in members.items():
        one, two = (cost_of([y[i] for i in inside], costs[a]) for a in (a1, a2))
        each = [
            oracle.exact(p) - oracle.exact(q) for p, q in zip(costs[a1], costs[a2], strict=True)
        ]
        width = float(max(each) - min(each))
        margin = width * math.sqrt(math.log(2 / (1 - 0.95)) / (2 * len(inside)))
        pairs[a1, a2] = {
            "a1": a1, "a2": a2, "rows": len(inside), "mass": len(inside) / n,
            "event_rows": events[a1][a2], "event_mass": events[a1][a2] / n,
            "cost": [float(one), float(two)], "cost_exact": [str(one), str(two)],
            "difference": float(one - two),
            "low": float(one - two) - margin, "high": float(one - two) + margin,
            "right": {-1: 1, 0: None, 1: 2}[(one > two) - (one < two)],
            "sure": abs(float(one - two)) > margin,
        }  # fmt: skip
    calibration, by_action = [], []
    for model in (1, 2):
        for action in range(k):
            inside = [i for i in range(n) if acts[model - 1][i] == action]
            rest = [sum(y[i][j] - f[model - 1][i][j] for i in inside) for j in range(len(y[0]))]
            square = Fraction(oracle.dot(rest, rest), (n * ONE) ** 2)
            calibration.append((model, action, len(inside), square))
            each_row = (cost_of([y[i]], costs[action]) for i in inside)
            by_action.append((model, action, len(inside), sum(each_row, Fraction(0)) / n))
    best = [oracle.argmin(oracle.action_scores(quantised, row)) for row in y]
    return {
        "rows": rows,
        "event_rows": events,
        "pairs": pairs,
        "calibration": calibration,
        "by_action": by_action,
        "losses": [oracle.decision_loss(problem, name, own) for own in f],
        "optimum": sum((cost_of([row], costs[a]) for row, a in zip(y, best, strict=True))) / n,
    }


def check(problem: Problem, found: dict[str, Any]) -> None:
    """Every number of an audit, exactly."""
    n, y = len(problem.f1), oracle.grid_labels(problem)
    f = [oracle.grid_scores(s) for s in (problem.f1, problem.f2)]
    assert found["rows"] == n
    sums = [oracle.brier_sum(own, y) for own in f]
    assert found["brier_sums"] == [str(total) for total in sums]
    assert found["brier"] == [float(Fraction(total, n * ONE**2)) for total in sums]
    assert [loss["loss"] for loss in found["losses"]] == list(problem.losses)
    for told in found["losses"]:
        hand = loss_by_hand(problem, told["loss"])
        assert told["rows"] == hand["rows"]
        assert told["event_rows"] == hand["event_rows"]
        assert told["decision_loss_exact"] == [str(x) for x in hand["losses"]]
        assert told["decision_loss"] == [float(x) for x in hand["losses"]]
        assert told["optimal_loss_exact"] == str(hand["optimum"])
        assert told["optimal_loss"] == float(hand["optimum"])
        assert told["loss_gap"] == [float(x - hand["optimum"]) for x in hand["losses"]]
        apart = sum(pair["rows"] for pair in hand["pairs"].values())
        assert (told["disagreement_rows"], told["disagreement"]) == (apart, apart / n)
        largest = max(map(max, hand["event_rows"]))
        assert (told["largest_event_rows"], told["largest_event"]) == (largest, largest / n)
        assert told["costs_known"]
        assert {(p["a1"], p["a2"]): p for p in told["pairs"]} == hand["pairs"]
        order = [(-p["event_rows"], -p["rows"], p["a1"], p["a2"]) for p in told["pairs"]]
        assert order == sorted(order)
        cells = [
            (c["model"], c["action"], c["rows"], Fraction(c["squared_gap_exact"]))
            for c in told["calibration"]
        ]
        assert cells == hand["calibration"]
        for cell, (*_, square) in zip(told["calibration"], hand["calibration"], strict=True):
            margin = math.sqrt(cell["rows"]) / n * (1 + math.sqrt(math.log(20)))
            assert cell["gap"] == math.sqrt(square)
            assert cell["mass"] == cell["rows"] / n
            assert cell["low"] == pytest.approx(max(0.0, cell["gap"] - margin), abs=1e-12)
            assert cell["high"] == pytest.approx(cell["gap"] + margin, abs=1e-12)
        spent = [
            (c["model"], c["action"], c["rows"], Fraction(c["cost_exact"]))
            for c in told["by_action"]
        ]
        assert spent == hand["by_action"]
        for cell in told["by_action"]:
            assert cell["cost"] == float(Fraction(cell["cost_exact"]))
            assert cell["mass"] == cell["rows"] / n
        for model in (1, 2):
            whole = sum((cost for m, *_, cost in spent if m == model), Fraction(0))
            assert whole == hand["losses"][model - 1]
            gaps = [c["gap"] for c in told["calibration"] if c["model"] == model]
            assert told["calibration_gap"][model - 1] == max(gaps)
    check_coordinates(problem, found)


def check_coordinates(problem: Problem, found: dict[str, Any]) -> None:
    told = {c["coordinate"]: c["rows"] for c in found["coordinates"]}
    if problem.algorithm != "reconcile":
        assert told == {}
        return
    run = oracle.Run(problem)
    coordinates = [1] if problem.binary else range(run.d)
    far = {j: len(run.rows_beyond(j, ">") + run.rows_beyond(j, "<")) for j in coordinates}
    assert told == {j: rows for j, rows in far.items() if rows}
    assert problem.eta is not None
    least = oracle.exact(problem.eta) * run.n
    assert {c["coordinate"]: c["rows"] for c in found["to_fix"]["coordinates"]} == {
        j: rows for j, rows in told.items() if rows >= least
    }


# --- the tests --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_every_number_is_what_the_raw_rows_say(seed: int) -> None:
    check(case(seed), json.loads(json.dumps(audited(case(seed)))))


@pytest.mark.parametrize("name", ["nfl_elo", "dermamnist"])
def test_on_real_predictions(name: str) -> None:
    problem = load(name).take(700).problem("redcal")
    found = audited(problem, [300], threads=2)
    check(problem, found)
    assert any(pair["right"] for loss in found["losses"] for pair in loss["pairs"])


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_blocks_threads_and_packing_do_not_change_an_audit(seed: int) -> None:
    problem = case(seed)
    whole = audited(problem)
    sizes = cuts(Random(seed), len(problem.f1))
    assert audited(problem, sizes, threads=2) == whole
    # as Spark's workers do it, two tasks and the sum of what they send
    with quietly():
        auditor = reconciler(problem)
    blocks = batches_of(problem, sizes)
    _, _, layout = gathered(problem)
    scanner = replace(auditor.problem, audit=True).scanner(layout)
    task = ScanTask(scanner, tuple(blocks[0].schema.names))
    total = ScanResult.nothing(scanner.rules, layout.n_classes)
    for share in (blocks[::2], blocks[1::2]):
        sent = {row.column(0)[0].as_py(): row.column(4)[0].as_buffer() for row in task(share)}
        assert cells_of(sent["cells"]) == ([], {}, {})  # no blocks of rows, only the statistics
        total.merge(gathered_of(*unpack(sent["statistics"])))
    assert audit_rows(auditor.problem, total) == whole


@pytest.mark.parametrize("seed", [s for s in SEEDS if ALGORITHMS[s % 4] == "redcal"])
def test_what_there_is_to_fix_is_what_redcal_fixes_first(seed: int) -> None:
    problem = replace(case(seed), max_steps=60, max_rounds=10_000, grid_bits=None)
    todo = audited(problem)["to_fix"]
    assert problem.eta is not None
    run, least = oracle.Run(problem), oracle.exact(problem.eta) * len(problem.f1)
    events = [(name, a1, a2, len(rows)) for name, a1, a2, rows in run.events()]
    expected = sorted((e for e in events if e[3] >= least), key=lambda e: -e[3])
    assert [(e["loss"], e["a1"], e["a2"], e["rows"]) for e in todo["events"]] == expected
    per_loss = Counter(dict.fromkeys(problem.losses, 0))
    for name, _, _, rows in expected:
        per_loss[name] += rows
    assert todo["event_rows"] == per_loss
    log = log_of(fit(problem))
    if log:
        first = todo["events"][0]
        assert {name: log[0][name] for name in ("loss", "a1", "a2", "rows")} == {
            name: first[name] for name in ("loss", "a1", "a2", "rows")
        }
    elif not todo["events"]:
        assert fit(problem).status == "converged"


@pytest.mark.parametrize("seed", [s for s in SEEDS if "calib" in ALGORITHMS[s % 4]])
def test_what_there_is_to_calibrate_is_what_decision_calibration_looks_for(seed: int) -> None:
    problem = case(seed)
    todo = audited(problem)["to_fix"]
    beta = oracle.resolve_beta(problem)
    assert beta is not None
    assert todo["beta"] == float(beta)
    expected = {
        (model, name, action): square
        for name in problem.losses
        for model, action, _, square in loss_by_hand(problem, name)["calibration"]
        if square > beta**2
    }
    told = {(c["model"], c["loss"], c["action"]): c["gap"] for c in todo["calibrations"]}
    assert told == {key: math.sqrt(square) for key, square in expected.items()}
    log = log_of(fit(problem))
    if log and log[0]["model"] == 1:
        own = {key: value for key, value in expected.items() if key[0] == 1}
        assert own[1, log[0]["loss"], log[0]["action"]] == max(own.values())


def test_a_loss_too_large_to_count_by_pairs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"small": [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], "zz": [[0.0, 2.0, 1.0], [1.0, 0.0, 1.0]]}
    large = {"large": [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]}
    problem = problems.random_problem(3, algorithm="redcal", losses=large | small, n=20)
    whole = audited(problem)
    monkeypatch.setattr(metrics_module, "PAIR_NUMBERS", 2 * 2 * 3)
    part = audited(problem, [7, 5])
    assert [loss["costs_known"] for loss in part["losses"]] == [False, True, False]
    assert part["losses"][1] == whole["losses"][1]
    for before, after in zip(whole["losses"], part["losses"], strict=True):
        assert (before["rows"], before["calibration"]) == (after["rows"], after["calibration"])
    assert all(
        pair["cost"] is None and pair["right"] is None for pair in part["losses"][0]["pairs"]
    )
    shown = [part for part in audit_tables(part, ["a", "b"]) if isinstance(part, str)]
    assert any("too many actions and classes" in text for text in shown)


def test_rows_that_were_not_read_for_an_audit_have_no_costs_by_pairs() -> None:
    problem = case(900)
    model, found, _ = gathered(problem)
    told = audit(Metrics(found.fit.totals, model.losses))
    assert "to_fix" not in told
    whole = audited(problem)
    for loss, full in zip(told["losses"], whole["losses"], strict=True):
        assert not loss["costs_known"]
        assert [p["rows"] for p in loss["pairs"]] == [p["rows"] for p in full["pairs"]]
        same = ("decision_loss_exact", "calibration", "rows", "event_rows", "optimal_loss_exact")
        assert all(loss[name] == full[name] for name in same)


def test_nothing_of_it_reaches_a_fit() -> None:
    _, found, _ = gathered(case(901))
    assert found.fit.totals.pair_labels == ()
    again = gathered_of(*gathered_parts(found))
    assert again.fit.totals.pair_labels == ()
    assert found.fit.scans


def test_a_split_without_rows_travels_as_nothing() -> None:
    _, found, _ = gathered(case(902))
    _, arrays = gathered_parts(found)
    assert found.fit.rows and not found.holdout.rows
    assert not any(name.startswith("holdout.") for name in arrays)
    # a task that saw holdout rows alone: both ways round, the sums are those of either
    alone = replace(found, fit=found.holdout, holdout=found.fit)
    for order in ((found, alone), (alone, found)):
        total, more = (gathered_of(*gathered_parts(each)) for each in order)
        total.merge(more)
        for part in (total.fit, total.holdout):
            same = part.totals.to_arrays()
            assert same.keys() == found.fit.totals.to_arrays().keys()
            for name, array in found.fit.totals.to_arrays().items():
                assert np.array_equal(same[name], array), name
            assert (part.rows, part.totals.brier) == (found.fit.rows, found.fit.totals.brier)


def test_reconcile_without_losses() -> None:
    problem = problems.random_problem(17, algorithm="reconcile", losses={}, n=30, d=3, alpha=0.05)
    found = audited(problem)
    check(problem, found)
    assert found["losses"] == []
    assert found["coordinates"]
    assert len(audit_tables(found, ["a", "b"])) > 1


def test_holdout_rows_are_audited_but_not_to_be_fixed() -> None:
    problem = case(SEEDS[0])
    blocks = batches_of(problem, [len(problem.f1) // 2])
    with quietly():
        auditor = reconciler(problem)
        fitted, _ = gather(auditor, blocks[:1], blocks[0].schema, audit=True)
        holdout, _ = gather(auditor, blocks[1:], blocks[0].schema, audit=True)
    both = ScanResult(fitted.fit, holdout.fit)
    found = audit_rows(auditor.problem, both)
    assert found["to_fix"] == audit_rows(auditor.problem, fitted)["to_fix"]
    assert {k: v for k, v in found.items() if k != "to_fix"} == {
        k: v for k, v in audited(problem).items() if k != "to_fix"
    }


# --- the intervals ----------------------------------------------------------------------------


def test_margins_by_hand() -> None:
    assert cost_margin(Fraction(3), 200) == pytest.approx(3 * math.sqrt(math.log(40) / 400))
    assert calibration_margin(400, 1_000) == pytest.approx(0.02 * (1 + math.sqrt(math.log(20))))
    assert calibration_margin(0, 10) == 0


def test_intervals_hold_for_labels_drawn_by_a_known_law() -> None:
    """The worst case for McDiarmid: fair coins, so that labels vary most."""
    rng = np.random.default_rng(0)
    losses = {"act": [[0.0, 1.0], [0.6, 0.0]]}
    f1, f2 = np.tile([0.9, 0.1], (60, 1)).tolist(), np.tile([0.1, 0.9], (60, 1)).tolist()
    truth = math.hypot(0.4, 0.4)  # of model 1's only action, for P(1) = 1/2
    missed = Counter[str]()
    for _ in range(200):
        y = (rng.random(60) < 0.5).astype(int).tolist()
        (loss,) = audited(Problem(f1, f2, y, losses, "redcal", 0.01, 0.1))["losses"]
        cell, (pair,) = loss["calibration"][0], loss["pairs"]
        missed["gap"] += not cell["low"] <= truth <= cell["high"]
        missed["cost"] += not pair["low"] <= 0.5 - 0.3 <= pair["high"]
    assert all(count <= 10 for count in missed.values())
    assert cell["high"] - cell["low"] < 0.8
    assert 0 < pair["high"] - pair["low"] < 1
