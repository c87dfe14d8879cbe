"""A reconciled pair: the patch log, what it takes to replay it on any rows, and its file."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TextIO, get_args

import numpy as np
import pyarrow as pa

from redcal_spark.atomic_write import write_whole
from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.log_checks import replayable
from redcal_spark.core.arrow import batches, empty_batch, from_numpy, to_arrow, with_columns
from redcal_spark.core.columns import Columns, plan
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS, MAX_ROWS
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.normalised import with_nan
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.parameters import Parameters, Status
from redcal_spark.core.patches import PatchLog
from redcal_spark.core.reading import BadRows
from redcal_spark.errors import ModelFileError, RedcalError, UsageError
from redcal_spark.model.explain import explain, one_row
from redcal_spark.model.explanation import Explanation
from redcal_spark.settings import called_from_python, setting

# Of the file. A release writes the newest and reads all: 2 added the quantised costs.
SCHEMA_VERSION = 2
READ = (1, 2)
KIND = "redcal_spark.ReconciledPair"


@dataclass(frozen=True, eq=False)
class ReconciledPair(Fitted):
    """A reconciled pair of models: the patch log, and what it takes to replay it on any rows.

    Attributes:
        log: the patches, in order.
        losses: what decisions cost.
        rows: how many it was fitted on.
        status: converged, capped, stalled or cut.
        zero_calibrations: calibrations that ended because their patch rounded to nothing.
        certificate: what was promised and what is so; a model's file does not have it.
    """

    certificate: Certificate | None = None

    @called_from_python
    def apply(
        self,
        data: Any,
        model_2: Any = None,
        *,
        suffix: str = "_reconciled",
        on_bad_rows: Literal["error", "skip"] = "error",
        normalise: bool = False,
    ) -> Any:
        """The reconciled scores of any rows, labelled or not.

        A table comes back as the same kind of table with columns added; numpy arrays
        apply(scores_1, scores_2) come back as (new_1, new_2). Rows that no patch touched keep their
        scores to the bit.

        normalise: the scores of several classes need not sum to 1 when they are patched; scores
        divided by their sum are added, null where it is 0 (numpy: two more arrays, with NaN).
        Actions are those of the scores as they are, and so is every promise.
        """
        if on_bad_rows not in ("error", "skip"):
            raise UsageError(f"on_bad_rows: must be 'error' or 'skip', got {on_bad_rows!r}")
        if not isinstance(normalise, bool):
            raise UsageError(f"normalise: must be True or False, got {normalise!r}")
        skip = on_bad_rows == "skip"
        names = OutputNames(self.columns, self.losses, suffix, normalise=normalise)
        if is_spark(data):
            from redcal_spark.backends.spark.frames import apply_to_frame

            return apply_to_frame(data, self, names, skip)
        if model_2 is not None:
            table = self._extended(from_numpy(self.columns, data, model_2), names, skip)
            raw = [_to_numpy(table.column(name)) for name in names.raw]
            added = [table.column(name) for name in names.scores[len(raw) :]]
            return (*raw, *(with_nan(column, self.n_classes) for column in added))
        table = to_arrow(data, self.columns.names(label=False))
        return with_columns(data, self._extended(table, names, skip), names.all(skip))

    def _extended(self, table: pa.Table, names: OutputNames, skip: bool) -> pa.Table:
        layout = plan(table.schema, self.columns, "the data", self.n_classes, None, labels=False)
        self.check_layout(layout)
        problems = BadRows()
        found, start = [], 0
        for batch in batches(table):
            found.append(self.apply_batch(batch, layout, names, problems, start, skip))
            start += batch.num_rows
        if not skip:
            way_out = f"\n  ({setting('on_bad_rows', 'skip')} passes such rows through untouched)"
            problems.raise_if_any("the data", way_out)
        if not found:
            found = [self.apply_batch(empty_batch(table.schema), layout, names, problems, 0, skip)]
        return pa.Table.from_batches(found)

    @called_from_python
    def explain(self, row: Any, model_2: Any = None) -> Explanation:
        """Every patch that touches one row, and why, or why none does.

        row: a mapping of columns to values, a row of pandas or Spark, or a table of one row; or
        explain(scores_1, scores_2). `sentences()` and `to_json()` of what comes back tell it.
        """
        table, columns = one_row(self.columns, row, model_2)
        layout = plan(table.schema, columns, "the row", self.n_classes, None, labels=False)
        self.check_layout(layout)
        return explain(table, layout, self.rules, self.log, self.parameters, self.status)

    # --- as plain data ------------------------------------------------------------------------

    def to_json(self, version: int = SCHEMA_VERSION) -> dict[str, Any]:
        """The model as plain data, ready for `json.dumps`: all that a replay needs."""
        return {
            "schema_version": version,
            "kind": KIND,
            "status": self.status,
            "rows": self.rows,
            "n_classes": self.n_classes,
            "binary": self.binary,
            "grid_bits": BITS,
            "parameters": asdict(self.parameters),
            "resolved": {
                "beta": None if self.resolved.beta is None else str(self.resolved.beta),
                "m": self.resolved.m,
                "grid_covered": self.resolved.grid_covered,
            },
            "zero_calibrations": self.zero_calibrations,
            "columns": json.loads(json.dumps(asdict(self.columns))),
            "losses": self.losses.to_json(quantised=version >= 2),
            "log": self.log.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> ReconciledPair:
        """The model from plain data. Unknown versions are refused by name, damage too."""
        if not isinstance(data, Mapping) or "schema_version" not in data:
            raise ModelFileError("not a saved model: it has no schema_version")
        version = data["schema_version"]
        if type(version) is not int or version not in READ:
            raise ModelFileError(
                f"schema_version {version!r} is unknown here; this release reads versions "
                f"{' and '.join(map(str, READ))}: use the release of redcal_spark that wrote the "
                "model"
            )
        try:
            pair = cls._built(data)
            for reason in replayable(pair):
                raise ModelFileError(reason)
        except ModelFileError:
            raise
        except (RedcalError, LookupError, TypeError, ValueError, ArithmeticError) as err:
            raise ModelFileError(f"damaged model: {type(err).__name__}: {err}") from err
        written = pair.to_json(version)
        changed = [key for key in {**written, **data} if written.get(key) != data.get(key)]
        if changed or not _same_types(written, data):
            told = ", ".join(changed) or "types"
            raise ModelFileError(f"damaged model: not as any release wrote it: {told}")
        return pair

    @classmethod
    def _built(cls, data: Mapping[str, Any]) -> ReconciledPair:
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
            warnings.simplefilter("ignore")  # told when the model was fitted
            losses = LossFamily.from_json(data["losses"], data["schema_version"] >= 2)
        columns = data["columns"]
        classes = columns["classes"]
        given = data["resolved"]
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
        return cls(
            parameters=parameters,
            resolved=resolved,
            losses=losses,
            columns=Columns(
                _names(columns["model_1"]),
                _names(columns["model_2"]),
                _name(columns["label"]),
                None if columns["id"] is None else _name(columns["id"]),
                None if classes is None else tuple(_name(c) for c in classes),
            ),
            binary=data["binary"],
            n_classes=n_classes,
            rows=rows,
            status=status,
            log=PatchLog.from_json(data["log"]),
            zero_calibrations=zeros,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one JSON file, whole or not at all."""
        write_whole(path, self._write)

    def _write(self, file: TextIO) -> None:
        json.dump(self.to_json(), file)
        file.write("\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReconciledPair:
        """Read a model that `save` wrote."""
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
        except OSError as err:
            raise ModelFileError(f"{os.fspath(path)}: {err.strerror}") from err
        except (ValueError, RecursionError) as err:
            raise ModelFileError(f"{os.fspath(path)}: not JSON: {err}") from err
        try:
            return cls.from_json(data)
        except ModelFileError as err:
            raise ModelFileError(f"{os.fspath(path)}: {err}") from err


def is_spark(data: Any) -> bool:
    """Whether this is a Spark DataFrame, asked without importing Spark."""
    return any(kind.__module__.startswith("pyspark.sql") for kind in type(data).__mro__)


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ModelFileError(f"damaged model: a name is {value!r}")
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


def _to_numpy(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """One number or one vector a row; rows that were passed through may be of any length."""
    array = pa.concat_arrays(column.chunks)
    if pa.types.is_floating(array.type):
        return np.array(array.to_numpy(zero_copy_only=False))
    flat = np.array(array.flatten().to_numpy(zero_copy_only=False))
    if len(array) and len(flat) % len(array) == 0 and not array.null_count:
        return flat.reshape(len(array), -1)
    rows = np.empty(len(array), dtype=object)
    rows[:] = array.to_pylist()
    return rows
