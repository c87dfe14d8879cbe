"""Imports prove the layers: what each module may import, read from its source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "redcal_spark"

CONFIG = frozenset({"config_base", "config_yaml", "config", "config_file"})

# From bottom to top. A module may import those of its own layer, but not in a circle, and those
# below. A folder counts as one module.
LAYERS: tuple[Iterable[str], ...] = (
    ("errors", "redaction", "counters", "folder", "settings", "signals", "whole", "cells"),
    ("fixed_point", "room"),
    ("parameters",),
    ("costs", "losses", "events", "patches", "blocks"),
    ("kernel", "columns", "readings", "multiset"),
    ("statistics", "paired", "splits", "roles", "normalised", "output", "parallel", "differences"),
    ("metrics",),
    ("gather", "history", "tables"),
    ("packing",),
    ("tasks",),
    ("engines", "algorithms", "session"),
    (
        "checks",
        "consistency",
        "exact_numbers",
        "intervals",
        "log_checks",
        "recheck",
        "paired_checks",
    ),
    ("case", "guarantees", "judging", "sample_size"),
    ("certificate", "explain", "journey"),
    ("pair",),
    ("guard", "reconciler"),
    CONFIG,
    ("store",),
    ("ledger", "records", "dashboard"),
    ("claim", "past", "progress"),
    ("audit", "demo", "outcome", "work"),
    ("verdict",),
    ("accounts",),
    ("runs",),
    ("findings", "redone"),
    ("row_checks", "side_checks", "ledger_checks", "models"),
    ("evaluation",),
    ("screen", "logs", "alerts"),
    ("compare", "report", "terminal"),
    ("compare_chart", "lookup", "prune", "streams", "terminal_audit", "terminal_compare"),
    ("opening", "telling"),
    ("terminal_evaluation",),
    ("commands",),
    ("cli",),
    ("databricks", "notebook"),
    ("__init__", "__main__"),
)
HEIGHT = {module: height for height, layer in enumerate(LAYERS) for module in layer}

# Narrower than their layer.
ONLY = {module: CONFIG | {"errors", "folder", "redaction"} for module in CONFIG}

# Spark workers import these; they have numpy, pyarrow and the zipped package, nothing else of ours.
WORKER_MODULES = frozenset(
    {
        "errors",
        "cells",
        "multiset",
        "settings",
        "fixed_point",
        "parameters",
        "costs",
        "losses",
        "events",
        "patches",
        "blocks",
        "room",
        "columns",
        "readings",
        "kernel",
        "statistics",
        "paired",
        "splits",
        "roles",
        "normalised",
        "output",
        "metrics",
        "gather",
        "history",
        "packing",
        "tasks",
    }
)
WORKER_LIBRARIES = sys.stdlib_module_names | {"numpy", "pyarrow"}

SPARK_LIBRARIES = frozenset({"pyspark", "delta"})
SPARK_FILES = ("engines/spark*.py", "store/spark*.py", "session.py")

# Not needed before something asks for them, and slow to import.
HEAVY = SPARK_LIBRARIES | {"pandas", "deltalake", "pydantic", "polars", "rich", "matplotlib"}


@dataclass(frozen=True)
class Import:
    """One imported name: where it stands, the library, and the module if the library is ours."""

    place: str  # relative to the package, as "engines/local.py"
    line: int
    library: str
    module: str | None
    runs_on_import: bool

    @property
    def importer(self) -> str:
        return self.place.split("/")[0].removesuffix(".py")

    def __str__(self) -> str:
        what = self.library if self.module is None else f"{self.library}.{self.module}"
        return f"{PACKAGE}/{self.place}:{self.line} imports {what}"


@cache
def sources() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / PACKAGE).rglob("*.py")))


@cache
def modules() -> frozenset[str]:
    return frozenset(
        path.relative_to(ROOT / PACKAGE).parts[0].removesuffix(".py") for path in sources()
    )


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(dict.fromkeys(found for path in sources() for found in imports_of(path)))


def imports_of(path: Path) -> Iterator[Import]:
    place = path.relative_to(ROOT / PACKAGE).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node, runs_on_import in import_statements(tree, runs_on_import=True):
        for dotted in imported_names(node, path):
            library, *rest = dotted.split(".")
            if dotted == f"{PACKAGE}.__version__":
                continue
            module = None
            if library == PACKAGE:
                module = rest[0] if rest and rest[0] in modules() | HEIGHT.keys() else "__init__"
            yield Import(place, node.lineno, library, module, runs_on_import)


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


def imported_names(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    """Absolute dotted names: `from redcal_spark import kernel` is `redcal_spark.kernel`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        here = path.relative_to(ROOT).parent.parts
        above = ".".join(here[: len(here) - (node.level - 1)])
        base = f"{above}.{base}" if base else above
    return [f"{base}.{alias.name}" for alias in node.names]


def test_every_module_has_a_layer() -> None:
    missing = sorted(modules() - HEIGHT.keys())
    assert not missing, f"in no layer, add to LAYERS in {Path(__file__).name}: {', '.join(missing)}"


def test_a_module_imports_only_its_layer_and_those_below() -> None:
    above = [
        str(found)
        for found in all_imports()
        if found.module in HEIGHT
        and found.importer in HEIGHT
        and found.module != found.importer
        and (
            HEIGHT[found.module] > HEIGHT[found.importer]
            or found.module not in ONLY.get(found.importer, HEIGHT)
        )
    ]
    assert not above, "\n".join(above)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for found in all_imports():
        if found.module is not None and found.module != found.importer:
            graph.setdefault(found.importer, set()).add(found.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as err:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(err.args[1]))}")


def test_spark_is_imported_only_where_it_belongs() -> None:
    elsewhere = [
        f"{found}; allowed in {', '.join(SPARK_FILES)}"
        for found in all_imports()
        if found.library in SPARK_LIBRARIES
        and not any(fnmatch(found.place, pattern) for pattern in SPARK_FILES)
    ]
    assert not elsewhere, "\n".join(elsewhere)


def test_worker_modules_import_only_what_workers_have() -> None:
    too_much = [
        str(found)
        for found in all_imports()
        if found.runs_on_import
        and found.importer in WORKER_MODULES
        and (
            found.library not in WORKER_LIBRARIES
            if found.module is None
            else found.module not in WORKER_MODULES
        )
    ]
    assert not too_much, "\n".join(too_much)


@pytest.mark.parametrize("names", [(), sorted(WORKER_MODULES)], ids=["package", "worker modules"])
def test_importing_loads_nothing_heavy(names: list[str]) -> None:
    wanted = [PACKAGE, *(f"{PACKAGE}.{name}" for name in names if name in modules())]
    script = f"import sys, {', '.join(wanted)}; print(*sorted({set(HEAVY)!r} & sys.modules.keys()))"
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
