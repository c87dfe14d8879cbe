"""Spark SQL that says of a row what the kernel says of it, to the bit: grid, actions, split.

For rows whose scores did not change. Every number that decides is a whole one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from redcal_spark.core.columns import Form, Layout
from redcal_spark.core.decisions import Tie
from redcal_spark.core.fixed_point import ONE, exact
from redcal_spark.core.losses import Loss
from redcal_spark.core.reading import SUM_TOLERANCE
from redcal_spark.core.roles import FIT, HOLDOUT, NONE, Roles
from redcal_spark.core.splits import ColumnSplit, HashSplit

LOW = 2**32 - 1
PRIME = 0x100000001B3  # of FNV-1a
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64


def text(value: str) -> str:
    """A text in Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def whole(value: int) -> str:
    """A bigint; a number of 64 bits without a sign is the one with the same bits."""
    signed = value - 2**64 if value >= 2**63 else value
    return f"CAST('{signed}' AS BIGINT)"


def wholes(values: Sequence[int]) -> str:
    return f"CAST(array({', '.join(map(str, values))}) AS ARRAY<BIGINT>)"


# --- scores ---------------------------------------------------------------------------------------


def numbers(columns: Sequence[str], form: Form) -> str:
    """The scores of a model as one array of doubles."""
    given = columns[0] if form == "array" else f"array({', '.join(columns)})"
    return f"CAST({given} AS ARRAY<DOUBLE>)"


def on_grid(array: str, length: int) -> str:
    """Whether an array of doubles can be read: so many numbers, all from 0 to 1 on the grid."""
    inside = f"p -> p IS NOT NULL AND rint(p * {ONE}D) BETWEEN 0D AND {ONE}D"
    return f"coalesce(size({array}) = {length} AND forall({array}, {inside}), false)"


def grid(array: str, form: Form) -> str:
    """The scores as whole numbers; those of one column P(class 1) get their complement."""
    q = f"transform({array}, p -> TRY_CAST(rint(p * {ONE}D) AS BIGINT))"
    if form != "binary":
        return q
    return f"transform(array(0, 1), k -> IF(k = 1, {q}[0], {ONE} - {q}[0]))"


def best_response(loss: Loss, q: str) -> str:
    """The place of the best action, from 1, the lowest of equals."""
    rows = [
        f"aggregate(zip_with({q}, {wholes([int(c) for c in costs])}, (x, c) -> x * c), "
        f"{whole(0)}, (s, x) -> s + x)"
        for costs in loss.quantised
    ]
    scores = f"array({', '.join(rows)})"
    return f"aggregate(array({scores}), 0, (a, s) -> CAST(array_position(s, array_min(s)) AS INT))"


def named(loss: Loss, place: str) -> str:
    """The name of an action. Of a null place, `element_at` of constants gives one, too."""
    cases = [f"WHEN {number} THEN {text(name)}" for number, name in enumerate(loss.actions, 1)]
    return f"CASE {place} {' '.join(cases)} END"


def decision(loss: Loss, tie: Tie, places: Sequence[str]) -> str:
    """The agreed action, or the one that the rule takes. places: of every model's action."""
    first, *others = places
    if tie == "cheaper":
        array = f"array({', '.join(_price(loss, place, len(places)) for place in places)})"
        chosen = f"array_position({array}, array_min({array}))"
        return named(loss, f"element_at(array({', '.join(places)}), CAST({chosen} AS INT))")
    if tie is None:
        agreed = " AND ".join(f"{first} = {other}" for other in others)
        return named(loss, f"IF({agreed}, {first}, NULL)")
    return named(loss, places[tie - 1] if isinstance(tie, int) else first)


def _price(loss: Loss, place: str, models: int) -> str:
    """What an action costs by all models' scores together, which need more than a bigint."""
    rows = f"array({', '.join(wholes([int(c) for c in costs]) for costs in loss.quantised)})"
    both = "_q1"
    for model in range(2, models + 1):
        both = f"zip_with({both}, _q{model}, (x, y) -> x + y)"
    products = f"zip_with({rows}[{place} - 1], {both}, (c, x) -> CAST(c AS DECIMAL(19, 0)) * x)"
    zero = "CAST(0 AS DECIMAL(38, 0))"
    return f"aggregate({products}, {zero}, (s, x) -> CAST(s + x AS DECIMAL(38, 0)))"


def normalised(q: str) -> str:
    """Scores over their sum; null where all are 0."""
    total = f"aggregate({q}, {whole(0)}, (s, x) -> s + x)"
    parts = f"transform({q}, x -> CAST(x AS DOUBLE) / CAST({total} AS DOUBLE))"
    return f"IF({total} > 0, {parts}, NULL)"


# --- what a row was to the fit --------------------------------------------------------------------


def role(roles: Roles, valid: str, label: str, split: str, hashed: str) -> str:
    """As the column `split` has it. hashed: the hash of the id, where rows are split by it."""
    if roles.layout is None:
        return "CAST(NULL AS STRING)"
    usable = f"{valid} AND {has_label(roles.layout, label)}"
    if roles.split is None:
        return f"IF({usable}, '{FIT}', '{NONE}')"
    if isinstance(roles.split, ColumnSplit):
        fit, out = (_equal(split, value) for value in (roles.split.fit, roles.split.holdout))
    else:
        assert isinstance(roles.split, HashSplit)
        bound = int(exact(roles.split.fraction) * 2**64 // 1) - 2**63
        out = f"({hashed} ^ shiftleft({whole(1)}, 63)) < CAST('{bound}' AS BIGINT)"
        fit = f"NOT ({out})"
    cases = f"WHEN {fit} THEN '{FIT}' WHEN {out} THEN '{HOLDOUT}'"
    return f"CASE WHEN NOT ({usable}) THEN '{NONE}' {cases} ELSE '{NONE}' END"


def _equal(column: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"coalesce({column} = {str(value).lower()}, false)"
    literal = text(value) if isinstance(value, str) else repr(value)
    return f"coalesce({column} = {literal}, false)"


def has_label(layout: Layout, label: str) -> str:
    """Whether a row has a label that can be used."""
    d = layout.n_classes
    if layout.label == "name":
        names = ", ".join(map(text, layout.columns.classes or ()))
        return f"coalesce(CAST({label} AS STRING) IN ({names}), false)"
    if layout.label == "vector":
        array = f"CAST({label} AS ARRAY<DOUBLE>)"
        usable = on_grid(array, d)
        if layout.binary:
            total = f"aggregate({grid(array, 'array')}, {whole(0)}, (s, x) -> s + x)"
            usable += f" AND abs({total} - {ONE}) <= {SUM_TOLERANCE}"
        return f"({usable})"
    number = f"CAST({label} AS DOUBLE)"
    return f"coalesce({number} >= 0 AND {number} < {d} AND {number} = floor({number}), false)"


# --- the hash that splits rows --------------------------------------------------------------------


def hash_steps(split: HashSplit, kind: pa.DataType, id: str) -> list[str]:
    """The hash of an id, step by step; each has its number, as `_h2`, and is made of others."""
    seed = int.from_bytes(hashlib.blake2b(split.salt.encode(), digest_size=8).digest(), "little")
    if pa.types.is_integer(kind):
        first = f"coalesce(CAST({id} AS BIGINT), {whole(0)}) ^ {whole(seed)}"
    else:
        data = f"encode(coalesce({id}, ''), 'utf-8')"
        first = f"{_fnv(data, seed)} ^ CAST(octet_length({data}) AS BIGINT)"
    return [
        first,
        _plus("_h0", GOLDEN),
        "_h1 ^ shiftrightunsigned(_h1, 30)",
        _times("_h2", FIRST),
        "_h3 ^ shiftrightunsigned(_h3, 27)",
        _times("_h4", SECOND),
        "_h5 ^ shiftrightunsigned(_h5, 31)",
    ]


HASH = "_h6"  # the last of them


def _fnv(data: str, seed: int) -> str:
    """FNV-1a over the bytes."""
    byte = f"CAST(conv(hex(substring({data}, i, 1)), 16, 10) AS BIGINT)"
    step = _times(f"(h ^ {byte})", PRIME)
    bytes_ = f"sequence(1, octet_length({data}))"
    hashed = f"aggregate({bytes_}, {whole(seed)}, (h, i) -> {step})"
    return f"IF(octet_length({data}) = 0, {whole(seed)}, {hashed})"


def _plus(x: str, constant: int) -> str:
    """Sums modulo 2^64: by halves, for Spark refuses what is too large."""
    low = f"(({x} & {LOW}) + {constant & LOW})"
    high = f"(shiftrightunsigned({x}, 32) + {constant >> 32} + shiftrightunsigned({low}, 32))"
    return f"(shiftleft({high}, 32) | ({low} & {LOW}))"


def _times(x: str, constant: int) -> str:
    """Products modulo 2^64: digit by digit of 16 bits, the highest first, and by halves."""
    digits = wholes([(constant >> shift) & 0xFFFF for shift in (48, 32, 16, 0)])
    low = f"((shiftleft(r, 16) & {LOW}) + ({x} & {LOW}) * b)"
    high = f"(shiftrightunsigned(r, 16) & {LOW}) + shiftrightunsigned({x}, 32) * b"
    step = f"shiftleft({high} + shiftrightunsigned({low}, 32), 32) | ({low} & {LOW})"
    return f"aggregate({digits}, {whole(0)}, (r, b) -> {step})"
