"""The file of a model: one JSON object, and the refusal of all that no release wrote."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, TextIO, TypeVar, get_args

from redcal_spark.atomic_write import write_whole
from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.log_checks import replayable
from redcal_spark.core.columns import Columns
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS, MAX_ROWS
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters, Status
from redcal_spark.core.patches import PatchLog
from redcal_spark.core.tuned import Tuned
from redcal_spark.core.weights import Weights
from redcal_spark.errors import ModelFileError, RedcalError
from redcal_spark.model.evidence import Evidence
from redcal_spark.settings import MAX_MODELS

# A release writes the newest and reads all: 2 added the quantised costs, 3 any number of models
# and weights.
SCHEMA_VERSION = 3
READ = (1, 2, 3)
KIND = "redcal_spark.ReconciledPair"
EVIDENCE = "evidence"  # beside the model in its file, where there is some

T = TypeVar("T")


def replay_version(fitted: Fitted) -> int:
    """The first version that has all that a replay needs; weights are only of the fit.

    What is known by its digest is known by this form.
    """
    return 1 if fitted.columns.n_models == 2 and fitted.columns.model_names is None else 3


def to_json(fitted: Fitted, version: int) -> dict[str, Any]:
    """The model as plain data, ready for `json.dumps`: all that a replay needs."""
    weights = {} if version < 3 else {"weights": _weights_to_json(fitted.weights)}
    tuned = {} if fitted.tuned is None else {"tuned": fitted.tuned.to_json()}
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
        **tuned,
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
    columns = _columns_from_json(data["columns"], version)
    for own in columns.models:
        if not isinstance(own, str) and (data["binary"] or len(own) != n_classes):
            raise ModelFileError(
                f"damaged model: score columns {own!r:.200}, n_classes {n_classes}"
            )
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
        columns=columns,
        binary=data["binary"],
        n_classes=n_classes,
        rows=rows,
        status=status,
        log=PatchLog.from_json(data["log"], others=version >= 3),
        zero_calibrations=zeros,
        tuned=_tuned(data, parameters),
        weights=weights,
    )


def _tuned(data: Mapping[str, Any], parameters: Parameters) -> Tuned | None:
    """How eta was chosen, if it was; the candidate that won must be the one of the parameters."""
    if "tuned" not in data:
        return None
    tuned = Tuned.from_json(data["tuned"])
    chosen = tuned.parameters(replace(parameters, eta="auto", beta=tuned.given_beta))
    if chosen != parameters:
        raise ModelFileError("damaged model: tuned: its choice is not that of the parameters")
    return tuned


def with_evidence(data: Any) -> tuple[Fitted, Evidence | None, Certificate | None]:
    """The model, and what else its file has: what was measured, and the certificate.

    They are of this very model, by its digest: those of another one would promise in its name.
    """
    if not isinstance(data, Mapping) or EVIDENCE not in data:
        return from_json(data), None, None
    model = {key: value for key, value in data.items() if key != EVIDENCE}
    fitted, more = from_json(model), data[EVIDENCE]
    if not isinstance(more, Mapping) or more.keys() != {"model", "certificate", "measured"}:
        raise ModelFileError("damaged model: evidence: not as any release wrote it")
    if more["model"] != digest(model):
        raise ModelFileError("damaged model: its evidence is of another model")
    measured, certificate = more["measured"], more["certificate"]
    return (
        fitted,
        None if measured is None else Evidence.from_json(measured, fitted),
        None if certificate is None else Certificate.from_json(certificate),
    )


def digest(data: Mapping[str, Any]) -> str:
    """A name for a model by what is in its file."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def save(
    fitted: Fitted, path: str | os.PathLike[str], evidence: Mapping[str, Any] | None = None
) -> None:
    data = to_json(fitted, SCHEMA_VERSION)
    if evidence is not None:
        data |= {EVIDENCE: {"model": digest(data), **evidence}}

    def write(file: TextIO) -> None:
        json.dump(data, file)
        file.write("\n")

    write_whole(path, write)


def load(path: str | os.PathLike[str], made: Callable[[Any], T]) -> T:
    """What `made` makes of the data in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as err:
        raise ModelFileError(f"{os.fspath(path)}: {err.strerror}") from err
    except (ValueError, RecursionError) as err:
        raise ModelFileError(f"{os.fspath(path)}: not JSON: {err}") from err
    try:
        return made(data)
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
