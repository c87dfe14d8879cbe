"""Value types of the configuration: what a key may hold, and what is wrong with what it holds."""

from __future__ import annotations

import math
import unicodedata
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, TypeAdapter
from pydantic_core import PydanticCustomError

# An error of this type ends in ", got <value>". The value is added only when the problem is shown,
# so that a value taken from the environment can be shown as the user wrote it.
WRONG = "wrong_value"


def wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError(WRONG, text)


def problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("problem", text)


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


def _positive(value: object) -> float:
    number = _number(value)
    if not number > 0:
        raise wrong("must be a number above 0")
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


def _auto_or_whole(value: object) -> int | str:
    return "auto" if value == "auto" else TypeAdapter(Whole).validate_python(value)


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
Positive = Annotated[float, Field(gt=0), BeforeValidator(_positive)]
Share = Annotated[float, Field(gt=0, le=1), BeforeValidator(_share)]
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
AutoOrWhole = Annotated[
    int | Literal["auto"],
    PlainValidator(_auto_or_whole, json_schema_input_type=Whole | Literal["auto"]),
]
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
