"""The file of a model: one JSON object, and the refusal of all that no release wrote."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, TextIO, get_args

from redcal_spark.atomic_write import write_whole
from redcal_spark.certificate.log_checks import replayable
from redcal_spark.core.columns import Columns
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS, MAX_ROWS
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters, Status
from redcal_spark.core.patches import PatchLog
from redcal_spark.core.weights import Weights
from redcal_spark.errors import ModelFileError, RedcalError
from redcal_spark.settings import MAX_MODELS

# A release writes the newest and reads all: 2 added the quantised costs, 3 any number of models
# and weights.
SCHEMA_VERSION = 3
READ = (1, 2, 3)
KIND = "redcal_spark.ReconciledPair"


def to_json(fitted: Fitted, version: int) -> dict[str, Any]:
    """The model as plain data, ready for `json.dumps`: all that a replay needs."""
    weights = {} if version < 3 else {"weights": _weights_to_json(fitted.weights)}
    return {
        "schema_version": version,
        "kind": KIND,
        "status": fitted.status,
        "rows": fitted.rows,
        **weights,
        "n_classes": fitted.n_classes,
        "binary": fitted.binary,
        "grid_bits": BITS,
        "parameters": asdict(fitted.parameters),
        "resolved": {
            "beta": None if fitted.resolved.beta is None else str(fitted.resolved.beta),
            "m": fitted.resolved.m,
            "grid_covered": fitted.resolved.grid_covered,
        },
        "zero_calibrations": fitted.zero_calibrations,
        "columns": _columns_to_json(fitted.columns, version),
        "losses": fitted.losses.to_json(quantised=version >= 2),
        "log": fitted.log.to_json(others=version >= 3),
    }


def _columns_to_json(columns: Columns, version: int) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(asdict(columns)))
    if version >= 3:
        return data
    one, two = data.pop("models")
    del data["model_names"], data["weight"], data["weight_unit"], data["segments"]
    return {"model_1": one, "model_2": two} | data


def _columns_from_json(data: Mapping[str, Any], version: int) -> Columns:
    models = data["models"] if version >= 3 else [data["model_1"], data["model_2"]]
    names = data["model_names"] if version >= 3 else None
    if not isinstance(models, list) or not 2 <= len(models) <= MAX_MODELS:
        raise ModelFileError(f"damaged model: models {models!r:.200}")
    if names is not None and not len(set(names)) == len(names) == len(models):
        raise ModelFileError(f"damaged model: model_names {names!r:.200}")
    classes, weight = data["classes"], data["weight"] if version >= 3 else None
    return Columns(
        tuple(map(_names, models)),
        _name(data["label"]),
        None if data["id"] is None else _name(data["id"]),
        None if classes is None else tuple(map(_name, classes)),
        None if names is None else tuple(map(_name, names)),
        weight=None if weight is None else _name(weight),
        weight_unit=_unit(data["weight_unit"] if version >= 3 else 1.0),
        segments=tuple(map(_name, data["segments"] if version >= 3 else ())),
    )


def _weights_to_json(weights: Weights | None) -> dict[str, Any] | None:
    """The sum of squares may have 74 bits: it is a text."""
    return None if weights is None else asdict(weights) | {"squares": str(weights.squares)}


def _weights_of(data: Mapping[str, Any], rows: int) -> Weights | None:
    given = data["weights"] if data["schema_version"] >= 3 else None
    if given is None:
        return None
    weights = Weights(given["rows"], int(given["squares"]), given["largest"])
    if not (1 <= weights.rows <= rows and 1 <= weights.largest <= rows <= weights.squares):
        raise ModelFileError(f"damaged model: weights {given!r}")
    return weights


def from_json(data: Any) -> Fitted:
    """The model from plain data. Unknown versions are refused by name, damage too."""
    if not isinstance(data, Mapping) or "schema_version" not in data:
        raise ModelFileError("not a saved model: it has no schema_version")
    version = data["schema_version"]
    if type(version) is not int or version not in READ:
        raise ModelFileError(
            f"schema_version {version!r} is unknown here; this release reads versions "
            f"{READ[0]} to {READ[-1]}: use the release of redcal_spark that wrote the "
            "model"
        )
    try:
        fitted = _built(data)
        for reason in replayable(fitted):
            raise ModelFileError(reason)
    except ModelFileError:
        raise
    except (RedcalError, LookupError, TypeError, ValueError, ArithmeticError) as err:
        raise ModelFileError(f"damaged model: {type(err).__name__}: {err}") from err
    written = to_json(fitted, version)
    changed = [key for key in {**written, **data} if written.get(key) != data.get(key)]
    if changed or not _same_types(written, data):
        parts = ", ".join(changed) or "types"
        raise ModelFileError(f"damaged model: not as any release wrote it: {parts}")
    return fitted


def _built(data: Mapping[str, Any]) -> Fitted:
    rows, n_classes, status = data["rows"], data["n_classes"], data["status"]
    if not all(type(x) is int and 0 < x < MAX_ROWS for x in (rows, n_classes)):
        raise ModelFileError(f"damaged model: rows {rows!r}, n_classes {n_classes!r}")
    if status not in get_args(Status):
        raise ModelFileError(f"damaged model: status {status!r}")
    for flag in (data["binary"], data["resolved"]["grid_covered"]):
        if not isinstance(flag, bool):
            raise ModelFileError(f"damaged model: {flag!r} is neither true nor false")
    parameters = Parameters(**data["parameters"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit has warned of them
        losses = LossFamily.from_json(data["losses"], data["schema_version"] >= 2)
    version, given, weights = data["schema_version"], data["resolved"], _weights_of(data, rows)
    resolved = replace(
        parameters.resolve(rows, n_classes),
        beta=None if given["beta"] is None else Fraction(given["beta"]),
        m=int(given["m"]),
        grid_covered=given["grid_covered"],
    )
    if resolved.m.bit_count() != 1 or resolved.m > 1 << BITS:
        raise ModelFileError(f"damaged model: m {given['m']!r}")
    if resolved.beta is not None and not 0 < resolved.beta <= 1:
        raise ModelFileError(f"damaged model: beta {given['beta']!r}")
    zeros = data["zero_calibrations"]
    if not isinstance(zeros, int) or isinstance(zeros, bool) or zeros < 0:
        raise ModelFileError(f"damaged model: zero_calibrations {zeros!r}")
    return Fitted(
        parameters=parameters,
        resolved=resolved,
        losses=losses,
        columns=_columns_from_json(data["columns"], version),
        binary=data["binary"],
        n_classes=n_classes,
        rows=rows,
        status=status,
        log=PatchLog.from_json(data["log"], others=version >= 3),
        zero_calibrations=zeros,
        weights=weights,
    )


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    def write(file: TextIO) -> None:
        json.dump(to_json(fitted, SCHEMA_VERSION), file)
        file.write("\n")

    write_whole(path, write)


def load(path: str | os.PathLike[str]) -> Fitted:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as err:
        raise ModelFileError(f"{os.fspath(path)}: {err.strerror}") from err
    except (ValueError, RecursionError) as err:
        raise ModelFileError(f"{os.fspath(path)}: not JSON: {err}") from err
    try:
        return from_json(data)
    except ModelFileError as err:
        raise ModelFileError(f"{os.fspath(path)}: {err}") from err


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ModelFileError(f"damaged model: a name is {value!r}")
    return value


def _unit(value: Any) -> float:
    if not isinstance(value, float) or not 0 < value < float("inf"):
        raise ModelFileError(f"damaged model: weight_unit {value!r}")
    return value


def _names(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, list) and value:
        return tuple(_name(v) for v in value)
    return _name(value)


def _same_types(one: Any, two: Any) -> bool:
    """Whether two equal trees are equal in kind too: 1, 1.0 and true are not."""
    if isinstance(one, dict):
        return isinstance(two, Mapping) and all(_same_types(one[k], two[k]) for k in one)
    if isinstance(one, list):
        return isinstance(two, list) and all(map(_same_types, one, two))
    return type(one) is type(two)
