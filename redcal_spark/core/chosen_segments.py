"""Which values of segment columns are told apart: all, or the largest and a remainder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from redcal_spark.core.segments import SegmentSums
from redcal_spark.errors import InputError

MOST = 200  # values of a column that are told apart, the remainder included
TOO_MANY = 100_000  # values that a scan counts at most


@dataclass(frozen=True)
class Segment:
    """One value of a segment column, as text; `null` and `other` are kinds of their own."""

    column: str
    kind: str  # value, null, or other: all values beyond the 199 with most rows
    text: str | None = None

    @property
    def shown(self) -> str:
        return {"null": "(null)", "other": "(other)"}.get(self.kind, self.text or "")

    def __str__(self) -> str:
        return (
            f"{self.column} = {self.text!r}"
            if self.kind == "value"
            else f"{self.column} {self.shown}"
        )


@dataclass(frozen=True)
class Chosen:
    """The segments of every column, by the hashes of the values that they are made of."""

    segments: tuple[tuple[Segment, ...], ...]
    places: tuple[Mapping[int, int], ...]  # hash -> place among the column's segments

    def __iter__(self) -> Iterator[Segment]:
        return (segment for column in self.segments for segment in column)

    def folded(self, sums: SegmentSums) -> list[list[Sequence[int]]]:
        """Per column and segment, the sums; of one that has no rows, none."""
        columns = []
        for segments, places, known in zip(self.segments, self.places, sums.sums, strict=True):
            lines: list[Sequence[int]] = [()] * len(segments)
            for code, numbers in known.items():
                place = places[code]
                have = lines[place]
                lines[place] = (
                    [a + b for a, b in zip(have, numbers, strict=True)] if have else numbers
                )
            columns.append(lines)
        return columns


def chosen(names: Sequence[str], parts: Sequence[SegmentSums]) -> Chosen:
    """All values; of more than 200 the 199 with most rows, over all parts, and a remainder.

    Ties go by the code points of the text. Null is a value like others, and comes last of a tie.
    """
    segments, places = [], []
    for i, name in enumerate(names):
        rows: dict[int, int] = {}
        texts: dict[int, str | None] = {}
        for part in parts:
            texts |= part.texts[i]
            for code, numbers in part.sums[i].items():
                rows[code] = rows.get(code, 0) + numbers[0]
        order = sorted(rows, key=lambda code: (-rows[code], *_text_key(texts[code])))
        own = order if len(order) <= MOST else order[: MOST - 1]
        listed = [_segment(name, texts[code]) for code in own]
        if len(order) > MOST:
            listed.append(Segment(name, "other"))
        segments.append(tuple(listed))
        places.append({code: min(place, len(listed) - 1) for place, code in enumerate(order)})
    return Chosen(tuple(segments), tuple(places))


def _segment(column: str, text: str | None) -> Segment:
    return Segment(column, "null") if text is None else Segment(column, "value", text)


def _text_key(text: str | None) -> tuple[bool, str]:
    return text is None, text or ""


def check_values(names: Sequence[str], sums: SegmentSums, where: str) -> None:
    """Refuse columns that are no segments: their values would not fit into memory."""
    for name, known in zip(names, sums.sums, strict=True):
        if len(known) > TOO_MANY:
            raise InputError(
                f"{where}: segment column {name!r} has more than {TOO_MANY:,} values; name a "
                "column with fewer, or put values together beforehand"
            )
