"""Packing: blocks and statistics as bytes, and back. Plain data with a checksum, never a pickle."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from itertools import count, takewhile
from typing import Any

import numpy as np

from redcal_spark.core.additive import Array
from redcal_spark.core.blocks import Block
from redcal_spark.core.folds import Folds
from redcal_spark.core.metrics import Totals
from redcal_spark.core.paired import Moments, Paired
from redcal_spark.core.patch_effects import PatchEffect
from redcal_spark.core.reading import BadRows
from redcal_spark.core.scan import COUNTS, ScanResult, SplitResult
from redcal_spark.core.segments import SegmentSums
from redcal_spark.core.weights import Weights
from redcal_spark.errors import RunError, ScratchError

DAMAGED = "a packed block is damaged: its checksum does not fit"

PAIRED = ("losses", "rounds", "brier")

_MAGIC = b"rdcl"
_HEAD = struct.Struct("<4sII")  # magic, checksum of all that follows, length of the description
_TYPES = ("int32", "int64", "bool", "uint8", "uint16", "uint32")


def pack(data: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Plain data (as JSON) and integer arrays (as they are) in one piece of bytes."""
    return b"".join(_parts(data, arrays))


def _parts(data: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[Any]:
    """The same in pieces, the arrays not copied."""
    shapes = {name: (str(a.dtype), a.shape) for name, a in arrays.items()}
    head = json.dumps({"data": data, "arrays": shapes}).encode()
    head += b" " * (-(_HEAD.size + len(head)) % 8)  # arrays start aligned
    body: list[Any] = [head]
    body += [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays.values()]
    checksum = 0
    for part in body:
        checksum = zlib.crc32(part, checksum)
    return [_HEAD.pack(_MAGIC, checksum, len(head)), *body]


def unpack(packed: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `pack` was given; arrays are views of the bytes. Damage is noticed."""
    view = memoryview(packed)
    try:
        magic, checksum, length = _HEAD.unpack_from(view)
        if magic != _MAGIC or zlib.crc32(view[_HEAD.size :]) != checksum:
            raise ValueError("checksum")
        head = json.loads(bytes(view[_HEAD.size : _HEAD.size + length]))
    except (struct.error, ValueError) as err:
        raise ScratchError(DAMAGED) from err
    arrays, start = {}, _HEAD.size + length
    for name, (kind, shape) in head["arrays"].items():
        if kind not in _TYPES:
            raise RunError(f"a packed block holds {kind}, which no block has")
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(view, kind, count, start).reshape(shape)
        start += arrays[name].nbytes
    return head["data"], arrays


def packed_parts(block: Block) -> list[Any]:
    """A block in pieces of bytes, to be written one after another."""
    arrays: dict[str, Any] = {f"f{i}": f for i, f in enumerate(block.f, 1)}
    arrays |= {"y": block.y, "w": block.w, "s": block.s, "fold": block.fold}
    return _parts({}, {name: array for name, array in arrays.items() if array is not None})


def unpack_block(packed: Any) -> Block:
    _, arrays = unpack(packed)
    models = takewhile(arrays.__contains__, (f"f{i}" for i in count(1)))
    f = tuple(arrays[name] for name in models)
    return Block(f, *map(arrays.get, ("y", "w", "s", "fold")))


def gathered_parts(gathered: ScanResult) -> tuple[dict[str, Any], dict[str, Array]]:
    """The counts of a scan as plain data and arrays; not its active rows."""
    data: dict[str, Any] = {name: getattr(gathered, name) for name in COUNTS}
    data["problems"] = gathered.problems.to_json()
    arrays: dict[str, Array] = {}
    for name, part in (("fit", gathered.fit), ("holdout", gathered.holdout)):
        data[name] = _counts(part.totals)
        if part.counted or name == "fit":  # of many losses even zeros are megabytes
            arrays |= part.totals.to_arrays(f"{name}.")
        if part.mean is not None:
            data[f"{name}_mean"] = _counts(part.mean)
            arrays |= part.mean.to_arrays(f"{name}_mean.")
    if gathered.fit.folds is not None:
        arrays |= gathered.fit.folds.to_arrays("folds.")
    return data, arrays


def gathered_of(data: Mapping[str, Any], arrays: Mapping[str, Array]) -> ScanResult:
    given = dict(data)
    own = {name.removeprefix("fit."): a for name, a in arrays.items() if name.startswith("fit.")}
    nothing = {f"holdout.{name}": np.zeros_like(array) for name, array in own.items()}
    fit, holdout = (
        SplitResult(_totals(given.pop(name), nothing | dict(arrays), f"{name}."))
        for name in ("fit", "holdout")
    )
    for name, part in (("fit_mean", fit), ("holdout_mean", holdout)):
        if name in given:
            part.mean = _totals(given.pop(name), arrays, f"{name}.")
    if "folds.rows" in arrays:
        fit.folds = Folds.from_arrays(arrays, "folds.")
    problems = BadRows.from_json(given.pop("problems"))
    return ScanResult(fit, holdout, problems=problems, **given)


def pack_changes(changes: Sequence[Totals]) -> bytes:
    """What the segments of a log changed, in order."""
    arrays: dict[str, Array] = {}
    for i, change in enumerate(changes):
        arrays |= change.to_arrays(f"{i}.")
    return pack({"changes": [_counts(change) for change in changes]}, arrays)


def unpack_changes(packed: Any) -> list[Totals]:
    data, arrays = unpack(packed)
    return [_totals(plain, arrays, f"{i}.") for i, plain in enumerate(data["changes"])]


def pack_effects(effects: Sequence[PatchEffect]) -> bytes:
    """What the patches of a log do, in order."""
    plain = [{"rows": each.rows, "losses": _texts(each.losses)} for each in effects]
    return pack({"effects": plain}, {})


def unpack_effects(packed: Any) -> list[PatchEffect]:
    data, _ = unpack(packed)
    return [PatchEffect(each["rows"], _moments(each["losses"])) for each in data["effects"]]


NO_ARRAYS = {"rows", "brier", "paired", "weights", "segments"}  # of the totals


def _counts(totals: Totals) -> dict[str, Any]:
    """What is no array. Brier sums do not fit int64: they travel as text."""
    for field in fields(totals):
        value = getattr(totals, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        carried = field.name in NO_ARRAYS or all(isinstance(part, np.ndarray) for part in parts)
        assert carried, f"packing does not carry Totals.{field.name}: see NO_ARRAYS"
    data: dict[str, Any] = {"rows": totals.rows, "brier": [str(b) for b in totals.brier]}
    if totals.paired is not None:
        data["paired"] = {"vectors": totals.paired.vectors} | {
            name: _texts(getattr(totals.paired, name)) for name in PAIRED
        }
    if totals.weights is not None:
        data["weights"] = [str(number) for number in astuple(totals.weights)]
    if totals.segments is not None:
        data["segments"] = totals.segments.to_json()
    return data


def _totals(data: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str) -> Totals:
    brier = tuple(int(b) for b in data["brier"])
    paired = data.get("paired")
    if paired is not None:
        paired = Paired(paired["vectors"], *(_moments(paired[name]) for name in PAIRED))
    weights = Weights(*map(int, data["weights"])) if "weights" in data else None
    segments = SegmentSums.from_json(data["segments"]) if "segments" in data else None
    others = {"paired": paired, "weights": weights, "segments": segments}
    return Totals.from_arrays(arrays, prefix, rows=data["rows"], brier=brier, **others)


def _texts(sums: Any) -> list[Any]:
    """Sums of squares do not fit int64 either."""
    if isinstance(sums, Moments):
        return [str(sums.total), str(sums.squares)]
    return [_texts(part) for part in sums]


def _moments(texts: Any) -> Any:
    if texts and isinstance(texts[0], str):
        return Moments(*map(int, texts))
    return tuple(map(_moments, texts))
