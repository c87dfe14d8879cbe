"""YAML as people mean it: plain values only, and every mistake named with its line.

The rules are YAML 1.2's: `1e-5` is a number; `no`, `on`, `2026-01-31` and `12:30` are text (PyYAML,
being YAML 1.1, would read a text, two booleans, a date and 750).
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from redcal_spark.config.folder import looked_for
from redcal_spark.errors import UsageError

# An alias costs a few bytes and may stand for the whole rest: what counts is the written-out size.
# A file of 1 MiB without aliases cannot reach this.
MAX_NODES = 1_000_000
# Reading takes 50 microseconds a value: this many, enough for 16,384 classes, take 2 s.
MAX_WRITTEN = 40_000

NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Text unless it looks like null, true, false, a number or the merge key `<<`."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own way to start afresh
    written = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.written += 1
        if self.written > MAX_WRITTEN:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_WRITTEN:,} values; keep large losses in CSV files",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    try:
        return int(node.value)
    except ValueError:  # Python reads no more than 4,300 digits
        raise _refusal("this number has too many digits", node) from None


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", rf"{NUMBER.pattern}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(TAG + _tag, re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor(TAG + "int", _whole_number)


def read_text(name: str, limit: int) -> str:
    """The text of a file, or a `UsageError` that says why it cannot be had."""
    try:
        with open(name, "rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file{looked_for(name)}") from None
    except IsADirectoryError:
        raise UsageError(f"{name}: is a directory; name a file in it") from None
    except (OSError, ValueError) as err:  # ValueError: a NUL in the name
        reason = getattr(err, "strerror", None) or err
        raise UsageError(f"{name}: cannot be read: {reason}") from err
    if len(data) > limit:
        raise UsageError(f"{name}: is larger than {limit // 2**20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise UsageError(f"{name}, line {line}: is not UTF-8 text") from err


def parse_yaml(text: str, name: str) -> Any:
    """The value of a YAML text, None when it is empty; `name` heads the message of a mistake."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, loader, {}, set())
        return loader.construct_document(node)
    except yaml.reader.ReaderError as err:
        line = text.count("\n", 0, err.position) + 1
        where = f"{name}, line {line}"
        raise UsageError(f"{where}: the character {chr(err.character)!r} is not allowed") from err
    except yaml.MarkedYAMLError as err:
        raise UsageError(_message(err, text, name)) from err
    except RecursionError:
        raise UsageError(f"{name}: is nested too deeply") from None


def _refusal(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _check(node: yaml.Node, loader: _Loader, sizes: dict[int, int], above: set[int]) -> int:
    """Refuse what is not plain data; the number of nodes, with every alias written out.

    Done before anything is built: building merges `<<` into mappings, and then a key that overrides
    a merged one would look like a duplicate.
    """
    if id(node) in above:
        raise _refusal("this refers to itself by an alias", node)
    if id(node) not in sizes:
        if node.tag not in _plain_tags(node, loader):
            shown = node.tag.replace(TAG, "!!")
            raise _refusal(f"the tag {shown} is not allowed; write a plain value", node)
        above.add(id(node))
        size = 1
        for child in _children(node):
            size += _check(child, loader, sizes, above)
            if size > MAX_NODES:
                raise _refusal("aliases expand this to too many values", node)
        above.remove(id(node))
        sizes[id(node)] = size
    return sizes[id(node)]


def _plain_tags(node: yaml.Node, loader: _Loader) -> tuple[str, ...]:
    if isinstance(node, yaml.MappingNode):
        return (TAG + "map",)
    if isinstance(node, yaml.SequenceNode):
        return (TAG + "seq",)
    # A text may be asked for (`!!str 5`); else the tag must be what the value looks like.
    looks: str = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    return (TAG + "str", looks)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return node.value if isinstance(node, yaml.SequenceNode) else []
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag not in (TAG + "str", TAG + "merge"):
            raise _refusal("a key must be text; put it in quotes", key)
        if key.value in lines:
            problem = f"the key '{key.value}' is given twice, first in line {lines[key.value]}"
            raise _refusal(problem, key)
        lines[key.value] = key.start_mark.line + 1
    return [value for _, value in node.value]


def _message(err: yaml.MarkedYAMLError, text: str, name: str) -> str:
    mark = err.problem_mark or err.context_mark
    problem = str(err.problem or err.context)
    if mark is None:
        return f"{name}: {problem}"
    if err.context and err.context_mark and err.context_mark.line != mark.line:
        problem = f"{err.context} from line {err.context_mark.line + 1}: {problem}"
    lines = text.splitlines()
    # At the end of the file there is nothing to see: show where the unfinished part began.
    seen = mark if mark.line < len(lines) else err.context_mark or mark
    line = lines[seen.line] if seen.line < len(lines) else ""
    if "\t" in line:
        problem += " (indent with spaces, not tabs)"
    where = f"{name}, line {mark.line + 1}, column {mark.column + 1}"
    return f"{where}: {problem}: {line if len(line) <= 100 else line[:97] + '...'!r}"
