"""databricks.yml and conf/databricks: what can be known without a workspace."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from redcal_spark.cli import entry
from redcal_spark.cli.open_job import choose_engine
from redcal_spark.config.load import load_config
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
        assert set(task) <= {"task_key", "depends_on", "environment_key", "python_wheel_task"}
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
    options = entry._parser().parse_args(parameters(name, target))
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
    options = entry._parser().parse_args(parameters("fit"))
    assert set(options.fail_on) == {"capped", "stalled", "cut"}


def test_the_file_has_the_names_of_prod() -> None:
    options = entry._parser().parse_args(parameters("fit"))
    written, given = load_config(options.config), load_config(options.config, options.set)
    assert written.recorded() == given.recorded()


def test_the_volume() -> None:
    (volume,) = included()["volumes"].values()
    path = "/".join(resolved(volume[f"{key}name"]) for key in ("catalog_", "schema_", ""))
    assert parameters("report")[-1].startswith(f"/Volumes/{path}/")
    assert volume["volume_type"] == "MANAGED"
