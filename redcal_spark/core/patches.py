"""Patches and their log: the log is the model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from redcal_spark.core.events import (
    ActionRegion,
    Direction,
    Disagreement,
    Event,
    Pair,
    ScoreGap,
)
from redcal_spark.core.fixed_point import ONE, Grid
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.number_text import plural
from redcal_spark.errors import ModelFileError
from redcal_spark.settings import MAX_MODELS

Kind = Literal["reconcile", "calibrate", "score"]


@dataclass(frozen=True)
class Patch:
    """One step: `phi` is added to a model's scores on the rows of an event, then clipped to [0, 1].

    The fields are those of the log, in its order. What does not apply is None. other: the model
    that `model` disagreed with; of the two, a1 is the action of the lower one.
    """

    step: int
    round: int | None
    kind: Kind
    model: int
    other: int | None
    loss: str | None
    a1: int | None
    a2: int | None
    action: int | None
    coordinate: int | None
    direction: Direction | None
    rows: int
    phi: tuple[int, ...]

    @property
    def shift(self) -> Grid:
        return np.array(self.phi, dtype=np.int32)

    @classmethod
    def of(cls, event: Event, losses: LossFamily, *, model: int, **others: Any) -> Patch:
        """A patch of a model that acts on the rows of an event."""
        place: dict[str, Any] = dict.fromkeys(_PLACES) | asdict(event)
        if place["loss"] is not None:
            place["loss"] = losses[place["loss"]].name
        pair = place.pop("pair", None)
        other = None if pair is None else sum(pair) - model
        kind = next(kind for kind, its in EVENTS.items() if isinstance(event, its))
        return cls(kind=kind, model=model, other=other, **place, **others)

    def event(self, losses: LossFamily) -> Event:
        """The rows that the patch acts on; of a calibration within a round, those of its event."""
        place = {name: getattr(self, name) for name in _USED[self.kind]}
        if self.loss is not None:
            place["loss"] = losses.place(self.loss)
        if self.pair is not None:
            place["pair"] = self.pair
        return EVENTS[self.kind](**place)

    @property
    def pair(self) -> Pair | None:
        """The models that disagreed."""
        if self.other is None:
            return None
        return min(self.model, self.other), max(self.model, self.other)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS[:-1]} | {"phi": list(self.phi)}

    def to_line(self) -> str:
        """The patch as one line of JSON, with exactly the log's fields in their order."""
        return json.dumps(self.to_json())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Patch:
        """Check one entry of a saved log: a damaged patch is refused, not applied."""
        if not isinstance(data, Mapping) or list(data) != list(FIELDS):
            raise ModelFileError(f"a patch has the fields {', '.join(FIELDS)}; got {data!r:.200}")
        used = _USED.get(data["kind"])
        if used is None:
            raise ModelFileError(f"patch {data['step']!r}: unknown kind {data['kind']!r}")
        phi = data["phi"]
        # a calibration may run everywhere, and is of one model alone
        two = () if data["kind"] == "calibrate" else ("round", "other")
        names = {"step", "rows", "model", *two, *used} - {"loss", "direction"}
        good = (
            all(_is_whole(data[name]) and data[name] >= 0 for name in names)
            and 1 <= data["model"] <= MAX_MODELS
            and (data["other"] is not None) == bool(two)
            and (not two or (data["model"] != data["other"] and 1 <= data["other"] <= MAX_MODELS))
            and all(data[name] is None for name in _PLACES - used)
            and (data["round"] is None or isinstance(data["round"], int))
            and ("loss" not in used or isinstance(data["loss"], str))
            and ("direction" not in used or data["direction"] in (">", "<"))
            and isinstance(phi, list)
            and all(map(_is_whole, phi))
            and any(phi)
            and all(abs(x) <= ONE for x in phi)
        )
        if not good:
            raise ModelFileError(f"patch {data['step']!r} is damaged: {dict(data)!r:.300}")
        return cls(**{**data, "phi": tuple(phi)})


FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Patch))
EVENTS: dict[Kind, type[Event]] = {
    "reconcile": Disagreement,
    "calibrate": ActionRegion,
    "score": ScoreGap,
}
_USED = {kind: {f.name for f in fields(event)} - {"pair"} for kind, event in EVENTS.items()}
_PLACES: set[str] = set().union(*_USED.values())


def _of_two(entry: Any) -> Any:
    """An entry as releases that knew two models only wrote it, with `other` where it belongs."""
    if not isinstance(entry, Mapping) or list(entry) != [f for f in FIELDS if f != "other"]:
        return entry  # refused by its fields
    given, model = dict(entry), entry["model"]
    known = entry["kind"] != "calibrate" and model in (1, 2)
    given["other"] = 3 - model if known else None
    return {name: given[name] for name in FIELDS}


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


class PatchLog(tuple[Patch, ...]):
    """The patches in order. Replaying them on the original scores gives the reconciled ones."""

    __slots__ = ()

    def to_json(self, others: bool = True) -> list[dict[str, Any]]:
        """others: with `other`, which releases that knew two models only had not."""
        log = [patch.to_json() for patch in self]
        for entry in log if not others else ():
            del entry["other"]
        return log

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]], others: bool = True) -> Self:
        log = cls(Patch.from_json(entry if others else _of_two(entry)) for entry in data)
        for place, patch in enumerate(log):
            if patch.step != place:
                raise ModelFileError(f"the patch at place {place} says step {patch.step}")
        return log

    @property
    def rounds(self) -> int:
        return sum(patch.kind != "calibrate" for patch in self)

    def __repr__(self) -> str:
        return (
            f"<PatchLog: {plural(len(self), 'patch', 'patches')} in {plural(self.rounds, 'round')}>"
        )


def full_phi(patch: Patch, d: int, binary: bool) -> Sequence[int]:
    """phi for all classes; the complement of a binary score follows."""
    if patch.coordinate is None:
        return patch.phi
    phi = [0] * d
    phi[patch.coordinate] = patch.phi[0]
    if binary:
        phi[1 - patch.coordinate] = -patch.phi[0]
    return phi
