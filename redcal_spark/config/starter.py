"""The text of a new configuration, for people who fill in the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

PLACE = "null"  # of a cost that is still to be written: `redcal check` refuses it by name


@dataclass(frozen=True)
class Starter:
    """What is known for a new configuration. doubts: what is not certain, by key.

    models: the columns of each by its name; two have the names of their keys. classes: how many
    there are. costs: a CSV file of them. tables: those of the models' scores, where they have any
    of their own. separator: of CSV files, if it is no comma.
    """

    table: str
    output: str
    models: Mapping[str, Sequence[str]]
    label: str
    classes: int
    id: str | None = None
    names: Sequence[str] | None = None
    split: tuple[str, Any, Any] | None = None
    hashed: bool = False
    costs: str | None = None
    tables: Mapping[str, str | None] = field(default_factory=dict)
    separator: str | None = None
    doubts: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The whole file."""
        lines = [
            "# Written by `redcal init`. Lines marked GUESS are worth a look.",
            "input:",
            *self._key("table", value(self.table)),
            *([] if self.id is None else self._key("id", value(self.id))),
            *self._key("label", value(self.label)),
            *([] if self.names is None else self._key("classes", flow(self.names))),
            *self._models(),
            *([] if self.separator is None else self._key("separator", value(self.separator))),
            *self._split(),
            "",
            "# What each action (row) costs under each class (column), in your units.",
            "losses:",
            *self._losses(),
            "",
            "reconcile:",
            "  algorithm: redcal",
            "  alpha: 0.01  # differences in cost below 1 % of the spread do not matter",
            "  eta: auto    # smallest share of rows that matters: chosen by cross-fitting",
            "",
            "output:",
            f"  table: {value(self.output)}",
        ]
        return "\n".join(lines) + "\n"

    def _models(self) -> list[str]:
        lines = [line for name in self.models for line in self._key(name, self.scores(name))]
        return lines if len(self.models) == 2 else ["  models:", *(f"  {line}" for line in lines)]

    def scores(self, model: str) -> str:
        """A model's columns, and their table if they have one."""
        columns = one_or_all(self.models[model])
        table = self.tables.get(model)
        return columns if table is None else f"{{table: {value(table)}, columns: {columns}}}"

    def _key(self, key: str, text: str) -> list[str]:
        doubt = " ".join(self.doubts.get(key, "").split())  # a comment has one line
        return [f"  {value(key)}: {text}" + (f"  # GUESS: {doubt}" if doubt else "")]

    def _split(self) -> list[str]:
        if self.split is not None:
            column, fit, holdout = map(value, self.split)
            return self._key("split", f"{{column: {column}, fit: {fit}, holdout: {holdout}}}")
        if self.hashed:
            why = "# rows that only check the result, by a hash of the id"
            return [f"  split: {{holdout_fraction: 0.3}}  {why}"]
        return []

    def _losses(self) -> list[str]:
        if self.costs is not None:
            return [f"  decision: {{file: {value(self.costs)}}}"]
        names = self.names or [f"class {k}" for k in range(self.classes)]
        row = f"      - [{', '.join([PLACE] * self.classes)}]"
        shown = ", ".join(map(str, names[:12])) + (", ..." if len(names) > 12 else "")
        return [
            "  decision:",
            "    actions: [first_action, second_action]  # FILL IN: their names, all you have",
            f"    costs:  # FILL IN every null: {' '.join(shown.split())}",
            f"{row}  # cost of the first action, class by class",
            f"{row}  # and of the second",
        ]


def value(given: Any) -> str:
    """A value as YAML writes it; `${` would be a variable."""
    given = given.replace("${", "$${") if isinstance(given, str) else given
    text: str = yaml.safe_dump([given], default_flow_style=True, allow_unicode=True, width=10**6)
    return text.strip()[1:-1]


def flow(given: Sequence[str]) -> str:
    return f"[{', '.join(map(value, given))}]"


def one_or_all(columns: Sequence[str]) -> str:
    return value(columns[0]) if len(columns) == 1 else flow(columns)
