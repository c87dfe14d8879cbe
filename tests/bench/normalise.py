"""How far sums go from 1 on real sets, and how often dividing by them changes an action.

    python -m tests.bench.normalise --data ../shared/data -o docs/results/normalise.json

Actions are those of the scores as they are. Dividing them by a positive number changes no best
response, but the quotients are rounded: to float64, and to the grid if they are read in again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from redcal_spark import Reconciler
from redcal_spark.core.fixed_point import to_grid
from redcal_spark.core.kernel import respond
from redcal_spark.core.losses import LossFamily
from tests import real_data
from tests.bench.timing import machine
from tests.helpers import Array, quietly

SETS = ("dermamnist", "mnist_pycalib", "imagenet_10", "imagenet_100")
ALGORITHMS = ("redcal", "dc_then_redcal")
GIVEN: dict[str, Any] = {"alpha": 0.005, "eta": 0.01, "max_steps": 2_000}
OFF = 1e-3  # of a sum (one a row and model), from where on rows of an input are told of


def families(d: int) -> dict[str, dict[str, Any]]:
    """Costs of many digits, where ties are rare, and round ones, where they are not."""
    rng = np.random.default_rng(7)
    drawn = {f"l{i}": rng.normal(size=(min(d, 3) + i, d)).tolist() for i in range(4)}
    whole = {f"w{i}": rng.integers(0, 6, size=(min(d, 3) + i, d)).tolist() for i in range(3)}
    return {"drawn": drawn, "round": whole | {"zero_one": (1 - np.eye(d)).tolist()}}


def decisions(losses: LossFamily, scores: Array, *, exact: bool) -> Array:
    """Best responses, loss x row: on the grid as the package does, or as anyone does in float64."""
    if exact:
        return respond(to_grid(scores), losses)
    costs = (np.array(loss.costs) for loss in losses.losses)
    return np.array([(scores @ matrix.T).argmin(axis=1) for matrix in costs])


def ties(losses: LossFamily, scores: Array, one: Array, two: Array) -> int:
    """Where two answers differ, how often both actions cost exactly the same, as costs are
    written."""
    found = 0
    for place, row in np.argwhere(one != two).tolist():
        grid, costs = to_grid(scores[row]).astype(int).tolist(), losses[place].exact_costs
        first, second = (
            sum(q * cost for q, cost in zip(grid, costs[answer[place, row]], strict=True))
            for answer in (one, two)
        )
        found += first == second
    return found


def measured(name: str, algorithm: str, family: str) -> dict[str, Any]:
    """Fitted on one half, applied to all rows."""
    given = real_data.load(name)
    half = len(given.y) // 2
    losses = families(given.classes)[family]
    with quietly():
        made = Reconciler(losses=losses, algorithm=algorithm, **GIVEN)
        pair = made.fit(given.f1[:half], given.f2[:half], given.y[:half])
        new = pair.apply(given.f1, given.f2, normalise=True)
    keys = ("float64", "float64_ties", "grid", "float64_undivided")
    changed = dict.fromkeys(keys, 0)
    sums = np.concatenate([scores.sum(axis=1) for scores in new[:2]])
    without = 0
    for raw, divided in zip(new[:2], new[2:], strict=True):
        has = ~np.isnan(divided[:, 0])
        without += int((~has).sum())
        written = decisions(pair.losses, raw[has], exact=True)
        for key, scores, exact in (
            ("float64", divided[has], False),
            ("grid", divided[has], True),
            ("float64_undivided", raw[has], False),
        ):
            found = decisions(pair.losses, scores, exact=exact)
            changed[key] += int((found != written).sum())
            if key == "float64":
                changed["float64_ties"] += ties(pair.losses, raw[has], written, found)
    return {
        "set": name,
        "algorithm": algorithm,
        "costs": family,
        "rows": len(given.y),
        "classes": given.classes,
        "patches": len(pair.log),
        "smallest_sum": float(sums.min()),
        "largest_sum": float(sums.max()),
        "sums_off": int((np.abs(sums - 1) > OFF).sum()),
        "sums_of_zero": without,
        "decisions": len(pair.losses) * (2 * len(given.y) - without),
        "changed": changed,
    }


def totals(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all of them, and by the kind of costs."""
    result: dict[str, Any] = {
        "smallest_sum": min(one["smallest_sum"] for one in found),
        "largest_sum": max(one["largest_sum"] for one in found),
    }
    for family in ("drawn", "round"):
        own = [one for one in found if one["costs"] == family]
        result[family] = {"decisions": sum(one["decisions"] for one in own)} | {
            key: sum(one["changed"][key] for one in own) for key in own[0]["changed"]
        }
    return result


def measure_all() -> Iterator[dict[str, Any]]:
    for name in SETS:
        for algorithm in ALGORITHMS:
            for family in ("drawn", "round"):
                found = measured(name, algorithm, family)
                print(json.dumps(found), file=sys.stderr, flush=True)
                yield found


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "HEAD").strip() + (", with changes" if changed else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.normalise", description=__doc__)
    parser.add_argument("--data", type=Path, default=real_data.FOLDER)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    real_data.FOLDER = given.data
    found = list(measure_all())
    told = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "machine": machine(),
        "parameters": GIVEN,
        "totals": totals(found),
        "cases": found,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
