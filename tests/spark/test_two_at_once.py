"""Two processes at once on one Spark Connect server: one works, or each, and nothing is mixed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from tests import backends
from tests.e2e.test_claims import ROOT, start
from tests.e2e.work import Work, scores

TIMES = [pytest.param(i, marks=[pytest.mark.slow] if i else []) for i in range(20)]

pytestmark = pytest.mark.skipif(
    backends.name() != "classic", reason="the processes have a server of their own"
)


@dataclass(frozen=True)
class Server:
    address: str
    process: subprocess.Popen[str]

    def sessions(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    port = backends.free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.server", str(port)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Server(f"sc://{backends.LOOPBACK[0]}:{port}", process)
    finally:
        process.communicate("", timeout=60)


@pytest.fixture
def shared(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Work:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_REMOTE", server.address)
    write_deltalake("scores", scores())
    work = Work(tmp_path, capsys)
    work.tree["input"]["table"] = str(tmp_path / "scores")
    work.tree["output"]["table"] = str(tmp_path / "out" / "rows")
    work.tree["engine"] = {"name": "spark", "scratch": str(tmp_path / "scratch")}
    return work


def configure(work: Work, name: str = "config.yaml", **parameters: Any) -> None:
    tree = work.tree | {"reconcile": work.tree["reconcile"] | parameters}
    Path(name).write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")


def ledger() -> list[Any]:
    rows = DeltaTable("out/rows_runs").to_pyarrow_table().to_pylist()
    return [row["status"] for row in rows]


@pytest.mark.parametrize("wait", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("repeat", TIMES)
def test_one_run(shared: Work, server: Server, repeat: int, wait: bool) -> None:
    configure(shared)
    options = ["run", "--json", *(["--wait"] if wait else [])]
    told = [p.ended() for p in [start(*options), start(*options)]]
    assert [code for code, *_ in told] == [0, 0], [err[-3000:] for *_, err in told]
    found = [json.loads(out) for _, out, _ in told]
    [worked] = [x for x in found if "metrics" in x]
    [other] = [x for x in found if "metrics" not in x]
    assert other["run_id"] == worked["run_id"]
    assert "unchanged" in other if wait else other.keys() & {"held_by", "unchanged"}
    assert ledger() == ["converged"]
    assert [DeltaTable(f"out/{name}").version() for name in ("rows", "rows_history")] == [0, 0]
    patches = DeltaTable("out/rows_patches").to_pyarrow_table()  # more versions if it took long
    assert sorted(patches["step"].to_pylist()) == list(range(worked["patches"]))
    assert not any(Path("scratch").iterdir())
    assert server.sessions() == 0  # given back, not left to time out


@pytest.mark.slow
@pytest.mark.parametrize("repeat", TIMES)
def test_two_runs_on_one_target(shared: Work, repeat: int) -> None:
    configure(shared)
    configure(shared, "other.yaml", eta=0.02)
    told = [
        p.ended() for p in [start("run", "--json"), start("run", "--json", config="other.yaml")]
    ]
    assert [code for code, *_ in told] == [0, 0], [err[-3000:] for *_, err in told]
    found = [json.loads(out) for _, out, _ in told]
    versions = [x["outputs"][shared.tree["output"]["table"]] for x in found]
    assert len(set(versions)) == 2
    assert ledger() == ["converged"] * 2
    patches = DeltaTable("out/rows_patches").to_pyarrow_table().to_pylist()
    for run, version in zip(found, versions, strict=True):
        log = [p for p in patches if p["run_id"] == run["run_id"]]
        assert len(log) == run["patches"]
        rows = DeltaTable("out/rows", version=version).to_pyarrow_table()
        assert rows.num_rows == 600
        # no row of one run among those of the other
        config, place = "config.yaml" if run is found[0] else "other.yaml", f"alone{version}/rows"
        alone = ("run", "-c", config, "--engine", "local", "--set", f"output.table={place}")
        assert shared.cli(*alone).code == 0
        expected = DeltaTable(place).to_pyarrow_table()
        assert rows.sort_by("case").to_pylist() == expected.sort_by("case").to_pylist()
