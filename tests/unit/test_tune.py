"""`eta: auto` against section 2.8 written plainly, and everything around it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.certificate.sample_size import rows_needed
from redcal_spark.core.blocks import Block
from redcal_spark.core.folds import codes_of, row_hashes
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.tuned import RowCounts, Tuned
from redcal_spark.errors import InputError, ModelFileError, UsageError
from tests import oracle, tune_oracle
from tests.helpers import arrays, log_of, names_of, quietly, reconciler, refused, seeds
from tests.oracle import Problem
from tests.problems import WEIGHTS, random_problem, with_weights

ALPHA: dict[str, Any] = {"alpha": 0.05, "eta": 0.01}


def vectors(problem: Problem) -> Problem:
    """Labels all of one kind, as a table holds them."""
    if not any(isinstance(label, list) for label in problem.y):
        return problem
    labels = oracle.grid_labels(problem)
    return replace(problem, y=[[q / oracle.ONE for q in row] for row in labels])


def table_of(problem: Problem, ids: Sequence[Any] | None) -> pa.Table:
    columns: dict[str, Any] = dict(zip(names_of(problem), problem.models, strict=True))
    columns["label"] = arrays(problem)[2].tolist()
    if problem.w is not None:
        columns["weight"] = pa.array(np.array(problem.w))
    return pa.table(columns if ids is None else columns | {"id": list(ids)})


def tuned_pair(
    problem: Problem, ids: Sequence[Any] | None = None, **options: Any
) -> ReconciledPair:
    named: dict[str, Any] = {"eta": "auto", "id": None if ids is None else "id"}
    given = reconciler(replace(problem, eta=None), **named | options)
    with quietly():
        return given.fit(table_of(problem, ids))


def agree(pair: ReconciledPair, problem: Problem, choice: tune_oracle.Choice) -> None:
    """All that is recorded, and the fit that follows."""
    tuned = pair.tuned
    assert tuned is not None
    assert (tuned.level, list(tuned.used)) == (choice.k, choice.used)
    w = oracle.weights(problem)
    if problem.w is None:
        assert tuned.counts is None
    else:
        counts = RowCounts(sum(x > 0 for x in w), choice.counted, oracle.effective_rows(problem))
        assert tuned.counts == counts
    for ours, theirs in zip(tuned.candidates, choice.candidates, strict=True):
        assert (ours.eta, ours.stretch) == (theirs["eta"], theirs["rule"])
        fits = [(f.rows, f.beta, f.m, f.patches, f.status, f.disputed) for f in ours.folds]
        assert fits == theirs["fits"]
        assert ours.loss == theirs["loss"]
    assert (tuned.before.loss, tuned.before.disputed) == choice.before
    assert (tuned.chosen.eta, tuned.chosen.stretch) == (choice.eta, choice.rule)
    result = oracle.fit(choice.problem(problem))
    assert log_of(pair) == result.log
    assert (pair.status, pair.resolved.beta, pair.resolved.m) == (
        result.status,
        result.beta,
        result.m,
    )
    assert pair.parameters.eta == choice.eta


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("seed", seeds(range(60), 8))
def test_the_oracle_chooses_the_same(seed: int) -> None:
    kind: dict[str, Any] = {
        "algorithm": ("redcal", "dc_then_redcal")[seed % 3 == 2],
        "vector_labels": seed % 4 == 1,
        "binary": seed % 5 == 3,
        "beta": 0.03 if seed % 4 == 2 else "auto",
        "n": 60 + 20 * (seed % 4),
        "max_d": 4,
        "max_steps": 40,
        "max_rounds": 6,
        "models": 3 if seed % 6 == 4 else 2,
    }
    if kind["binary"]:
        kind["d"] = 2
    problem = vectors(random_problem(seed, adaptive_beta=seed % 7 == 5, **ALPHA, **kind))
    ids = [None, list(range(len(problem.f1))), [f"row {i}" for i in range(len(problem.f1))]]
    wanted = ids[seed % 3]
    rows = 1_000_000 if seed % 2 else 15
    choice = tune_oracle.tune(problem, wanted, rows)
    if choice is None:
        assert "both of its folds" in refused(
            InputError, lambda: tuned_pair(problem, wanted, tune_rows=rows)
        )
        return
    agree(tuned_pair(problem, wanted, tune_rows=rows), problem, choice)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", seeds(range(100, 140), 6))
def test_the_oracle_chooses_the_same_with_weights(seed: int) -> None:
    """Sums count rows by weight, `auto` goes by effective rows; a row of weight 0 is none."""
    kind: dict[str, Any] = {
        "algorithm": ("redcal", "dc_then_redcal")[seed % 3 == 2],
        "beta": 0.03 if seed % 4 == 2 else "auto",
        "n": 40 + 10 * (seed % 3),
        "models": 3 if seed % 5 == 4 else 2,
        "vector_labels": seed % 7 == 1,
    }
    limits: dict[str, Any] = {"max_d": 3, "max_steps": 15, "max_rounds": 4}
    problem = vectors(random_problem(seed, **ALPHA, **kind, **limits))
    problem = with_weights(problem, Random(seed), WEIGHTS[seed % len(WEIGHTS)])
    ids = None if seed % 2 else [f"row {i}" for i in range(len(problem.f1))]
    rows = 15 if seed % 4 == 1 else 1_000_000
    choice = tune_oracle.tune(problem, ids, rows)
    if choice is None:  # a fold of the few rows is empty
        assert "both of its folds" in refused(
            InputError, lambda: tuned_pair(problem, ids, tune_rows=rows)
        )
        return
    pair = tuned_pair(problem, ids, tune_rows=rows)
    agree(pair, problem, choice)
    assert pair.tuned is not None
    assert Tuned.from_json(json.loads(json.dumps(pair.tuned.to_json()))) == pair.tuned


@pytest.mark.slow
def test_weights_as_an_array_are_tuned_by_too() -> None:
    problem = replace(reconcilable(), w=[1 + i % 3 for i in range(120)])
    with quietly():
        model = reconciler(replace(problem, eta=None, w=None), eta="auto")
        pair = model.fit(*arrays(problem), weight=np.array(problem.w))
    choice = tune_oracle.tune(problem)
    assert choice is not None
    agree(pair, problem, choice)


@pytest.mark.slow
def test_more_rows_and_finer_masses() -> None:
    """With 500 rows a fold the four etas are 10, 5, 3 and 1 rows."""
    problem = random_problem(3, n=1_000, d=2, algorithm="redcal", max_steps=25, **ALPHA)
    choice = tune_oracle.tune(vectors(problem))
    assert choice is not None
    assert len({c["loss"] for c in choice.candidates}) >= 3
    agree(tuned_pair(vectors(problem)), vectors(problem), choice)


def test_codes_of_hashes() -> None:
    known = {0: (64, 0), 1: (63, 1), 2: (62, 0), 2**63 - 1: (1, 1), 2**63: (0, 0)}
    known |= {2**64 - 1: (0, 1), 2**62: (1, 0), 2**53 - 1: (11, 1), 2**53: (10, 0)}
    codes = codes_of(np.array(list(known), np.uint64)).tolist()
    assert codes == [2 * level + fold for level, fold in known.values()]


def test_a_tie_goes_to_the_larger_eta_then_the_larger_beta() -> None:
    same = random_problem(1, n=80, d=3, relation="equal", algorithm="redcal", beta="auto", **ALPHA)
    pair = tuned_pair(vectors(same), range(80))
    assert pair.tuned is not None and len({c.loss for c in pair.tuned.candidates}) == 1
    assert (pair.tuned.chosen.eta, pair.tuned.chosen.stretch) == (0.02, 4)
    auto = Parameters(alpha=0.05, eta=0.02).auto_beta(80)
    assert pair.resolved.beta == 4 * auto


def reconcilable() -> Problem:
    return vectors(random_problem(11, n=120, d=3, algorithm="redcal", beta="auto", **ALPHA))


def test_fitting_again_with_the_recorded_numbers_gives_no_patch() -> None:
    problem = reconcilable()
    pair = tuned_pair(problem)
    assert pair.log and pair.status == "converged"
    with quietly():
        f1, f2 = pair.apply(*arrays(problem)[:2])
        numbers: dict[str, Any] = {
            "eta": pair.parameters.eta,
            "beta": float(pair.resolved.beta or 0),
        }
        again = reconciler(problem, **numbers).fit(f1, f2, arrays(problem)[2])
    assert not again.log


def test_the_file_of_a_model_has_every_candidate(tmp_path: Any) -> None:
    pair = tuned_pair(reconcilable())
    pair.save(tmp_path / "model.json")
    loaded = ReconciledPair.load(tmp_path / "model.json")
    assert loaded.tuned == pair.tuned
    assert len(pair.tuned.candidates) == 8 if pair.tuned else False
    data = json.loads((tmp_path / "model.json").read_text())
    assert data["parameters"]["eta"] == pair.parameters.eta
    for number, candidate in enumerate(data["tuned"]["candidates"]):
        if number != data["tuned"]["chosen"]:
            candidate["folds"][0]["loss"] = "-1000"
            candidate["loss"] = str(Fraction(candidate["folds"][1]["loss"]) - 1000)
            break
    with pytest.raises(ModelFileError, match="tuned"):
        ReconciledPair.from_json(data)


def test_what_is_recorded_is_plain_data() -> None:
    tuned = tuned_pair(reconcilable()).tuned
    assert tuned is not None
    assert Tuned.from_json(json.loads(json.dumps(tuned.to_json()))) == tuned


@pytest.mark.parametrize("algorithm", ["reconcile", "decision_calibration"])
def test_others_know_no_auto(algorithm: str) -> None:
    text = refused(
        UsageError,
        lambda: Reconciler(
            losses={"l": [[0, 1], [1, 0]]}, **ALPHA | {"eta": "auto"}, algorithm=algorithm
        ),
    )
    assert "eta: 'auto' is for redcal and dc_then_redcal" in text and algorithm in text


def test_an_empty_fold_is_refused_by_name() -> None:
    problem = replace(reconcilable(), f1=[[0.5, 0.5]] * 9, f2=[[0.4, 0.6]] * 9, y=[0] * 9)
    problem = replace(problem, losses={"l": [[0.0, 1.0], [1.0, 0.0]]})
    text = refused(InputError, lambda: tuned_pair(problem))  # equal rows have one hash
    assert "needs rows in both of its folds" in text and "Give eta a number" in text


def test_an_id_that_cannot_be_hashed_is_refused() -> None:
    problem = reconcilable()
    ids = pa.array(np.arange(len(problem.f1), dtype=np.int32)).cast(pa.date32())
    table = table_of(problem, None).append_column("id", ids)
    given = reconciler(replace(problem, eta=None), eta="auto", id="id")
    with quietly():
        text = refused(InputError, lambda: given.fit(table))
    assert "'id'" in text and "cast it to text" in text


def test_more_models_could_have_come_out() -> None:
    """ln|S| by section 2.9, with the smallest candidate's g, and ln 8."""
    numbers: dict[str, Any] = {
        "gain": Fraction(1, 100), "eta": Fraction(1, 10), "beta": Fraction(1, 10), "m": 8,
        "classes": 2, "losses": 1, "actions": 2, "delta": Fraction(1, 20),
    }  # fmt: skip
    plain = rows_needed(**numbers)
    tuned = rows_needed(**numbers, tuned=(Fraction(1, 400), 16))
    each = np.log(2 * 2 * 1 * 1 * 8) + 2 * np.log(2 * 16 + 1)
    assert float(tuned.ln_s) == pytest.approx((2 * 2 * 2 * 400 + 1) * each + np.log(8))
    assert tuned.masses > plain.masses and tuned.brier > plain.brier


def test_the_certificate_counts_all_candidates() -> None:
    pair = tuned_pair(reconcilable(), grid_bits=26)
    alone = replace(pair, tuned=None)
    from redcal_spark.certificate.case import Case

    smallest = Case(pair, ()).smallest_candidate
    assert Case(alone, ()).smallest_candidate is None
    assert smallest is not None
    assert smallest[0] == Fraction(2, 1000) * Fraction(5, 100) ** 2 / 12  # eta alpha^2 / (4 d)


@pytest.mark.parametrize("label", [(0,), (0, 3)])
def test_a_batch_without_rows_has_no_hashes(label: tuple[int, ...]) -> None:
    scores = np.zeros((0, 3), np.int32)
    assert not len(row_hashes(Block((scores, scores), np.zeros(label, np.int32))))
