"""One contract, every engine: equal logs and equal rows, whatever the order and the partitions.

Here: the local engine and the Spark of this process. tests/spark/test_processes.py runs this folder
again on Spark Connect and on a cluster, which need processes of their own.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests import backends, oracle
from tests.contract import cases
from tests.contract.cases import Case, edge_cases, expected, of_problem, table
from tests.contract.engines import Backend, check
from tests.helpers import log_of

CHOSEN, EDGES = cases.cover(30), list(edge_cases())
if backends.name() != "classic":  # 64 partitions take half a minute there
    CHOSEN = cases.cover(6, [case for case in cases.ALL if case.partitions < 64])
    EDGES = ["half_up_and_half_down", "masses_tie_at_eta"]


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_cover(backend: Backend, case: Case) -> None:
    run(backend, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in cases.ALL if c not in CHOSEN], ids=str)
def test_the_whole_product(backend: Backend, case: Case) -> None:
    run(backend, case)


@pytest.mark.parametrize("name", EDGES)
def test_edge_cases(backend: Backend, name: str) -> None:
    problem = edge_cases()[name]
    rows = backend.rows(table(problem), 2, "even")
    check(backend, problem, of_problem(problem), rows, 0)


def run(backend: Backend, case: Case) -> None:
    rows = backend.rows(table(case.problem), case.partitions, case.layout)
    check(backend, case.problem, case.expected, rows, case.driver_budget)


def test_the_cover_shows_every_pair_of_values() -> None:
    wanted = {pair for case in cases.ALL for pair in cases.pairs(case)}
    assert len(cases.ALL) == 1_152
    assert {pair for case in cases.cover(30) for pair in cases.pairs(case)} == wanted


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
