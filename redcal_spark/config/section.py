"""What the configuration's sections are made of: value types, gathering of problems, rules.

A section gathers all its problems, its own and those of the sections in it, before it refuses;
`config_file` puts them into one message.
"""

from __future__ import annotations

import difflib
import math
import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

KeyPath = tuple[str | int, ...]  # where in the configuration: ("losses", "triage", "costs", 0)
Refusal = tuple[KeyPath, str]

MODELS = ("model_1", "model_2")
SIDE_TABLES = ("patches", "history", "metrics", "runs")
MAX_HINTS = 100  # as many as are shown

# An error of this type ends in ", got <value>". The value is added only when the problem is told,
# so that a value taken from the environment can be shown as the user wrote it.
WRONG = "wrong_value"


def wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError(WRONG, text)


def problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("problem", text)


# --- values ---------------------------------------------------------------------------------------


def _any_text(value: object) -> str:
    if not isinstance(value, str):
        raise wrong("must be text")
    # Half a surrogate pair cannot be written to a table; a control character is never meant.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise wrong("must be printable text")
    return value


def _text(value: object) -> str:
    if not _any_text(value).strip():
        raise wrong("must not be empty")
    return str(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong("must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise wrong("must be a finite number")
    return number


def _share(value: object) -> float:
    number = _number(value)
    if not 0 < number <= 1:
        raise wrong("must be in (0, 1]")
    return number


def _fraction(value: object) -> float:
    number = _number(value)
    if not 0 < number < 1:
        raise wrong("must be in (0, 1)")
    return number


def _auto_or_share(value: object) -> float | str:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise wrong("must be auto or a number in (0, 1]")
    return "auto" if value == "auto" else _share(value)


def _whole(low: int, high: int | None = None) -> BeforeValidator:
    def check(value: object) -> int:
        # `1e6` is a float to YAML, and a fair way to write a whole number.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong("must be a whole number")
        if high is not None and not low <= value <= high:
            raise wrong(f"must be from {low} to {high}")
        if value < low:
            raise wrong(f"must be at least {low}")
        return value

    return BeforeValidator(check)


def _flag(value: object) -> object:
    if not isinstance(value, bool):
        raise wrong("must be true or false")
    return value


def _separator(value: object) -> object:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n':
        raise wrong("must be a single character")
    return value


def _version(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise wrong("must be a version number or a time such as 2026-01-31T12:00:00") from None
    return value


def _cell(value: object) -> object:
    if not isinstance(value, str | int):
        raise wrong("must be text, a whole number, true or false")
    return _any_text(value) if isinstance(value, str) else value


AnyText = Annotated[str, BeforeValidator(_any_text)]
Text = Annotated[str, Field(min_length=1), BeforeValidator(_text)]
Number = Annotated[float, BeforeValidator(_number)]
Share = Annotated[float, Field(gt=0, le=1), BeforeValidator(_share)]
Portion = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_share)]
Fraction = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_fraction)]
AutoOrShare = Annotated[
    float | Literal["auto"],
    PlainValidator(_auto_or_share, json_schema_input_type=Share | Literal["auto"]),
]
Flag = Annotated[bool, BeforeValidator(_flag)]
Separator = Annotated[str, Field(min_length=1, max_length=1), BeforeValidator(_separator)]
GridBits = Annotated[int, Field(ge=1, le=26), _whole(1, 26)]
Count = Annotated[int, Field(ge=1), _whole(1)]
Whole = Annotated[int, Field(ge=0), _whole(0)]
Seconds = Annotated[int, Field(ge=1, le=10**9), _whole(1, 10**9)]  # 30 years, and dates end
Version = Annotated[
    int | str, PlainValidator(_version, json_schema_input_type=Annotated[int, Field(ge=0)] | str)
]
Cell = Annotated[str | int | bool, PlainValidator(_cell, json_schema_input_type=str | int | bool)]


def check_columns(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_TEXT.validate_python(value),)
    if not isinstance(value, list | tuple):
        raise wrong("must be a column or a list of columns")
    if len(value) < 2:
        raise problem("a list needs a column per class; write a single column without brackets")
    return _TEXTS.validate_python(value)


def shortest(columns: tuple[str, ...]) -> str | list[str]:
    return columns[0] if len(columns) == 1 else list(columns)


_TEXT = TypeAdapter[str](Text)
_TEXTS = TypeAdapter[tuple[str, ...]](tuple[Text, ...])
TextOrList = Text | Annotated[list[Text], Field(min_length=2)]
ColumnNames = Annotated[
    tuple[str, ...],
    PlainValidator(check_columns, json_schema_input_type=TextOrList),
    PlainSerializer(shortest),
]


# --- sections -------------------------------------------------------------------------------------


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
            # Pydantic counts the entries that are right; the wrong ones are told on their own.
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
        found: list[InitErrorDetails] = []
        meant: set[str] = set()  # keys given under a misspelt name: don't ask for them again
        try:
            section = handler(data)
        except ValidationError as err:
            for error in err.errors(include_url=False):
                words = _words(error, cls.keys(), as_mapping(data), len(found) < MAX_HINTS)
                if words is None:
                    continue
                if words.message_template.startswith("unknown key; did you mean"):
                    meant.add(words.message_template.split("'")[1])
                path = tuple(part for part in error["loc"] if part != "[key]")
                found.append(InitErrorDetails(type=words, loc=path, input=error["input"]))
        if isinstance(data, Mapping):
            for path, text in cls.rules({key: plain(data[key]) for key in data}):
                found.append(InitErrorDetails(type=problem(text), loc=path, input=None))
        found = [line for line in found if not _asks_for(line, meant)]
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
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


# --- rules over data as given ---------------------------------------------------------------------


def repeats(key: str, names: object) -> Iterator[Refusal]:
    seen: dict[str, int] = {}
    for index, name in enumerate(as_list(names)):
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            yield (key, index), f"is the same as {key}[{seen[name]}]"


def unequal_sizes(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """Everything that tells the number of classes must tell the same."""
    given = as_mapping(data.get("input"))
    sizes: list[tuple[KeyPath, int]] = [(("input", "classes"), len(as_list(given.get("classes"))))]
    for key in MODELS:
        sizes.append((("input", key), len(as_list(given.get(key)))))
        columns = as_list(as_mapping(given.get(key)).get("columns"))
        sizes.append((("input", key, "columns"), len(columns)))
    for name, loss in as_mapping(data.get("losses")).items():
        rows = as_list(as_mapping(plain(loss)).get("costs"))
        sizes.append((("losses", name, "costs"), len(as_list(rows[0])) if rows else 0))
    # What is shorter is not a list, or is refused on its own.
    sizes = [(path, size) for path, size in sizes if size >= 2]
    for path, size in sizes[1:]:
        first, expected = sizes[0]
        if size != expected:
            yield path, f"is for {size} classes, but {dotted(first)} is for {expected}"


def shared_tables(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """No output may overwrite an input or another output."""
    given, output = as_mapping(data.get("input")), as_mapping(data.get("output"))
    taken = {place_of(given.get("table")): "input.table"}
    for key in MODELS:
        taken.setdefault(place_of(as_mapping(given.get(key)).get("table")), f"input.{key}.table")
    table = output.get("table")
    for key in ("table", *SIDE_TABLES, "checkpoint"):
        name = output.get(key)
        if name is None and isinstance(table, str):
            name = sibling(table, key)
        place = place_of(name)
        if place is None:
            continue
        if taken.setdefault(place, f"output.{key}") != f"output.{key}":
            yield ("output", key), f"is the same table as {taken[place]}"
        for folder, source in taken.items():
            # the next run would read what this one wrote; VACUUM would empty a checkpoint
            kept_out = source.startswith("input.") or key == "checkpoint"
            if folder and kept_out and place.startswith(folder + os.sep):
                yield ("output", key), f"is inside the folder of {source}"


def place_of(table: object) -> str | None:
    """What tells tables apart: paths as absolute ones; to a catalog name that does no harm."""
    try:
        return os.path.realpath(table) if isinstance(table, str) else None
    except ValueError:  # a NUL, or half a surrogate pair
        return None


def sibling(table: str, kind: str) -> str:
    """The name of a table beside another: `out/scores/` and `runs` give `out/scores_runs`."""
    if table.endswith("`"):
        return f"{table[:-1]}_{kind}`"
    return f"{table.rstrip('/')}_{kind}"


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
