"""What differs between the dialects of SQL that a model is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from redcal_spark.core.fixed_point import ONE
from redcal_spark.errors import UsageError

Name = Literal["spark", "duckdb", "ansi"]
DIALECTS: tuple[str, ...] = get_args(Name)


@dataclass(frozen=True)
class Dialect:
    """spark: 3.4 and later. duckdb: 1.1 and later. ansi: plain SQL with BIGINT and CASE."""

    name: Name

    @classmethod
    def of(cls, name: str) -> Dialect:
        if name not in DIALECTS:
            raise UsageError(f"dialect: must be one of {', '.join(DIALECTS)}; got {name!r}")
        return cls(name)  # type: ignore[arg-type]

    @property
    def double(self) -> str:
        return "DOUBLE PRECISION" if self.name == "ansi" else "DOUBLE"

    def quoted(self, name: str) -> str:
        """A column's name."""
        mark = "`" if self.name == "spark" else '"'
        return f"{mark}{name.replace(mark, 2 * mark)}{mark}"

    def text(self, value: str) -> str:
        """A text; Spark reads backslashes in it as C does."""
        if self.name == "spark":
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        return "'" + value.replace("'", "''") + "'"

    def whole(self, value: int) -> str:
        """A BIGINT. Of an INT Spark's analyzer would need a pass for every step, and has 100."""
        return f"{value}L" if self.name == "spark" else str(value)

    def number(self, column: str) -> str:
        return f"CAST({column} AS {self.double})"

    def rounded(self, value: str) -> str:
        """To the nearest whole number, halves to the even one, still a floating-point number."""
        if self.name == "spark":
            return f"rint({value})"
        if self.name == "duckdb":
            return f"round_even({value}, 0)"
        # floor and what is left of it are exact in floating point
        down = f"floor({value})"
        odd = f"{down} - 2 * floor({down} / 2) = 1"
        left = f"{value} - {down}"
        return f"({down} + CASE WHEN {left} > 0.5 OR ({left} = 0.5 AND {odd}) THEN 1 ELSE 0 END)"

    def on_grid(self, number: str) -> str:
        """A score in units of 2^-26; null where it is none."""
        whole = self.rounded(f"{number} * {ONE}")
        # others are not multiplied: they may overflow
        near = f"CASE WHEN {number} > -1 AND {number} < 2 THEN {whole} END"
        return f"CASE WHEN {near} BETWEEN 0 AND {ONE} THEN CAST({near} AS BIGINT) END"

    def array_item(self, column: str, place: int, size: int) -> str:
        """A value of an array; null if there is none, or if the array has another size."""
        if self.name == "spark":
            return f"CASE WHEN size({column}) = {size} THEN get({column}, {place}) END"
        return f"CASE WHEN len({column}) = {size} THEN {column}[{place + 1}] END"

    def array_of(self, values: Sequence[str]) -> str:
        joined = ", ".join(values)
        return f"array({joined})" if self.name == "spark" else f"[{joined}]"

    def as_doubles(self, column: str) -> str:
        kind = "ARRAY<DOUBLE>" if self.name == "spark" else "DOUBLE[]"
        return f"CAST({column} AS {kind})"
