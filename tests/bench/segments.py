"""`python -m tests.bench.segments`: who pays, among the home teams of American football.

Needs the predictions beside the checkout: two ratings' chances that the home team wins. A wrong bet
on the home team costs 1, one on the guests 1.2. Games of even numbers are fitted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import config_from_tree
from redcal_spark.core.number_text import share_text
from redcal_spark.model.audit import audits
from redcal_spark.runs import start
from redcal_spark.runs.job import Job
from tests.bench.results import save_printed
from tests.bench.timing import machine
from tests.real_data import FOLDER

SHOWN = 3


def games() -> pa.Table:
    rows = pq.read_table(FOLDER / "nfl_elo.parquet", columns=["id", "label", "team1", "p1", "p2"])
    half = pc.if_else(pc.equal(pc.bit_wise_and(rows["id"], 1), 0), "fit", "holdout")
    return rows.append_column("half", half)


def printed() -> str:
    """The teams whose cost rose most, and those whose cost fell most, on the holdout games."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            pq.write_table(games(), "games.parquet")
            tree = {
                "input": {
                    "table": "games.parquet",
                    "id": "id",
                    "label": "label",
                    "model_1": "p1",
                    "model_2": "p2",
                    "segments": ["team1"],
                    "split": {"column": "half", "fit": "fit", "holdout": "holdout"},
                },
                "losses": {"bet": {"costs": [[0, 1.2], [1, 0]]}},
                "reconcile": {"alpha": 0.01, "eta": 0.01},
                "output": {"table": "out/games"},
            }
            job = Job(config_from_tree(tree), LocalBackend(DeltaRsStore()))
            outcome = start.run(job)
        finally:
            os.chdir(before)
    assert outcome.pair is not None
    found = audits(outcome.pair, outcome.histories, outcome.pair.certificate)["holdout"]
    lines = ["| home team | games | decisions differ | now | cost, p1 | change | interval |"]
    lines.append("|---|---|---|---|---|---|---|")
    both = list(zip(found["before"]["segments"], found["after"]["segments"], strict=True))
    both.sort(key=lambda pair: -pair[1]["losses"][0]["change"][0]["value"])
    for old, new in [*both[:SHOWN], *both[-SHOWN:]]:
        was, now = old["losses"][0], new["losses"][0]
        change = now["change"][0]
        apart = f"{share_text(was['disagreement'])} | {share_text(now['disagreement'])}"
        ends = f"{change['low']:+.3f} to {change['high']:+.3f}"
        cost = f"{now['decision_loss'][0]:.4f} | {change['value']:+.4f} | {ends}"
        lines.append(f"| {new['value']} | {new['rows']} | {apart} | {cost} |")
    assert outcome.pair.certificate is not None
    verdicts = [
        f"model {check.model}: {check.verdict}"
        for check in outcome.pair.certificate.checks
        if check.name == "segment_loss"
    ]
    text = f"No team's cost rose by more than alpha: {', '.join(verdicts)}; {len(both)} teams."
    return "\n".join([*lines, "", text])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.segments", description=__doc__)
    parser.add_argument("--save", type=Path, metavar="FILE", help="docs/results/segments.json")
    given = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = printed()
    print(told)
    if given.save is not None:
        save_printed(given.save.absolute(), "python -m tests.bench.segments", machine(), told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
