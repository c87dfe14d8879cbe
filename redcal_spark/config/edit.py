"""Values changed in a configuration file, in place: comments, order and style stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from redcal_spark.errors import UsageError

# Where a value is in the text: from, to.
_Span = tuple[int, int]


def with_values(text: str, section: str, values: Mapping[str, str], name: str) -> str:
    """The text of a YAML file with other values of a section.

    A key that is not there is put behind the first one of `values` that is. What cannot be changed
    safely is refused, with the lines to write by hand. name: the file's.
    """
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as err:
        raise _by_hand(name, section, values, "it cannot be read as it is") from err
    node = _values(tree).get(section)
    if not isinstance(node, yaml.MappingNode):
        raise _by_hand(name, section, values, f"it has no section {section}")
    if "&" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
        raise _by_hand(name, section, values, "it uses YAML aliases")
    known = _values(node)
    first = next((key for key in values if key in known), None)
    if first is None:
        raise _by_hand(name, section, values, f"{section} has none of {', '.join(values)}")
    changes: list[tuple[_Span, str]] = []
    for key, value in values.items():
        if key in known:
            there = known[key]
            if not isinstance(there, yaml.ScalarNode) or there.style in ("|", ">"):
                raise _by_hand(name, section, values, f"{section}.{key} is no plain value")
            span = there.start_mark.index, there.end_mark.index
            # `eta:` alone is null: its place is behind the colon
            changes.append((span, value if span[0] < span[1] else f" {value}"))
        else:
            changes.append(_added(text, node, known[first], key, value))
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _values(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _added(
    text: str, section: yaml.MappingNode, after: yaml.Node, key: str, value: str
) -> tuple[_Span, str]:
    """A new key behind another one: on the same line in braces, else on a line of its own."""
    if section.flow_style:
        end = after.end_mark.index
        return (end, end), f", {key}: {value}"
    column = section.value[0][0].start_mark.column
    end = text.find("\n", after.end_mark.index)
    newline = "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"
    line = f"{' ' * column}{key}: {value}{newline}"
    if end < 0:
        return (len(text), len(text)), f"{newline}{line}"
    return (end + 1, end + 1), line


def _by_hand(name: str, section: str, values: Mapping[str, str], why: str) -> UsageError:
    lines = [f"{name}: is left as it is: {why}. Write by hand:", f"{section}:"]
    return UsageError(
        "\n  ".join([*lines, *(f"  {key}: {value}" for key, value in values.items())])
    )
