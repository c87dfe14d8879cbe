"""databricks.yml and conf/databricks: what can be known without a workspace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from redcal_spark.cli.open_job import choose_engine
from redcal_spark.cli.parser import command_line
from redcal_spark.config.load import load_config
from tests.versions.rows import ROWS
from tests.wheels import ROOT, bundle

TASKS = ("audit", "fit", "apply", "report")
REFERENCE = re.compile(r"\$\{([^}]*)\}")
# What the command line of Databricks itself fills in.
KNOWN = ("bundle.name", "bundle.target", "workspace.file_path", "workspace.current_user.userName")
QUARTZ = re.compile(r"\S+( \S+){5,6}")


def included() -> dict[str, Any]:
    """The resources of all included files, by kind and name."""
    (pattern,) = bundle()["include"]
    files = sorted(ROOT.glob(pattern))
    assert {file.name for file in files} == {"job.yml", "volume.yml"}
    found: dict[str, Any] = {}
    for file in files:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert list(tree) == ["resources"]
        for kind, named in tree["resources"].items():
            found.setdefault(kind, {}).update(named)
    return found


def job() -> Any:
    return included()["jobs"]["reconcile"]


def resolved(text: str, target: str = "prod") -> str:
    """A text with the variables of a target filled in."""
    own = bundle()["targets"][target].get("variables", {})
    defaults = {name: given["default"] for name, given in bundle()["variables"].items()}
    values = {f"var.{name}": value for name, value in (defaults | own).items()}
    values |= {"workspace.file_path": str(ROOT), "bundle.target": target}
    return REFERENCE.sub(lambda found: values[found[1]], text)


def parameters(name: str, target: str = "prod") -> list[str]:
    (task,) = [task for task in job()["tasks"] if task["task_key"] == name]
    return [resolved(text, target) for text in task["python_wheel_task"]["parameters"]]


def test_two_targets() -> None:
    targets = bundle()["targets"]
    assert list(targets) == ["dev", "prod"]
    assert targets["dev"]["mode"] == "development"
    assert targets["dev"]["default"] is True
    assert targets["dev"]["presets"] == {"trigger_pause_status": "PAUSED"}
    assert targets["prod"]["mode"] == "production"
    assert "default" not in targets["prod"]
    assert targets["prod"]["workspace"]["root_path"].startswith("/Workspace/")
    for target in targets.values():
        assert set(target.get("variables", {})) <= set(bundle()["variables"])


def test_every_reference_is_known() -> None:
    files = [ROOT / "databricks.yml", *sorted(ROOT.glob("conf/databricks/*.yml"))]
    found = {name for file in files for name in REFERENCE.findall(file.read_text("utf-8"))}
    known = {f"var.{name}" for name in bundle()["variables"]}
    assert found <= known | set(KNOWN)
    assert known <= found  # none is left over


def test_a_chain_of_wheel_tasks_on_serverless() -> None:
    assert [task["task_key"] for task in job()["tasks"]] == list(TASKS)
    (environment,) = job()["environments"]
    before: list[str] = []
    for task in job()["tasks"]:
        own = {"task_key", "depends_on", "environment_key", "python_wheel_task"}
        assert set(task) <= own | {"max_retries", "min_retry_interval_millis"}
        assert [x["task_key"] for x in task.get("depends_on", [])] == before[-1:]
        assert task["environment_key"] == environment["environment_key"]
        assert task["python_wheel_task"]["package_name"] == "redcal_spark"
        assert task["python_wheel_task"]["entry_point"] == "redcal-task"
        before.append(task["task_key"])
    assert "job_clusters" not in job()


def test_the_wheel_is_what_the_environment_installs() -> None:
    artifact = bundle()["artifacts"]["wheel"]
    assert artifact["type"] == "whl"
    folder = re.search(r"--wheel-dir (\S+)", artifact["build"])
    assert folder is not None
    wheel, *others = job()["environments"][0]["spec"]["dependencies"]
    place = (ROOT / "conf" / "databricks" / wheel).parent.resolve()
    assert place == (ROOT / artifact["path"] / folder[1]).resolve()
    setup = (ROOT / "setup.py").read_text("utf-8")
    assert all(f'"{other}"' in setup for other in others)  # as the extra `report` has them


def test_what_is_tested_is_what_it_asks_for() -> None:
    """The environment's libraries are a row of the table of versions; the team may look."""
    version = bundle()["variables"]["environment_version"]["default"]
    assert job()["environments"][0]["spec"]["environment_version"] == "${var.environment_version}"
    assert any(f"serverless {version}" in row.platform and row.libraries for row in ROWS)
    assert job()["permissions"] == [{"group_name": "${var.team}", "level": "CAN_VIEW"}]
    assert job()["timeout_seconds"] > 0


def test_floors_are_those_of_the_oldest_platform() -> None:
    """Nothing that a platform has is replaced by the wheel: `make test-versions` sees that, too."""
    (oldest,) = [row for row in ROWS if row.platform.startswith("Databricks 17.3")]
    asked = {one.name: one for one in map(Requirement, metadata.requires("redcal-spark") or [])}
    for name, version in oldest.libraries.items():
        if name in asked:
            assert version in asked[name].specifier, name
            floor = ".".join(version.split(".")[:2])
            assert f">={floor.removesuffix('.0')}" in str(asked[name].specifier), name


# --- the template of `databricks bundle init` -----------------------------------------------------

TEMPLATE = ROOT / "conf" / "databricks" / "template"


def rendered(**given: str) -> dict[str, str]:
    """The files of a new project, by their paths: all that the template uses is names."""
    schema = json.loads((TEMPLATE / "databricks_template_schema.json").read_text("utf-8"))
    values = {name: each["default"] for name, each in schema["properties"].items()} | given

    def fill(text: str) -> str:
        return re.sub(r"\{\{\.(\w+)\}\}", lambda found: values[found[1]], text)

    inside = TEMPLATE / "template"
    files = [path for path in inside.rglob("*") if path.is_file()]
    found = {
        fill(str(path.relative_to(inside))).removesuffix(".tmpl"): path.read_text("utf-8")
        for path in files
    }
    assert all("{{" not in text for name, text in found.items() if name.endswith("volume.yml"))
    return {name: fill(text) for name, text in found.items()}


def test_a_new_project_is_this_bundle_without_the_checkout() -> None:
    found = {name: yaml.safe_load(text) for name, text in rendered().items()}
    new, here = found["reconcile/databricks.yml"], bundle()
    assert new["bundle"] == {"name": "reconcile"}
    assert new["targets"] == here["targets"]
    assert new["include"] == ["resources/*.yml"] and not {"artifacts", "sync"} & set(new)
    config = new["variables"]["config"]
    assert (config["default"], f"reconcile/{config['default']}" in found) == (
        "reconcile.yaml",
        True,
    )
    assert {n: v["default"] for n, v in new["variables"].items() if n != "config"} == {
        n: v["default"] for n, v in here["variables"].items() if n != "config"
    }
    ours, theirs = job(), found["reconcile/resources/job.yml"]["resources"]["jobs"]["reconcile"]
    assert theirs["environments"][0]["spec"].pop("dependencies") == ["redcal-spark[report]"]
    del ours["environments"][0]["spec"]["dependencies"]
    assert theirs == ours
    volume = found["reconcile/resources/volume.yml"]["resources"]["volumes"]
    assert volume == included()["volumes"]


def test_a_new_project_has_the_names_that_were_given(tmp_path: Path) -> None:
    names = {"project_name": "beds", "catalog": "lake", "schema": "wards", "output": "moved"}
    found = rendered(**names, package="/Volumes/lake/tools/redcal.whl")
    assert set(found) > {"beds/databricks.yml", "beds/reconcile.yaml"}
    text = found["beds/reconcile.yaml"]
    (tmp_path / "reconcile.yaml").write_text(text, encoding="utf-8")
    config = load_config(str(tmp_path / "reconcile.yaml"), [])
    assert config.output.table == "lake.wards.moved"
    assert config.engine.scratch == "/Volumes/lake/wards/redcal/scratch"
    spec = yaml.safe_load(found["beds/resources/job.yml"])["resources"]["jobs"]["reconcile"]
    assert spec["environments"][0]["spec"]["dependencies"] == ["/Volumes/lake/tools/redcal.whl"]


# Databricks' own models of jobs and volumes, in an environment of their own.
OWN_MODELS = """
import json, sys
from databricks.bundles.jobs import Job
from databricks.bundles.volumes import Volume
for kind, tree in json.load(sys.stdin):
    {"jobs": Job, "volumes": Volume}[kind].from_dict(tree)
bad = json.loads(json.dumps(tree)) | {"no_such_key": 1}
try:
    Volume.from_dict(bad)
except ValueError:
    print("checked")
"""


@pytest.mark.slow
def test_databricks_own_models_take_it(tmp_path: Path) -> None:
    """What `databricks bundle validate` would say of keys and values, where it cannot be had."""
    uv = [str(Path(sys.executable).parent / "uv")]
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [*uv, "venv", "--quiet", "--python", sys.executable, python.parents[1]], check=True
    )
    install = [*uv, "pip", "install", "--quiet", "--python", str(python), "databricks-bundles"]
    subprocess.run(install, check=True)
    trees = [included()]
    new = {name: yaml.safe_load(text) for name, text in rendered().items()}
    trees += [tree["resources"] for name, tree in new.items() if "resources/" in name]
    parts = [
        (kind, one) for tree in trees for kind, named in tree.items() for one in named.values()
    ]
    parts.sort(key=lambda part: part[0])  # volumes last
    told = subprocess.run(
        [str(python), "-c", OWN_MODELS],
        input=json.dumps(parts),
        capture_output=True,
        text=True,
    )
    assert told.stdout == "checked\n", told.stderr


@pytest.mark.skipif(shutil.which("databricks") is None, reason="needs the databricks command line")
def test_bundle_init(tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({"project_name": "beds"}), encoding="utf-8")
    command = ["databricks", "bundle", "init", str(TEMPLATE), "--output-dir", str(tmp_path)]
    env = os.environ | {"DATABRICKS_HOST": "https://localhost", "DATABRICKS_TOKEN": "none"}
    subprocess.run([*command, "--config-file", str(answers)], check=True, env=env)
    for name, text in rendered(project_name="beds").items():
        assert (tmp_path / name).read_text("utf-8") == text, name


def test_it_is_scheduled() -> None:
    schedule = job()["schedule"]
    assert QUARTZ.fullmatch(schedule["quartz_cron_expression"])
    assert "?" in schedule["quartz_cron_expression"].split()  # Quartz wants one of the two days
    assert schedule["timezone_id"] == "UTC"
    assert "pause_status" not in schedule  # the target says it
    assert job()["max_concurrent_runs"] == 1


@pytest.mark.parametrize("target", ["dev", "prod"])
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_a_command_with_a_configuration(name: str, target: str) -> None:
    options = command_line().parse_args(parameters(name, target))
    assert options.command == name
    config = load_config(options.config, options.set)
    schema = {"dev": "risk_dev", "prod": "risk"}[target]
    assert config.input.table == f"main.{schema}.patients"
    assert config.output.table == f"main.{schema}.triage"
    assert config.engine.scratch == f"/Volumes/main/{schema}/redcal/scratch"
    assert choose_engine(config)[0] == "spark"
    if name == "report":
        assert options.output == f"/Volumes/main/{schema}/redcal/triage.html"


def test_all_tasks_mean_the_same_run() -> None:
    """`apply` and `report` find the run of `fit` by its configuration."""
    sets = [
        [text for text in parameters(name) if text.startswith(("--set", "--config"))]
        for name in TASKS
    ]
    assert sets[0] and all(found == sets[0] for found in sets)


def test_a_fit_that_is_tried_again_does_not_turn_the_alarm_green() -> None:
    """Capped, it ends with 3, and so does the second try; --fail-on says why."""
    options = command_line().parse_args(parameters("fit"))
    assert set(options.fail_on) == {"capped", "stalled", "cut"}


def test_the_file_has_the_names_of_prod() -> None:
    options = command_line().parse_args(parameters("fit"))
    written, given = load_config(options.config), load_config(options.config, options.set)
    assert written.recorded() == given.recorded()


def test_the_volume() -> None:
    (volume,) = included()["volumes"].values()
    path = "/".join(resolved(volume[f"{key}name"]) for key in ("catalog_", "schema_", ""))
    assert parameters("report")[-1].startswith(f"/Volumes/{path}/")
    assert volume["volume_type"] == "MANAGED"
