"""A section of the configuration: frozen, and it names every problem before it refuses.

Its problems and those of the sections in it are gathered; `config.load` puts them into one message.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from redcal_spark.config.values import problem, wrong

KeyPath = tuple[str | int, ...]  # where in the configuration: ("losses", "triage", "costs", 0)
Refusal = tuple[KeyPath, str]

MAX_HINTS = 100  # as many as are shown


def _nearest(key: str, known: list[str], taken: Collection[str]) -> str | None:
    """What an unknown key was meant to be; of two that are about as near, the one not yet set."""

    def nearness(name: str) -> float:
        ratio = difflib.SequenceMatcher(a=name, b=key).ratio()
        return ratio if name in taken else ratio + 0.1

    return max(difflib.get_close_matches(key, known), key=nearness, default=None)


def _words(
    error: ErrorDetails, known: list[str], taken: Collection[str], hints: bool
) -> PydanticCustomError | None:
    """Pydantic's error in our words, None when it only follows from another.

    hints: look for what an unknown key was meant to be, which takes a moment.
    """
    kind, context = error["type"], error.get("ctx", {})
    match kind:
        case "missing":
            return problem("is required")
        case "extra_forbidden":
            if not hints:
                return problem("unknown key")
            key = str(error["loc"][-1])
            near = _nearest(key, known, taken)
            hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(known)}"
            return problem(f"unknown key; {hint}")
        case "invalid_key":
            return problem("a key must be text; put it in quotes")
        case "literal_error":
            return wrong(f"must be {context['expected']}")
        case "list_type" | "tuple_type":
            return wrong("must be a list")
        case "dict_type" | "model_type":
            return wrong("must be a mapping")
        case "too_short":
            given, least = len(as_list(error["input"])), context["min_length"]
            # Pydantic counts the entries that are right; the wrong ones are named on their own.
            text = f"needs at least {least} entries, has {given}"
            return problem(text) if given < least else None
        case "too_long":
            given = len(as_list(error["input"]))
            return problem(f"has {given} entries, more than {context['max_length']}")
    # Already in our words, by a section inside this one.
    return PydanticCustomError(kind, error["msg"])


class Section(BaseModel):
    """A part of the configuration: frozen, refuses unknown keys, gathers every problem."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        """Rules between keys.

        They see the data as given and run even when some of it is wrong, or problems would come in
        instalments; so a rule looks at what it got before it decides.
        """
        return iter(())

    @classmethod
    def keys(cls) -> list[str]:
        """The keys as users write them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """As plain data, under the keys that users write."""
        return super().model_dump(**{"by_alias": True} | options)

    @model_validator(mode="wrap")
    @classmethod
    def _gather(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return handler(data)
        data = {} if data is None else data  # a section whose keys are all commented out
        errors: list[InitErrorDetails] = []
        meant: set[str] = set()  # keys given under a misspelt name: don't ask for them again
        try:
            section = handler(data)
        except ValidationError as err:
            for error in err.errors(include_url=False):
                words = _words(error, cls.keys(), as_mapping(data), len(errors) < MAX_HINTS)
                if words is None:
                    continue
                if words.message_template.startswith("unknown key; did you mean"):
                    meant.add(words.message_template.split("'")[1])
                path = tuple(part for part in error["loc"] if part != "[key]")
                errors.append(InitErrorDetails(type=words, loc=path, input=error["input"]))
        if isinstance(data, Mapping):
            for path, text in cls.rules({key: plain(data[key]) for key in data}):
                errors.append(InitErrorDetails(type=problem(text), loc=path, input=None))
        errors = [line for line in errors if not _asks_for(line, meant)]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return section


def _asks_for(line: InitErrorDetails, keys: set[str]) -> bool:
    path, words = line.get("loc", ()), line["type"]
    return len(path) == 1 and path[0] in keys and str(words).startswith("is required")


def plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def dotted(path: KeyPath) -> str:
    """A path as people write it: `losses.triage.costs[1][0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if part.isprintable() and part and "." not in part else repr(part)
            text += f".{shown}" if text else shown
    return text
