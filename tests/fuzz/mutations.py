"""Ways to spoil something that was fine: trees of plain data, texts, bytes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Path = tuple[str | int, ...]

# Words that mean something to someone on the way: YAML, paths, SQL, numbers, encodings.
WORDS = [
    "",
    " ",
    "~",
    "null",
    "NaN",
    ".inf",
    "-.inf",
    "1e400",
    "-0.0",
    "0x10",
    "1_000",
    "9" * 400,
    "auto",
    "true",
    "<<",
    "*a",
    "&a",
    "!!python/object/apply:os.system ['true']",
    "!!binary aGk=",
    "${HOME}",
    "${",
    "$${",
    "${NO_SUCH}",
    "..",
    "../../up",
    "/",
    "/dev/zero",
    "/proc/self/mem",
    "./",
    "a/../b",
    "a//b/",
    "a" * 300,
    "a/" * 3_000,
    "x[1]",
    "a%41b",
    "a#b?c",
    "a\\b",
    "a^b|c",
    "a.b.c",
    "`a`.`b`",
    "s3://bucket/key",
    "file:///tmp/x",
    'a"b',
    "a'b",
    "a`b",
    "a;b",
    "a\nb",
    "a\0b",
    "a,b",
    "a\tb",
    "a.b",
    "a b=c",
    "é",
    "\u202e",
    "\ufeff",
    "\ud800",
    "💥",
    "%2e%2e%2f",
    "-1",
    "1",
    "2026-01-31",
    "run_id",
    "touched",
    "data/scores",
    "out/result",
]
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    3,
    26,
    27,
    2**31,
    2**53,
    2**63,
    2**64,
    10**12 + 1,
    10**30,
    -(10**30),
    10**400,
    0.0,
    -0.0,
    0.5,
    1.0,
    1e-300,
    5e-324,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    True,
    False,
    None,
]


def texts(most: int = 40) -> SearchStrategy[str]:
    return st.sampled_from(WORDS) | st.text(max_size=most)


NAMES = ["case_id", "outcome", "fold", "a_0", "b_2", "scores_a", "model_notes", "cohort"]
ROOM = [
    "scores.csv",
    "data/scores",
    "data",
    "out",
    ".",
    "out/demo/patients",
    "c.yaml",
    "new/deep/x",
]


def meant_for(key: str) -> SearchStrategy[Any]:
    """Values that make sense, or nearly, under a key of this name; or any."""
    if key in ("table", "patches", "history", "metrics", "runs", "report", "scratch"):
        fit: SearchStrategy[Any] = st.sampled_from(ROOM) | st.sampled_from(WORDS)
    elif key in ("id", "label", "model_1", "model_2", "partition_by", "cluster_by", "classes"):
        name = st.sampled_from(NAMES) | st.sampled_from(WORDS)
        fit = name | st.lists(name, max_size=4)
    elif key == "split":
        value = st.sampled_from(["fit", "train", 1, True, None, 2**70, "1"])
        fit = st.fixed_dictionaries(
            {"column": st.sampled_from(NAMES), "fit": value, "holdout": value}
        ) | st.fixed_dictionaries({"holdout_fraction": st.sampled_from(NUMBERS), "salt": texts()})
    elif key in ("mode", "schema", "on_bad_rows", "join", "algorithm", "name"):
        known = [
            "merge",
            "append",
            "evolve",
            "skip",
            "inner",
            "reconcile",
            "dc_then_redcal",
            "spark",
        ]
        fit = st.sampled_from([*known, "decision_calibration", "local"])
    elif key in ("suffix", "separator", "version"):
        fit = st.sampled_from([*WORDS, 0, 1, 10**30, "2026-01-01", "0001-01-01", "9999-12-31T23Z"])
    else:
        fit = st.sampled_from(NUMBERS)
    return fit | fit | leaves()


def leaves() -> SearchStrategy[Any]:
    """One plain value, mostly of those that mean something to someone."""
    known = st.sampled_from(NUMBERS) | st.sampled_from(WORDS)
    return known | known | st.text(max_size=40) | st.integers() | st.floats()


def values() -> SearchStrategy[Any]:
    """Plain values of every kind."""
    return st.recursive(
        leaves(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(12), inner, max_size=4),
        max_leaves=12,
    )


def places(tree: Any, path: Path = ()) -> list[Path]:
    """Every place in a tree, the whole of it first."""
    found = [path]
    if isinstance(tree, dict):
        parts: Any = tree.items()
    else:
        parts = enumerate(tree) if isinstance(tree, list) else ()
    for key, part in parts:
        found += places(part, (*path, key))
    return found


def at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def _near(draw: DrawFn, value: Any) -> Any:
    """A value of the same kind, so that it is looked at more closely."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw(st.sampled_from([value + 1, value - 1, -value, 2 * value, value + 2**40, 0]))
    if isinstance(value, float):
        return draw(st.sampled_from([-value, value * 1.0000001, value / 3, value * 1e300, 0.5]))
    if isinstance(value, str):
        return draw(
            st.sampled_from([value + "x", value[:-1], value.upper(), value * 2, f" {value}"])
        )
    if isinstance(value, list):
        return draw(st.permutations(value)) if len(value) < 20 else value[::-1]
    return value


@st.composite
def spoiled_tree(draw: DrawFn, tree: Any, most: int = 4) -> Any:
    """A tree with some of its places changed, removed, swapped or multiplied."""
    tree = copy.deepcopy(tree)
    for _ in range(min(most, draw(st.sampled_from([1, 1, 1, 2, 4])))):
        found = places(tree)
        if len(found) < 2:
            return tree
        path = draw(st.sampled_from(found[1:]))
        inside, key = at(tree, path[:-1]), path[-1]
        kinds = ["near", "near", "leaf", "leaf", "tree", "cut", "add", "swap", "wrap", "many"]
        match draw(st.sampled_from(kinds)):
            case "near":
                inside[key] = draw(_near(inside[key]))
            case "leaf":
                inside[key] = draw(leaves())
            case "tree":
                inside[key] = draw(values())
            case "cut":
                del inside[key]
            case "add":
                new = draw(values())
                if isinstance(inside, dict):
                    inside[draw(texts(12))] = new
                else:
                    inside.insert(draw(st.integers(0, len(inside))), new)
            case "swap":
                inside[key] = copy.deepcopy(at(tree, draw(st.sampled_from(found))))
            case "wrap":
                inside[key] = draw(st.sampled_from([[inside[key]], {"a": inside[key]}]))
            case "many":
                if isinstance(inside, list):
                    inside[:] = (inside * draw(st.sampled_from([2, 20, 500])))[:2_000]
    return tree


@st.composite
def spoiled_text(draw: DrawFn, text: str, words: Sequence[str] = WORDS, most: int = 4) -> str:
    """A text with characters or lines inserted, removed, repeated."""
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 1, 3, 20, 200]))
        new = draw(
            st.sampled_from(words)
            | st.text(max_size=5)
            | st.sampled_from([*"[]{}:,#&*!|>\"'%@`\t\n- "])
        )
        if draw(st.booleans()) and length:
            new = text[start : start + length] * draw(st.integers(2, 4))
        text = text[:start] + new + text[start + length :]
    return text


@st.composite
def spoiled_bytes(draw: DrawFn, data: bytes, most: int = 6, tail: bool = False) -> bytes:
    """Bytes with bits flipped, pieces cut, repeated, overwritten. tail: mostly near the end."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, most))):
        size = len(found)
        if not size:
            break
        low = max(0, size - 2_000) if tail and draw(st.integers(0, 3)) else 0
        place = draw(st.integers(low, size - 1))
        length = draw(st.sampled_from([1, 1, 2, 4, 8, 100]))
        match draw(st.sampled_from(["bit", "bit", "bit", "byte", "cut", "repeat", "end", "fill"])):
            case "bit":
                found[place] ^= 1 << draw(st.integers(0, 7))
            case "byte":
                found[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 34, 44, 10]))
            case "cut":
                del found[place : place + length]
            case "repeat":
                found[place:place] = found[place : place + length] * draw(st.sampled_from([1, 50]))
            case "end":
                del found[place:]
            case "fill":
                new = draw(st.binary(min_size=1, max_size=8))
                found[place : place + len(new)] = new
    return bytes(found)
