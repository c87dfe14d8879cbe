"""Hosts whose numpy and BLAS differ: the same log and the same tables, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.test_resume import outcome
from tests.e2e.work import Work
from tests.faults.running import ROOT, redcal

CORES = ("Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX")
PROBE = """
import hashlib, json, sys
import numpy as np
import threadpoolctl
rng = np.random.default_rng(1)
product = rng.random((257, 129)) @ rng.random((129, 63))
features = np.core if np.__version__ < "2" else np._core
found = features._multiarray_umath.__cpu_features__
print(json.dumps({
    "numpy": np.__version__,
    "blas": [i["architecture"] for i in threadpoolctl.threadpool_info() if "architecture" in i],
    "threads": [i["num_threads"] for i in threadpoolctl.threadpool_info()],
    "bits": hashlib.sha256(product.tobytes()).hexdigest(),
    "features": sorted(f for f in features._multiarray_umath.__cpu_dispatch__ if found[f]),
}))
"""


def host(**env: str) -> Any:
    """What numpy is with these variables; None: it does not run on this machine."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=os.environ | env, capture_output=True, text=True
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def hosts() -> list[dict[str, str]]:
    """Variables that make this machine another one, as far as it can be it."""
    cores = [{"OPENBLAS_CORETYPE": core} for core in CORES]
    found = [env for env in cores if (host(**env) or {}).get("blas") == [*env.values()]]
    for threads in ("1", "3"):
        found.append({"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads})
    features = host()["features"]
    if features:
        found.append({"NPY_DISABLE_CPU_FEATURES": " ".join(features)})
    return found


def left(work: Work, name: str, env: dict[str, str]) -> Any:
    """All that a run leaves, of calibrations everywhere and within events."""
    work.tree["output"]["table"] = f"{name}/out/rows"
    work.tree["reconcile"] |= {"algorithm": "dc_then_redcal", "eta": 0.02}
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    told = redcal("run", "-c", "config.yaml", env=env)
    assert told.code in (0, 3), told.err
    return outcome(name)


@pytest.mark.slow
@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_other_cores_and_threads(work: Work, some: bool) -> None:
    found = hosts()
    told = [host(**env) for env in found]
    if len({one["bits"] for one in told}) < 2:
        pytest.skip("all that BLAS can be on this machine rounds alike")
    expected = left(work, "usual", {})
    assert {patch["round"] is None for patch in expected["patches"]} == {True, False}
    for number, env in enumerate(found[-2:] if some else found):  # threads, and another numpy
        assert left(work, f"other-{number}", env) == expected, env


@pytest.mark.slow
def test_another_numpy(work: Work, tmp_path: Path) -> None:
    """The oldest that our pyarrow takes, with the BLAS that came with it."""
    uv = Path(sys.executable).with_name("uv")
    folder = tmp_path / "old"
    install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*install, "numpy==2.0.2"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"numpy 2.0.2 cannot be had here: {done.stderr.strip()[:200]}")
    env = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    assert host(**env)["numpy"] == "2.0.2" != host()["numpy"]
    expected = left(work, "usual", {})
    for core in ("Nehalem", "Haswell"):
        assert left(work, core, env | {"OPENBLAS_CORETYPE": core}) == expected
