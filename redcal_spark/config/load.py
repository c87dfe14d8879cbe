"""Reading a configuration: the YAML file, `--set` overrides, the environment and loss files.

Everything wrong ends in one `UsageError` that names the file and lists every problem.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from redcal_spark.config.addresses import one_scheme
from redcal_spark.config.costs_file import read_costs
from redcal_spark.config.folder import looked_for
from redcal_spark.config.redaction import VARIABLE, Redaction
from redcal_spark.config.rules import mixed_up_classes
from redcal_spark.config.schema import Config, LossFile
from redcal_spark.config.section import KeyPath, Refusal, as_list, as_mapping, dotted
from redcal_spark.config.storage import secret_texts
from redcal_spark.config.values import WRONG
from redcal_spark.config.yaml_reader import NUMBER, parse_yaml, read_text
from redcal_spark.errors import UsageError

MAX_YAML_BYTES = 2**20
MAX_LINES = 100
# where a store is, which is told when it does not answer
NO_SECRETS = {("storage_options", key) for key in ("AWS_ENDPOINT_URL", "AWS_REGION")}
# Keys that had other names in 0.1, which are still read.
RENAMED: dict[KeyPath, dict[str, str]] = {
    ("input", "split"): {"judge": "holdout", "judge_fraction": "holdout_fraction"}
}

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """Read and check a config file.

    `overrides` are `key=value` texts as given to `--set`; the value is YAML. `${NAME}` in a text
    becomes that environment variable, `$${` stands for `${`; not so in loss files. Those
    and all other relative paths start at the working folder.

    >>> load_config("conf/reference.yaml", ["reconcile.eta=0.02"]).reconcile.eta
    0.02
    """
    name = os.fspath(path)
    tree = parse_yaml(read_text(name, MAX_YAML_BYTES), name)
    if tree is None:
        raise UsageError(f"{name}: is empty")
    if not isinstance(tree, dict):
        keys = ", ".join(Config.model_fields)
        raise UsageError(f"{name}: must be a mapping ({keys}), not {_shown(tree)}")
    for override in overrides:
        tree = _overridden(tree, override)
    return config_from_tree(tree, name=name, folder=os.path.dirname(name))


def config_from_tree(
    tree: Mapping[str, Any], *, name: str = "config", folder: str | os.PathLike[str] = ""
) -> Config:
    """Check a configuration that is already data, such as `recorded()` of an earlier run.

    `name` heads the message when something is wrong. `folder` is that of the config file, where
    loss files were looked for once: what is found there is named, and not taken.
    """
    draft = _Draft(Path(folder))
    filled: Any = draft.fill_in(tree, ())
    if "storage_options" in filled or "://" in str(filled):
        draft.secrets = secret_texts(as_mapping(filled.get("storage_options")))
    if "losses" in filled:
        filled["losses"] = draft.load_losses(filled["losses"])
        draft.check_headers(as_mapping(filled.get("input")))
    try:
        config = Config.model_validate(filled, context=draft.written)
    except ValidationError as err:
        for error in err.errors(include_url=False):
            if not any(error["loc"][: len(path)] == path for path in draft.failed):
                draft.problems.append((error["loc"], draft.words(error)))
    if draft.problems:
        # Outside the `except`: pydantic's error shows values, and those may be secrets.
        raise UsageError(draft.hidden.text(_message(name, draft.problems)))
    config._hidden = draft.hidden
    return config


def _message(name: str, problems: list[Refusal]) -> str:
    count = len(problems)
    lines = [f"{name}: {count} problem{'s' if count != 1 else ''}"]
    lines += [f"  {dotted(path)}: {text}" for path, text in problems[:MAX_LINES]]
    if count > MAX_LINES:
        lines.append(f"  ... and {count - MAX_LINES} more")
    return "\n".join(lines)


@dataclass
class _Draft:
    """A configuration on its way: what was replaced, where it came from, what went wrong."""

    folder: Path
    problems: list[Refusal] = field(default_factory=list)
    failed: set[KeyPath] = field(default_factory=set)  # parts of which enough was said
    written: dict[KeyPath, str] = field(default_factory=dict)  # texts that had variables in them
    values: dict[str, str] = field(default_factory=dict)  # of variables
    private: set[str] = field(default_factory=set)  # the variables that are not shown
    texts: dict[str, str] = field(default_factory=dict)  # as resolved -> as written
    secrets: dict[str, str] = field(default_factory=dict)  # of an object store, and their names
    files: dict[KeyPath, str] = field(default_factory=dict)  # the loss file that a part came from
    headers: dict[KeyPath, list[str]] = field(default_factory=dict)  # its class names

    def fill_in(self, value: object, path: KeyPath) -> object:
        """The value with its variables replaced; a fresh copy, since YAML aliases share parts."""
        if isinstance(value, Mapping):
            parts = _under_new_names(value, RENAMED.get(path, {}))
            return {key: self.fill_in(part, (*path, key)) for key, part in parts.items()}
        if isinstance(value, list | tuple):
            return [self.fill_in(part, (*path, index)) for index, part in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return one_scheme(value) if isinstance(value, str) else value
        self.written[path] = value
        resolved = one_scheme(VARIABLE.sub(lambda match: self._variable(match, path), value))
        names = {match[1] for match in VARIABLE.finditer(value) if match[1]}
        if names and (path not in NO_SECRETS or "@" in resolved):  # with a password before the @
            self.texts[resolved] = value
            self.private |= names
        return resolved

    @property
    def hidden(self) -> Redaction:
        """What is not shown: variables, unless they say only where a store is, and secrets."""
        values = {name: value for name, value in self.values.items() if name in self.private}
        return Redaction(values, self.secrets | self.texts)

    def _variable(self, match: re.Match[str], path: KeyPath) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None:
            hint = "write ${NAME} for an environment variable, $${ for the characters themselves"
            self.problems.append((path, f"'${{' without a name and '}}'; {hint}"))
        elif match[1] not in os.environ:
            self.problems.append((path, f"environment variable {match[1]} is not set"))
        else:
            return self.values.setdefault(match[1], one_scheme(os.environ[match[1]]))
        self.failed.add(path)
        return match[0]

    def load_losses(self, losses: object) -> object:
        """The losses, those kept in files replaced by what is in the files."""
        if isinstance(losses, str):
            self.written.pop(("losses",), None)
            return self._loss_file(losses, ("losses",), (".yaml", ".yml"))
        if not isinstance(losses, dict):
            return losses
        return {
            name: self._one_loss(loss, ("losses", name))
            if isinstance(loss, dict) and "file" in loss
            else loss
            for name, loss in losses.items()
        }

    def _one_loss(self, entry: dict[str, Any], path: KeyPath) -> object:
        try:
            reference = LossFile.model_validate(entry)
        except ValidationError as err:
            for error in err.errors(include_url=False):
                self.problems.append((path + error["loc"], self.words(error, path)))
            self.failed.add(path)
            return None
        self.written.pop((*path, "file"), None)
        loss = self._loss_file(reference.file, path, (".yaml", ".yml", ".csv"))
        if isinstance(loss, dict) and reference.actions is not None:
            actions = list(reference.actions)
            if loss.setdefault("actions", actions) != actions:
                text = f"differ from those in {self.files[path]}; leave them out here"
                self.problems.append(((*path, "actions"), text))
        return loss

    def _loss_file(self, file: str, path: KeyPath, endings: tuple[str, ...]) -> Any:
        if not self.failed.isdisjoint({path, (*path, "file")}):  # the name lacks a variable
            self.failed.add(path)
            return None
        name = file
        try:
            self._check_beside(name)
            if not name.lower().endswith(endings):
                raise UsageError(f"{name}: must be a {' or '.join(endings)} file")
            if name.lower().endswith(".csv"):
                loss, self.headers[path] = read_costs(name)
            else:
                loss = parse_yaml(read_text(name, MAX_YAML_BYTES), name)
        except UsageError as err:
            self.problems.append((path, str(err)))
            self.failed.add(path)
            return None
        self.files[path] = name
        return loss

    def _check_beside(self, name: str) -> None:
        """Refuse a file that is beside the config file and not, or not the same, where it is meant.

        Loss files, and nothing else, used to be relative to the folder of the config file.
        """
        beside = self.folder / name
        if name.startswith(("./", "../")) or not beside.is_file():
            return
        if not os.path.exists(name):
            hint = f"it is beside the config file: write {beside}"
            raise UsageError(f"{name}: no such file{looked_for(name)}; {hint}")
        if not beside.samefile(name) and beside.read_bytes() != Path(name).read_bytes():
            raise UsageError(
                f"{name}: two files have this name and differ: write ./{name} for the one in the "
                f"working folder, or {beside} for the one beside the config file"
            )

    def check_headers(self, given: Mapping[str, Any]) -> None:
        """The class names in the headers of CSV files must tell one order of the classes.

        given: the section `input`, whose classes and columns tell one, too.
        """
        expected = [name for name in as_list(given.get("classes")) if isinstance(name, str)]
        source = "input.classes"
        for path, header in self.headers.items():
            if header == [str(index) for index in range(len(header))]:
                continue  # by number, in order: agrees with any names
            if not expected:
                expected, source = header, self.files[path]
                self.problems += mixed_up_classes(given, header, source)
            # Another number of classes is refused by the config's own rules.
            if len(header) == len(expected) and header != expected:
                order = f"{', '.join(header)}, but {source} has {', '.join(expected)}"
                self.problems.append((path, f"{self.files[path]}: has the classes {order}"))

    def words(self, error: ErrorDetails, base: KeyPath = ()) -> str:
        """A problem in words: the loss file it is in, what is wrong, what was given."""
        path = base + error["loc"]
        text = error["msg"]
        if error["type"] == WRONG:
            text += f", got {_shown(self.written.get(path, error['input']))}"
            text += _hint(error["msg"], error["input"], path in self.written)
        for start, file in self.files.items():
            if path[: len(start)] == start:
                text = f"{file}: {text}"
        return text


def _under_new_names(given: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """A section with today's keys; an old one beside its new one stays, and is refused."""
    return {key if names.get(key) in given else names.get(key, key): given[key] for key in given}


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return _SHORT.repr(value)


def _hint(text: str, value: object, from_environment: bool) -> str:
    if text == "must be text" and isinstance(value, int | float):
        return "; put it in quotes"
    if "number" in text and isinstance(value, str) and NUMBER.fullmatch(value):
        if from_environment:
            return "; the environment gives text only, so set numbers with --set"
        return "; write it without quotes"
    return ""


def _overridden(tree: Mapping[str, Any], override: str) -> dict[str, Any]:
    """The tree with one `key=value` of `--set` put in."""
    key, equals, text = override.partition("=")
    keys = [part.strip() for part in key.split(".")]
    if not equals or not all(keys):
        example = "write KEY=VALUE, for example --set reconcile.eta=0.02"
        raise UsageError(f"--set {override}: {example}")
    value = parse_yaml(text, f"--set {override}")
    return _put(tree, keys, 0, value, override)


def _put(
    tree: Mapping[str, Any], keys: list[str], depth: int, value: object, override: str
) -> dict[str, Any]:
    # Copies along the way: an alias may share this mapping with another place.
    if depth == len(keys) - 1:
        return {**tree, keys[depth]: value}
    inner = tree.get(keys[depth])
    if inner is None:
        inner = {}
    if not isinstance(inner, Mapping):
        where = ".".join(keys[: depth + 1])
        raise UsageError(f"--set {override}: {where} is {_shown(inner)}, it has no keys to set")
    return {**tree, keys[depth]: _put(inner, keys, depth + 1, value, override)}
