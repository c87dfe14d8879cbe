"""Patches and their log: the log is the model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from redcal_spark.core.events import ActionRegion, Direction, Disagreement, Event, ScoreGap
from redcal_spark.core.fixed_point import ONE, Grid
from redcal_spark.core.losses import LossFamily
from redcal_spark.errors import ModelFileError

Kind = Literal["reconcile", "calibrate", "score"]


@dataclass(frozen=True)
class Patch:
    """One step: `phi` is added to a model's scores on the rows of an event, then clipped to [0, 1].

    The fields are those of the log, in its order. What does not apply is None.
    """

    step: int
    round: int | None
    kind: Kind
    model: int
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

    def event(self, losses: LossFamily) -> Event:
        """The rows that the patch acts on; a calibration within a round is of its rows alone."""
        if self.coordinate is not None and self.direction is not None:
            return ScoreGap(self.coordinate, self.direction)
        assert self.loss is not None
        place = losses.place(self.loss)
        if self.action is not None:
            return ActionRegion(place, self.action)
        assert self.a1 is not None and self.a2 is not None
        return Disagreement(place, self.a1, self.a2)

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
        whole = [data[name] for name in ("step", "rows", "model", *used) if name not in _NAMES]
        good = (
            all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in whole)
            and data["model"] in (1, 2)
            and all(data[name] is None for name in _PLACES - used - {"round"})
            and (data["round"] is None or isinstance(data["round"], int))
            and ("loss" not in used or isinstance(data["loss"], str))
            and ("direction" not in used or data["direction"] in (">", "<"))
            and isinstance(phi, list)
            and all(isinstance(x, int) and not isinstance(x, bool) for x in phi)
            and any(phi)
            and all(abs(x) <= ONE for x in phi)
        )
        if not good:
            raise ModelFileError(f"patch {data['step']!r} is damaged: {dict(data)!r:.300}")
        return cls(**{**data, "phi": tuple(phi)})


FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Patch))
_NAMES = {"loss", "direction"}
_PLACES = {"round", "loss", "a1", "a2", "action", "coordinate", "direction"}
_USED: dict[str, set[str]] = {
    "reconcile": {"round", "loss", "a1", "a2"},
    "calibrate": {"loss", "action"},  # its round is null when it runs everywhere
    "score": {"round", "coordinate", "direction"},
}


class PatchLog(tuple[Patch, ...]):
    """The patches in order. Replaying them on the original scores gives the reconciled ones."""

    __slots__ = ()

    def to_json(self) -> list[dict[str, Any]]:
        return [patch.to_json() for patch in self]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> PatchLog:
        log = cls(Patch.from_json(entry) for entry in data)
        for place, patch in enumerate(log):
            if patch.step != place:
                raise ModelFileError(f"the patch at place {place} says step {patch.step}")
        return log

    @property
    def rounds(self) -> int:
        return sum(patch.kind != "calibrate" for patch in self)


def full_phi(patch: Patch, d: int, binary: bool) -> Sequence[int]:
    """phi for all classes; the complement of a binary score follows."""
    if patch.coordinate is None:
        return patch.phi
    phi = [0] * d
    phi[patch.coordinate] = patch.phi[0]
    if binary:
        phi[1 - patch.coordinate] = -patch.phi[0]
    return phi
