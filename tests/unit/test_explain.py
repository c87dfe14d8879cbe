"""Explain: the journey of a row is what the oracle's replay of all rows does with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.errors import InputError, RedcalError, UsageError
from redcal_spark.model.explanation import Explanation
from redcal_spark.model.row_states import State
from tests import oracle, problems
from tests.helpers import apply, arrays, fit, log_of, quietly, refused, seeds
from tests.oracle import ALGORITHMS, ONE, Problem
from tests.real_data import load

SEEDS = range(1_200, 1_240)


def case(seed: int) -> Problem:
    return problems.random_problem(
        seed, algorithm=ALGORITHMS[seed % 4], max_n=25, max_steps=20, vector_labels=seed % 3 == 0
    )


def explained(pair: ReconciledPair, problem: Problem, row: int) -> Explanation:
    f1, f2, _ = arrays(problem)
    with quietly():
        return pair.explain(f1[row], f2[row])


@dataclass
class Seen:
    """The state of all rows, as the oracle sees it."""

    run: oracle.Run

    def actions(self, row: int) -> list[tuple[int, int]]:
        found = []
        for costs in self.run.losses.values():
            one, two = (
                oracle.argmin(oracle.action_scores(costs, self.run.f[m][row])) for m in (1, 2)
            )
            found.append((one, two))
        return found

    def check(self, state: State, row: int) -> None:
        assert [list(q) for q in state.grid] == [self.run.f[m][row] for m in (1, 2)]
        assert [s.index for s in state.standings] == self.actions(row)


def check_journeys(problem: Problem, pair: ReconciledPair, rows: range) -> tuple[int, int]:
    """Every state of these rows; returns how many were touched, and by how many patches."""
    log = log_of(pair)
    seen = Seen(oracle.Run(problem))
    found = {row: explained(pair, problem, row) for row in rows}
    steps = {row: iter(found[row].steps) for row in rows}
    for row in rows:
        seen.check(found[row].start, row)
    for patch in log:
        touched = [row for row in seen.run.rows_of(patch) if row in rows]
        current = {row: next(steps[row]) for row in touched}
        for row, step in current.items():
            assert step.patch.to_json() == patch
            seen.check(step.before, row)
        seen.run.replay(patch)
        for row, step in current.items():
            seen.check(step.after, row)
    for row in rows:
        assert next(steps[row], None) is None
        seen.check(found[row].end, row)
        assert found[row].patches == len(log)
        assert found[row].sentences()
        assert json.loads(json.dumps(found[row].to_json()))["touched"] == found[row].touched
    return sum(f.touched for f in found.values()), sum(len(f.steps) for f in found.values())


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_the_journey_of_every_row_is_the_oracles(seed: int) -> None:
    problem = case(seed)
    check_journeys(problem, fit(problem), range(len(problem.f1)))


def test_these_problems_have_something_to_tell() -> None:
    for algorithm in ALGORITHMS:
        found = [case(s) for s in SEEDS if ALGORITHMS[s % 4] == algorithm][:4]
        told = [check_journeys(p, fit(p), range(len(p.f1))) for p in found]
        assert sum(steps for _, steps in told) > sum(rows for rows, _ in told) > 5


@pytest.mark.parametrize("name", ["dermamnist", "nfl_elo"])
@pytest.mark.parametrize("algorithm", ["redcal", "dc_then_redcal"])
def test_real_rows(name: str, algorithm: str) -> None:
    problem = load(name).take(150).problem(algorithm, max_steps=25)
    touched, _ = check_journeys(problem, fit(problem), range(0, 150, 4))
    assert touched


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_the_end_is_what_apply_gives_to_the_bit(seed: int) -> None:
    problem = case(seed)
    pair = fit(problem)
    f1, f2, _ = arrays(problem)
    kinds = [pa.array(list(f)) for f in (f1, f2)]
    with quietly():
        table = pair.apply(pa.table({"model_1": kinds[0], "model_2": kinds[1]})).to_pylist()
    new = apply(pair, problem)
    for row in range(len(f1)):
        found = explained(pair, problem, row)
        assert table[row]["touched"] == found.touched
        for model in (1, 2):
            scores = found.end.scores[model - 1]
            assert (scores[1] if problem.binary else list(scores)) == new[model - 1][row].tolist()
            for before, after in zip(found.start.standings, found.end.standings, strict=True):
                assert table[row][f"{before.loss}_{model}_before"] == before.actions[model - 1]
                assert table[row][f"{after.loss}_{model}_after"] == after.actions[model - 1]
        for standing in found.end.standings:
            assert table[row][f"{standing.loss}_agree"] == standing.agree


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_margins_expectations_and_events_are_the_oracles(seed: int) -> None:
    problem = case(seed)
    pair, run = fit(problem), oracle.Run(problem)
    alpha = problem.alpha if problem.algorithm != "reconcile" else None
    exact = Fraction(0) if alpha is None else oracle.exact(alpha)
    unit = ONE * 2 ** oracle.loss_bits(run.d)
    for row in range(run.n):
        for standing in explained(pair, problem, row).start.standings:
            costs, quantised = problem.losses[standing.loss], run.losses[standing.loss]
            s1, s2 = (oracle.action_scores(quantised, run.f[m][row]) for m in (1, 2))
            a1, a2 = standing.index
            gaps = s1[a2] - s1[a1], s2[a1] - s2[a2]
            assert standing.margins == tuple(Fraction(gap, unit) for gap in gaps)
            assert standing.in_event == (a1 != a2 and max(gaps) > floor(exact * unit))
            for model in (1, 2):
                f = run.f[model][row]
                expected = tuple(
                    sum((q * oracle.exact(c) for q, c in zip(f, costs[a], strict=True))) / ONE
                    for a in standing.index
                )
                assert standing.expected[model - 1] == expected


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_the_correction_is_what_the_outcomes_of_the_fitting_rows_say(seed: int) -> None:
    """Up to the rounding of phi, which is bounded; and it is phi times the costs, exactly."""
    problem = case(seed)
    pair, y = fit(problem), oracle.grid_labels(problem)
    known = {
        step.patch.step: step
        for row in range(len(problem.f1))
        for step in explained(pair, problem, row).steps
    }
    assert len(known) == len(pair.log)  # each patch touched some fitting row
    run = oracle.Run(problem)
    for patch in log_of(pair):
        rows, f = run.rows_of(patch), run.f[patch["model"]]
        weights = weights_of(problem, patch)
        mean = sum(
            (w * (y[i][j] - f[i][j]) for i in rows for j, w in weights.items()), Fraction(0)
        ) / (ONE * len(rows))
        found = known[patch["step"]].correction
        half = Fraction(1, 2 * pair.resolved.m)
        assert abs(found - mean) <= half * sum(abs(w) for w in weights.values())
        values = dict(zip(weights, patch["phi"], strict=True))
        assert found == sum(w * values[j] for j, w in weights.items()) / Fraction(ONE)
        run.replay(patch)


def weights_of(problem: Problem, patch: dict[str, Any]) -> dict[int, Fraction]:
    """What a patch weighs the residuals of each class with."""
    if patch["kind"] == "score":
        return {patch["coordinate"]: Fraction(1)}
    costs = [[oracle.exact(c) for c in row] for row in problem.losses[patch["loss"]]]
    if patch["kind"] == "calibrate":
        return dict(enumerate(costs[patch["action"]]))
    one, two = costs[patch["a1"]], costs[patch["a2"]]
    return dict(enumerate(a - b for a, b in zip(one, two, strict=True)))


# --- why a row was not touched ----------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_the_reason_that_is_told_is_true(seed: int) -> None:
    problem = case(seed)
    pair, run = fit(problem), oracle.Run(problem)
    for row in range(run.n):
        found = explained(pair, problem, row)
        if found.touched:
            continue
        told = found.sentences()[-1]
        if not pair.log:
            assert f"the run made none ({pair.status})" in told
        elif problem.algorithm == "reconcile":
            far = [
                j for j in range(run.d) if row in run.rows_beyond(j, ">") + run.rows_beyond(j, "<")
            ]
            assert ("no scores of the models are more than" in told) == (not far)
        elif problem.algorithm == "decision_calibration":
            assert "no patch calibrates a model where it chooses what it chooses here" in told
        else:
            inside = [event for event in run.events() if row in event[3]]
            apart = [a != b for a, b in Seen(run).actions(row)]
            assert ("which no round chose" in told) == bool(inside)
            assert ("the models agree" in told) == (not any(apart))
            assert ("by no more than alpha" in told) == (any(apart) and not inside)
        if pair.log:
            assert ("the run ended early" in told) == (pair.status != "converged")


# --- in words, and what can be asked for ------------------------------------------------------

# Model 1 sends home the first three, model 2 treats them; two of them were ill.
ONE_SIDED = [[0.8, 0.2]] * 3 + [[0.1, 0.9]] * 3
OTHER = [[0.3, 0.7]] * 3 + [[0.0, 1.0]] * 3
LOSSES = {"triage": {"costs": [[0, 5], [2, 1]], "actions": ["discharge", "treat"]}}


@pytest.fixture(scope="module")
def pair() -> ReconciledPair:
    made = Reconciler(losses=LOSSES, alpha=0.01, eta=0.1, beta=0.5, id="case", grid_bits=2)
    rows = {"model_1": ONE_SIDED, "model_2": OTHER, "label": [1, 1, 0, 1, 1, 1], "case": range(6)}
    return made.fit(pd.DataFrame(rows))


def test_a_journey_in_words(pair: ReconciledPair) -> None:
    found = pair.explain({"model_1": ONE_SIDED[0], "model_2": OTHER[0], "case": 7})
    assert found.id == 7
    # y - f of model 1 is (-.467, .467) in the mean, on quarters (-.5, .5); the costs of discharge
    # less those of treat are (-2, 4): together 3
    (patch,) = pair.log
    assert (patch.model, patch.phi, patch.rows) == (1, (-ONE // 2, ONE // 2), 3)
    assert found.steps[0].correction == 3
    assert found.sentences() == [
        "Before: model 1 would choose discharge, model 2 would choose treat.",
        "Step 0, round 0: model 1 would choose discharge, model 2 would choose treat; "
        "3 fitting rows like this; there model 1 took discharge for 3.00 too cheap against treat "
        "on average; here model 1 expects discharge to cost 2.20 more than treat, before 0.800 "
        "less; model 1 now chooses treat instead of discharge.",
        "After: both models would choose treat; 1 of 1 patches touched this row.",
    ]
    same = found.sentences(["vitals", "notes"])
    assert "vitals would choose discharge, notes would choose treat" in same[0]
    assert pair.explain(ONE_SIDED[5], OTHER[5]).sentences() == [
        "Before: both models would choose treat.",
        "The only patch did not touch this row: the models agree, so it is in no event.",
    ]


def test_every_form_of_a_row_gives_the_same(pair: ReconciledPair) -> None:
    row = {"model_1": ONE_SIDED[0], "model_2": OTHER[0], "note": object()}
    plain = {name: row[name] for name in ("model_1", "model_2")}
    expected = pair.explain(ONE_SIDED[0], OTHER[0]).to_json()
    assert expected["touched"]
    forms = [
        row,
        pd.Series(row),
        pd.DataFrame([row]),
        pa.Table.from_pylist([plain]),
        pa.RecordBatch.from_pylist([plain]),
        (ONE_SIDED[0], OTHER[0]),
        [np.array(ONE_SIDED[0]), np.array(OTHER[0])],
        (np.array([ONE_SIDED[0]]), np.array([OTHER[0]])),
        pd.DataFrame([row], index=["x"]).loc["x"],
    ]
    for form in forms:
        assert pair.explain(form).to_json() == expected
    with_id = pair.explain(row | {"case": "x7"}).to_json()
    assert with_id == expected | {"id": "x7"}
    assert pair.explain(row | {"case": date(2024, 2, 3)}).to_json()["id"] == "2024-02-03"


@pytest.mark.parametrize(
    ("row", "kind", "text"),
    [
        (pd.DataFrame({"model_1": ONE_SIDED, "model_2": OTHER}), UsageError, "one row, got 6"),
        ((1, 2, 3), UsageError, "a pair (scores, scores) is needed, got 3 parts"),
        ({"model_1": [0.5, 0.5]}, InputError, "column 'model_2' not found in the row"),
        ({"model_1": [0.5, 0.5], "model_2": [0.5, float("nan")]}, InputError, "NaN or infinity"),
        ({"model_1": [0.5, 0.5], "model_2": [0.5, 0.2, 0.3]}, InputError, "2 values"),
        ({"model_1": 0.5, "model_2": 0.5}, InputError, "these are not"),
        ({"model_1": [0.5, "a"], "model_2": [0.5, 0.5]}, InputError, "column 'model_1'"),
        (7, UsageError, "takes the row itself, got 7"),
        ("P7", UsageError, "takes the row itself, got 'P7'; a pair has no rows by id"),
    ],
)
def test_rows_that_cannot_be_explained(
    pair: ReconciledPair, row: Any, kind: type[RedcalError], text: str
) -> None:
    assert text in refused(kind, lambda: pair.explain(row))


def test_shown_as_it_is_told(pair: ReconciledPair) -> None:
    found = pair.explain(ONE_SIDED[0], OTHER[0])
    assert repr(found).splitlines() == str(found).splitlines() == found.sentences()


def test_a_binary_pair_of_numbers() -> None:
    problem = problems.random_problem(1, algorithm="redcal", binary=True, n=20)
    pair = fit(problem)
    for row in range(20):
        f = problem.f1[row], problem.f2[row]
        found = pair.explain(*f)
        assert found.start.scores == ((1 - f[0], f[0]), (1 - f[1], f[1]))
        assert pair.explain({"model_1": f[0], "model_2": f[1]}) == found


def test_float32_scores_are_widened_as_apply_does() -> None:
    scores = {"model_1": ONE_SIDED, "model_2": OTHER}
    rows = {name: pa.array(s, pa.list_(pa.float32())) for name, s in scores.items()}
    table = pa.table(rows | {"label": pa.array([1, 1, 0, 1, 1, 1])})
    pair = Reconciler(losses=LOSSES, alpha=0.01, eta=0.1).fit(table)
    out = pair.apply(table).to_pylist()
    for row in range(6):
        found = pair.explain(table.slice(row, 1))
        assert list(found.end.scores[0]) == out[row]["model_1_reconciled"]
        assert list(found.end.scores[1]) == out[row]["model_2_reconciled"]


def test_score_columns_one_per_class() -> None:
    frame = pd.DataFrame({"a0": [0.8] * 3, "a1": [0.2] * 3, "b0": [0.3] * 3, "b1": [0.7] * 3})
    made = Reconciler(
        losses=LOSSES, alpha=0.01, eta=0.1, model_1=["a0", "a1"], model_2=["b0", "b1"]
    )
    pair = made.fit(frame.assign(label=[1, 1, 0]))
    out = pair.apply(frame)
    found = pair.explain(frame.iloc[0])
    assert found.touched
    assert found.end.scores[0] == tuple(out[["a0_reconciled", "a1_reconciled"]].iloc[0])
    assert pair.explain([0.8, 0.2], [0.3, 0.7]) == found


def test_a_prefix_of_a_log_is_explained_as_such() -> None:
    problem = next(case(s) for s in SEEDS if len(log_of(fit(case(s)))) > 4)
    pair = fit(problem)
    part = replace(pair, log=type(pair.log)(pair.log[:3]), status="cut")
    check_journeys(problem, part, range(len(problem.f1)))
