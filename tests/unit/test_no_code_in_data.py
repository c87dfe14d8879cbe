"""Data never becomes code: nothing in the package could run what it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "redcal_spark"

# Modules that build objects of bytes, or run what they are given.
MODULES = {
    "_pickle",
    "cloudpickle",
    "code",
    "codeop",
    "commands",
    "dbm",
    "dill",
    "imp",
    "joblib",
    "jsonpickle",
    "marshal",
    "pickle",
    "runpy",
    "shelve",
    "subprocess",
}
BUILTINS = {"__import__", "compile", "eval", "exec"}
# Of any object: yaml's loaders but the safe one, shells, numpy and pandas readers that unpickle.
METHODS = {
    "full_load",
    "full_load_all",
    "load_all",
    "popen",
    "read_pickle",
    "system",
    "to_pickle",
    "unsafe_load",
    "unsafe_load_all",
}
LOADERS = {"Loader", "FullLoader", "UnsafeLoader", "CLoader", "CFullLoader", "CUnsafeLoader"}


def findings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        yield from (f"line {getattr(node, 'lineno', 0)}: {what}" for what in _found(node))


def _found(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (a.name for a in node.names if a.name.split(".")[0] in MODULES)
        case ast.ImportFrom(module=str(module)):
            if module.split(".")[0] in MODULES:
                yield module
            if module.split(".")[0] == "yaml":
                yield from (a.name for a in node.names if a.name in METHODS | LOADERS | {"load"})
        case ast.Name(id=name) if name in BUILTINS:
            yield name
        case ast.Attribute(attr=name) if name in METHODS:
            yield name
        case ast.Attribute(value=ast.Name(id="yaml"), attr=name) if name in LOADERS | {"load"}:
            yield f"yaml.{name}"
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="load"):
            yield "numpy.load"
        case ast.keyword(arg="shell" | "allow_pickle"):
            yield f"{node.arg}="
    return


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_nothing_that_runs_data(path: Path) -> None:
    # a browser prints the report: by a list of arguments, of which none comes from data
    allowed = ["line 7: subprocess"] if path == PACKAGE / "report" / "pdf.py" else []
    assert list(findings(path.read_text(encoding="utf-8"))) == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import cloudpickle.cloudpickle",
        "import marshal, os",
        "import shelve",
        "from subprocess import run",
        "eval('1')",
        "x = exec",  # even unused it is not to be had
        "exec('1')",
        "compile('1', '', 'eval')",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.FullLoader)",
        "yaml.unsafe_load(text)",
        "from yaml import load",
        "from yaml import UnsafeLoader",
        "class L(yaml.Loader): pass",
        "os.system('true')",
        "os.popen('true')",
        "run('true', shell=True)",
        "np.load('x.npy', allow_pickle=True)",
        "pd.read_pickle('x')",
        "def f():\n    __import__(name)",
    ],
)
def test_each_of_these_would_be_found(source: str) -> None:
    assert list(findings(source))


@pytest.mark.parametrize(
    "source", ["import json", "yaml.safe_load(x)", "json.load(f)", "re.compile('a')"]
)
def test_and_these_not(source: str) -> None:
    assert list(findings(source)) == []


def test_the_package_was_found() -> None:
    assert len(list(PACKAGE.rglob("*.py"))) > 50
