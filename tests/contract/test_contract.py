"""One contract, every engine: equal logs and equal rows, whatever the order and the partitions.

Here: the local engine and the Spark of this process. tests/spark/test_processes.py runs this folder
again on Spark Connect and on a cluster, which need processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from tests import backends, oracle
from tests.contract import cases
from tests.contract.cases import Case, edge_cases, expected, of_problem, table
from tests.contract.engines import Backend, Local, Spark, check
from tests.helpers import log_of

# 64 partitions take as long as all the others: one of these in every build.
FEW = [case for case in cases.ALL if case.partitions < 64]
MANY = Case("decision_calibration", 10, 5, 64, "shuffled", "none", "files")
CHOSEN, EDGES = [*cases.cover(FEW), MANY], list(edge_cases())
ON_SPARK = {"half_up_and_half_down", "masses_tie_at_eta", "masses_tie", "reconcile_tie"}
if backends.whole():
    LATER = [case for case in cases.ALL if case not in CHOSEN]
else:  # a process of its own, and slower
    some = CHOSEN[:6]
    CHOSEN = list({case.budget: case for case in some}.values())
    LATER = [case for case in some if case not in CHOSEN]
    EDGES, ON_SPARK = ["half_up_and_half_down", "masses_tie_at_eta"], {"masses_tie_at_eta"}
QUICK_ON_SPARK = [*CHOSEN[:7], MANY] if backends.whole() else CHOSEN


def every_case() -> Iterator[Any]:
    """On Spark a case takes seconds: of the cover the first ones, which show most of the pairs."""
    for case in [*CHOSEN, *LATER]:
        slow = [pytest.mark.slow] if case in LATER else []
        yield pytest.param(Local, case, id=f"local-{case}", marks=slow)
        rare = [] if case in QUICK_ON_SPARK else [pytest.mark.slow]
        yield pytest.param(Spark, case, id=f"spark-{case}", marks=[pytest.mark.spark, *rare])


def every_edge() -> Iterator[Any]:
    for name in EDGES:
        yield pytest.param(Local, name, id=f"local-{name}")
        marks = [pytest.mark.spark, *([] if name in ON_SPARK else [pytest.mark.slow])]
        yield pytest.param(Spark, name, id=f"spark-{name}", marks=marks)


@pytest.mark.parametrize(("backend", "case"), list(every_case()), indirect=["backend"])
def test_every_engine_agrees(backend: Backend, case: Case) -> None:
    run(backend, case)


def more_models() -> Iterator[Any]:
    every = [*cases.MORE_MODELS, *cases.ALL_MORE_MODELS]
    for case in dict.fromkeys(every if backends.name() == "classic" else cases.MORE_MODELS[1:2]):
        local = [] if case in cases.MORE_MODELS else [pytest.mark.slow]
        yield pytest.param(Local, case, id=f"local-{case}", marks=local)
        few = cases.MORE_MODELS[1 : 4 if backends.whole() else 2 : 2]
        rare = [] if case in few else [pytest.mark.slow]
        yield pytest.param(Spark, case, id=f"spark-{case}", marks=[pytest.mark.spark, *rare])


@pytest.mark.parametrize(("backend", "case"), list(more_models()), indirect=["backend"])
def test_every_engine_agrees_on_more_models(backend: Backend, case: Case) -> None:
    run(backend, case)


def test_more_models_take_part() -> None:
    """In the cases of every build a third model is patched, and disagrees with others."""
    patched, pairs = set(), set()
    for case in cases.MORE_MODELS:
        log = log_of(case.expected.pair)
        assert len(log) >= 2
        patched |= {patch["model"] for patch in log}
        pairs |= {(patch["kind"], patch["model"], patch["other"]) for patch in log}
    assert {1, 2, 3} <= patched
    assert {kind for kind, *models in pairs if 3 in models} == {"reconcile", "score", "calibrate"}


def run(backend: Backend, case: Case) -> None:
    if isinstance(backend, Spark):
        backend.scratch_of = case.scratch
    rows = backend.rows(table(case.problem), case.partitions, case.layout)
    # Who wrote scratch, and how much the driver took, is over when the log is there: of the whole
    # matrix one in six looks at the rows.
    applied = case not in LATER or (case.budget, case.scratch) == ("none", "files")
    check(backend, case.problem, case.expected, rows, case.driver_budget, applied)


@pytest.mark.parametrize(("backend", "name"), list(every_edge()), indirect=["backend"])
def test_edge_cases(backend: Backend, name: str) -> None:
    problem = edge_cases()[name]
    rows = backend.rows(table(problem), 2, "even")
    check(backend, problem, of_problem(problem), rows, 0)


def test_the_cover_shows_every_pair_of_values() -> None:
    assert (len(cases.ALL), len(FEW)) == (2_304, 1_728)
    for among, most in ((FEW, 22), (cases.ALL, 27)):
        wanted = {pair for case in among for pair in cases.pairs(case)}
        chosen = cases.cover(among)
        assert {pair for case in chosen for pair in cases.pairs(case)} == wanted
        assert len(chosen) <= most


@pytest.mark.slow
def test_the_problems_are_worth_fitting() -> None:
    """Logs of 4 to 10 patches, of every kind."""
    kinds = set()
    for case in cases.ALL:
        log = expected(case.algorithm, case.classes, case.losses).pair.log
        assert 4 <= len(log) <= 10
        kinds |= {(patch.kind, patch.round is None) for patch in log}
    inner, everywhere = ("calibrate", False), ("calibrate", True)
    assert kinds == {("reconcile", False), inner, everywhere, ("score", False)}


def test_edge_cases_are_on_the_edge() -> None:
    """An exact half in rounding, two events of the same mass, and that mass is eta."""
    half = edge_cases()["half_up_and_half_down"]
    result = oracle.fit(half)
    means = [
        Fraction(abs(oracle.grid_labels(half)[0][0] - f[0][0]) * result.m, oracle.ONE)
        for f in (oracle.grid_scores(half.f1), oracle.grid_scores(half.f2))
    ]
    assert means == [Fraction(3, 2), Fraction(1, 2)]
    assert [patch["phi"] for patch in result.log] == [[oracle.ONE, -oracle.ONE]]
    assert result.zero_calibrations == 1

    tied = edge_cases()["masses_tie_at_eta"]
    assert tied.eta is not None
    first, second = log_of(of_problem(tied).pair)
    assert first["rows"] == second["rows"] == oracle.exact(tied.eta) * len(tied.y)
    assert (first["a1"], first["a2"]) == (second["a2"], second["a1"]) == (0, 1)
