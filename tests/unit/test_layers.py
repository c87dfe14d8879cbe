"""The floor plan, proved from the imports: one direction, and who may import what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "redcal_spark"

# The plan. Imports point from right to left; packages that stand together don't see each other.
PLAN = (
    "errors settings | atomic_write | config | core | algorithms certificate | backends | model"
    " | runs | report demo | registry | cli"
)
FACES = {"__init__", "mlflow", "notebook", "session"}  # for users; they may see all
ONLY_THERE = {
    "pyspark": ("backends/spark/",),
    "delta": ("backends/spark/",),
    "deltalake": ("backends/",),
    "mlflow": ("registry/",),
    "pandas": (),  # who hands over its frames has it
}
# What a Spark worker imports ...
WORKER_MODULES = (
    *("tasks", "cell_tasks", "cells", "statistics", "file_reader", "reports", "write_task"),
)
ADDRESSES = ("backends/object_stores.py", "config/addresses.py")  # for workers that read there
WORKERS = ("core/", *ADDRESSES, *(f"backends/spark/{name}.py" for name in WORKER_MODULES))
WORKERS_HAVE = sys.stdlib_module_names | {"numpy", "pyarrow"}  # ... and all that it needs

LEVEL = {name: i for i, names in enumerate(PLAN.split("|")) for name in names.split()}
HEAVY = {"pyspark", "delta", "deltalake", "pandas", "pydantic", "rich", "matplotlib", "jinja2"}
HEAVY |= {"mlflow", "sklearn", "duckdb"}


@dataclass(frozen=True)
class Import:
    """One imported name: who imports it, the library, and the module if the library is ours."""

    place: str  # relative to the package, as "backends/local/engine.py"
    line: int
    library: str
    module: str | None  # relative to the package, as "core/kernel.py"
    runs_on_import: bool

    def __str__(self) -> str:
        return f"{self.place}:{self.line} imports {self.module or self.library}"


def part_of(place: str) -> str:
    return place.split("/")[0].removesuffix(".py")


@cache
def all_imports() -> tuple[Import, ...]:
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    return tuple(dict.fromkeys(each for path in files for each in imports_of(path)))


def imports_of(path: Path) -> Iterator[Import]:
    place = path.relative_to(ROOT / PACKAGE).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node, runs_on_import in import_statements(tree, runs_on_import=True):
        for dotted in imported_names(node):
            if dotted == f"{PACKAGE}.__version__":
                continue
            library, *rest = dotted.split(".")
            module = module_of(rest) if library == PACKAGE else None
            yield Import(place, node.lineno, library, module, runs_on_import)


def module_of(parts: list[str]) -> str:
    """The file of a dotted name below the package; its last part may be a name in a module."""
    for end in range(len(parts), 0, -1):
        base = Path(*parts[:end])
        for name in (base.with_suffix(".py"), base / "__init__.py"):
            if (ROOT / PACKAGE / name).is_file():
                return name.as_posix()
    return "__init__.py"


def import_statements(
    node: ast.AST, *, runs_on_import: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import below `node`, and whether it runs when the module is imported."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, runs_on_import
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for statement in node.body:
            yield from import_statements(statement, runs_on_import=False)
        for statement in node.orelse:
            yield from import_statements(statement, runs_on_import=runs_on_import)
    else:
        deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from import_statements(child, runs_on_import=runs_on_import and not deferred)


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Absolute dotted names: `from a.b import c` is `a.b.c`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert not node.level, "imports are absolute here"
    return [f"{node.module}.{alias.name}" for alias in node.names]


def test_every_module_has_its_place_in_the_plan() -> None:
    files = (path.relative_to(ROOT / PACKAGE) for path in (ROOT / PACKAGE).rglob("*.py"))
    assert {part_of(path.as_posix()) for path in files} == LEVEL.keys() | FACES
    assert len(list((ROOT / PACKAGE).glob("*.py"))) <= 8


def test_imports_point_one_way() -> None:
    upward = [
        str(each)
        for each in all_imports()
        if each.module is not None
        and (own := part_of(each.place)) in LEVEL
        and (other := part_of(each.module)) != own
        and LEVEL.get(other, len(LEVEL)) >= LEVEL[own]
    ]
    assert not upward, "\n".join(upward)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for each in all_imports():
        if each.module is not None and each.module != each.place and each.runs_on_import:
            graph.setdefault(each.place, set()).add(each.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as err:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(err.args[1]))}")


def test_spark_and_delta_rs_are_imported_only_where_they_belong() -> None:
    elsewhere = [
        f"{each}; allowed in {', '.join(ONLY_THERE[each.library]) or 'no module'}"
        for each in all_imports()
        if each.library in ONLY_THERE and not each.place.startswith(ONLY_THERE[each.library])
    ]
    assert not elsewhere, "\n".join(elsewhere)


def test_a_spark_worker_needs_only_what_it_has() -> None:
    too_much = [
        str(each)
        for each in all_imports()
        if each.runs_on_import
        and each.place.startswith(WORKERS)
        and (
            each.library not in WORKERS_HAVE
            if each.module is None
            else not each.module.startswith((*WORKERS, "errors.py", "settings.py"))
        )
    ]
    assert not too_much, "\n".join(too_much)


LINES = 350  # of a file, at most


def test_no_file_is_long() -> None:
    for path in (ROOT / PACKAGE).rglob("*.py"):
        place = path.relative_to(ROOT / PACKAGE).as_posix()
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES, place


@pytest.mark.parametrize(
    "modules", [[PACKAGE], ["core", "backends.spark.tasks", "backends.spark.file_reader"]]
)
def test_importing_loads_nothing_heavy(modules: list[str]) -> None:
    if modules != [PACKAGE]:
        core = (p.stem for p in (ROOT / PACKAGE / "core").glob("[a-z]*.py"))
        modules = [f"{PACKAGE}.{name}" for name in (*modules, *(f"core.{name}" for name in core))]
    script = f"import sys, {', '.join(modules)}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def test_no_tracked_file_names_a_machine_path_or_a_registry_host() -> None:
    # Written so that this file does not match itself.
    needle = re.compile(
        rb"(?<![\w.})-])/(?:root|work|opt)/" rb"|pypi\.org" rb"|files\.pythonhosted", re.IGNORECASE
    )
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    tracked = [ROOT / name for name in listing.stdout.split("\0") if name]
    if not tracked:
        pytest.skip("not a git checkout")
    hits = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked
        if path.is_file()
        for match in needle.finditer(path.read_bytes())
    ]
    assert not hits, "\n".join(hits)
