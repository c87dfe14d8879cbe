"""Prints all that users touch, as JSON: commands, configuration keys, table schemas, Python names.

    python .ci/surface.py > after.json      # run on two checkouts, then compare the files

`python .ci/surface.py --against before.json` names what is gone and what is new, and exits with 1
if something is gone.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MODULES = ("redcal_spark", "redcal_spark.demo", "redcal_spark.notebook", "redcal_spark.session")


def commands() -> dict[str, list[str]]:
    """Every command with its options, from the parser itself."""
    makers = ("cli.parser.command_line", "cli.entry._parser", "cli._parser")  # newest first
    places = ((_module(f"redcal_spark.{m}"), f) for m, _, f in (x.rpartition(".") for x in makers))
    parser = next(getattr(module, name)() for module, name in places if hasattr(module, name))
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                options = (o for a in command._actions for o in a.option_strings or [a.dest])
                found[name] = sorted(options)
    return found


def keys() -> list[str]:
    """Every key of the configuration, from its JSON schema."""
    schema = json.loads((ROOT / "conf/schema.json").read_text(encoding="utf-8"))

    def below(node: Any, path: str, seen: tuple[str, ...]) -> set[str]:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return set() if name in seen else below(schema["$defs"][name], path, (*seen, name))
        found: set[str] = set()
        for branch in (*node.get("anyOf", ()), *node.get("allOf", ()), *node.get("oneOf", ())):
            found |= below(branch, path, seen)
        for key, value in node.get("properties", {}).items():
            found |= {f"{path}{key}"} | below(value, f"{path}{key}.", seen)
        if isinstance(node.get("additionalProperties"), dict):
            found |= below(node["additionalProperties"], f"{path}*.", seen)
        return found

    return sorted(below(schema, "", ()))


def schemas() -> dict[str, list[str]]:
    """The columns of every table that a run writes: the demo's, as they are on disk."""
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "redcal_spark.cli", "demo", "--rows", "5000"]
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, env=_environment(), timeout=300
        )
        tables = sorted(p.parent for p in Path(folder).rglob("_delta_log"))
        return {
            table.relative_to(folder).as_posix(): [
                f"{field.name}: {field.type}" for field in DeltaTable(table).schema().fields
            ]
            for table in tables
        }


def names() -> dict[str, list[str]]:
    """Public Python names with the parameters of what can be called."""
    found: dict[str, list[str]] = {}
    for name in MODULES:
        module = _module(name)
        if module is None:
            continue
        public = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        found[name] = sorted(public)
    package = importlib.import_module("redcal_spark")
    for kind in (package.Reconciler, package.ReconciledPair):
        for member in dir(kind):
            if not member.startswith("_") or member == "__init__":
                value = inspect.getattr_static(kind, member)
                value = getattr(value, "__func__", value)
                given = list(inspect.signature(value).parameters) if callable(value) else []
                found[f"{kind.__name__}.{member}"] = given
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _environment() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": str(ROOT)}


def flat(surface: Any) -> set[str]:
    found = set()
    for part, content in surface.items():
        if isinstance(content, list):
            found |= {f"{part}: {item}" for item in content}
        else:
            for place, items in content.items():
                found |= {f"{part}: {place}", *(f"{part}: {place}: {item}" for item in items)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="what this script printed of another checkout")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    surface = {"commands": commands(), "keys": keys(), "schemas": schemas(), "names": names()}
    if options.against is None:
        print(json.dumps(surface, indent=1))
        return 0
    before, after = flat(json.loads(options.against.read_text(encoding="utf-8"))), flat(surface)
    for sign, lines in (("-", before - after), ("+", after - before)):
        for line in sorted(lines):
            print(sign, line)
    print(f"{len(before & after)} kept, {len(before - after)} gone, {len(after - before)} new")
    return 1 if before - after else 0


if __name__ == "__main__":
    sys.exit(main())
