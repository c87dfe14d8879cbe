"""Messages name settings as whoever reads them writes them: arguments in Python, keys in jobs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import config_from_tree
from redcal_spark.config.schema import Config
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import beta_warning
from redcal_spark.errors import RedcalError
from redcal_spark.runs.job import Job
from redcal_spark.settings import KEYS, called_from_python, of_a_job, setting
from tests.unit.test_layers import ROOT

COSTS = {"t": [[0, 2], [1, 0]]}
SCORES = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]] * 20
LABELS = [0, 1, 1] * 20


def test_every_setting_is_an_argument_and_a_key() -> None:
    arguments = {
        *inspect.signature(Reconciler.__init__).parameters,
        *inspect.signature(ReconciledPair.apply).parameters,
    }
    for name, key in KEYS.items():
        assert name in arguments
        model: Any = Config
        for part in key.split("."):
            assert part in model.model_fields, key
            model = model.model_fields[part].annotation
    settings = arguments - {"self", "data", "model_2"}
    assert settings <= KEYS.keys()


def test_the_call_decides_the_name() -> None:
    @called_from_python
    def public() -> tuple[str, str]:
        return setting("suffix"), setting("suffix", "_v2")

    assert (setting("suffix"), setting("suffix", "_v2")) == ("output.suffix", "output.suffix: _v2")
    assert public() == ("suffix", "suffix='_v2'")
    with of_a_job():
        assert public() == ("output.suffix", "output.suffix: _v2")
    assert setting("suffix") == "output.suffix"


def test_after_an_error_the_names_are_as_before() -> None:
    @called_from_python
    def public() -> None:
        raise RedcalError(setting("eta"))

    with pytest.raises(RedcalError, match=r"^eta$"):
        public()
    assert setting("eta") == "reconcile.eta"


def in_python(columns: dict[str, Any], apply: bool) -> None:
    reconciler = Reconciler(losses=COSTS, alpha=0.1, eta=0.1, model_1="a", model_2="b", label="y")
    if not apply:
        reconciler.fit(pa.table(columns))
    else:
        good = {"a": SCORES, "b": SCORES, "y": LABELS}
        reconciler.fit(pa.table(good)).apply(pa.table(columns))


def in_a_job(columns: dict[str, Any], apply: bool) -> None:
    pq.write_table(pa.table(columns), "rows")
    tree = {
        "input": {"table": "rows", "label": "y", "model_1": "a", "model_2": "b"},
        "losses": {"t": {"costs": COSTS["t"]}},
        "reconcile": {"alpha": 0.1, "eta": 0.1},
        "output": {"table": "out"},
        "engine": {"name": "local"},
    }
    job = Job(config_from_tree(tree), LocalBackend(DeltaRsStore()))
    job.check()
    job.scan()


@pytest.mark.parametrize(
    ("changed", "apply", "python", "config"),
    [
        ({"touched": [1] * 60}, True, "with suffix='_v2'", "with output.suffix: _v2"),
        (
            {"a": [[2.0, 0.0], *SCORES[1:]]},
            False,
            "(on_bad_rows='skip' passes",
            "(input.on_bad_rows: skip passes",
        ),
        (
            {"a": [[2.0, 0.0], *SCORES[1:]]},
            True,
            "(on_bad_rows='skip' passes",
            "(input.on_bad_rows: skip passes",
        ),
        ({"y": ["u", "v", "u"] * 20}, False, "with `classes`;", "with `input.classes`;"),
        (
            {"a": [[0.1] * 10] * 60, "b": [[0.1] * 10] * 60},
            False,
            "losses and `classes` have 2",
            "losses and `input.classes` have 2",
        ),
    ],
    ids=["names taken", "bad rows", "bad rows to apply", "text", "classes"],
)
def test_a_message_in_python_and_of_a_job(
    changed: dict[str, Any],
    apply: bool,
    python: str,
    config: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"a": SCORES, "b": SCORES, "y": LABELS} | changed
    calls: list[tuple[Callable[[dict[str, Any], bool], None], str]]
    calls = [(in_python, python), (in_a_job, config)]
    for call, wanted in calls:
        with pytest.raises(RedcalError) as caught:
            call(columns, apply)
        assert wanted in str(caught.value)


def test_a_small_beta_in_python_and_of_a_job() -> None:
    parameters = Parameters(algorithm="decision_calibration", beta=1e-5)
    named = called_from_python(beta_warning)(parameters, 4_000)
    assert named is not None and "beta='auto' would be" in named
    told = beta_warning(parameters, 4_000)
    assert told is not None and "reconcile.beta: auto would be" in told


KEY = re.compile(r"--set\b|--engine\b|\b(?:input|output|reconcile|engine)\.[a-z_]+")


# What `Reconciler` and `ReconciledPair` lead to. The rest of the backends serves jobs alone.
REACHED = ("errors", "atomic_write", "core/", "algorithms/", "certificate/", "model/")
ENGINES = re.compile(
    r"backends/(threads|local/engine|spark/"
    r"(engine|errors|frames|lazy|scan|scratch\w*|session|ship|spark_version|stored_blocks|tasks|workers))\.py"
)


def test_nothing_that_python_can_reach_speaks_of_keys() -> None:
    """Modules up to the Reconciler serve Python too; only `settings` has the names of keys."""
    found, engines = [], 0
    for path in sorted((ROOT / "redcal_spark").rglob("*.py")):
        place = path.relative_to(ROOT / "redcal_spark").as_posix()
        engine = ENGINES.fullmatch(place) is not None
        engines += engine
        if not engine and not place.startswith(REACHED):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [f"{place}: {key}" for key in KEY.findall(node.value)]
    assert engines > 10
    assert found == ["core/output_columns.py: output.columns"]  # only jobs choose columns
