"""The pages in docs/reference: their code is taken from them and run against the package."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core.splits import HashSplit, check_split, hash_column
from redcal_spark.errors import InputError
from tests.e2e.work import CLASSES, LOSSES, scores
from tests.helpers import DRAWN, batches_of, fit, names_of, quietly, refused
from tests.oracle import ALGORITHMS, Problem
from tests.problems import random_problem, seeded_problems

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def code_of(page: str) -> tuple[str, dict[str, Any]]:
    """The one block of Python of a page, and what it defines."""
    [code] = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)
    return code, names


def imported(code: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


# --- split.md -------------------------------------------------------------------------------------

IDS: dict[str, tuple[list[Any], pa.DataType]] = {
    "tinyint": ([0, 1, -1, 127, -128], pa.int8()),
    "int": ([0, 7, -7, 2**31 - 1, -(2**31)], pa.int32()),
    "bigint": ([0, 7, -7, 2**63 - 1, -(2**63), 123456789], pa.int64()),
    "unsigned": ([0, 7, 2**63, 2**64 - 1], pa.uint64()),
    "text": (["", "7", "-7", "a", "A", " a", "é", "e\u0301", "日本", "🜁", "x" * 999], pa.string()),
    "large text": (["", "case-1", "ß"], pa.large_string()),
    "view": (["", "case-1", "longer than twelve bytes"], pa.string_view()),
    "category": (["u", "v", "u"], pa.dictionary(pa.int8(), pa.string())),
    "category of numbers": ([7, -7, 7], pa.dictionary(pa.int8(), pa.int64())),
}


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("salt", ["", "tune", "Größe"])
def test_the_hash_of_every_type(kind: str, salt: str) -> None:
    _, page = code_of("split.md")
    values, type_ = IDS[kind]
    found = hash_column(pa.array(values, type_), "id", salt).tolist()
    assert found == [page["split_hash"](value, salt) for value in values]


def test_the_hash_never_changes() -> None:
    """As the first release had them: rows that it held out must stay so."""
    _, page = code_of("split.md")
    for value, salt, known in (
        (0, "", 0x49DF6BF9D4874F40),
        (-1, "", 0x523988D68E1F17E2),
        ("case-1", "", 0xABBDB2E258034374),
        ("日本", "x", 0x0CB4DE66FF13A050),
    ):
        assert page["split_hash"](value, salt) == known, (value, salt)


ids = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1) | st.lists(
    st.text(st.characters(exclude_categories=["Cs"])), min_size=1
)


@DRAWN
@given(ids, st.floats(0, 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
def test_the_rows_that_are_held_out(values: list[Any], fraction: float, salt: str) -> None:
    _, page = code_of("split.md")
    fit, holdout = HashSplit("id", fraction, salt).masks(pa.record_batch({"id": pa.array(values)}))
    expected = [page["is_holdout"](value, fraction, salt) for value in values]
    assert holdout.tolist() == expected
    assert (~fit).tolist() == expected


@pytest.mark.parametrize("fraction", [0.1, 0.5, 1 / 3, 1e-5, 0.0, 1.0])
def test_many_rows_by_the_decimal_that_was_written(fraction: float) -> None:
    _, page = code_of("split.md")
    values = list(range(-20_000, 20_000))
    batch = pa.record_batch({"id": pa.array(values)})
    _, holdout = HashSplit("id", fraction).masks(batch)
    assert holdout.tolist() == [page["is_holdout"](value, fraction) for value in values]
    assert abs(sum(holdout.tolist()) / 40_000 - fraction) < 0.01  # 4 standard errors


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.decimal128(10, 2), pa.float64(), pa.date32(), pa.timestamp("us", "UTC")),
        *(pa.bool_(), pa.binary()),
    ],
)
def test_other_types_are_refused_as_the_page_says(type_: pa.DataType) -> None:
    schema = pa.schema([("id", type_)])
    told = refused(InputError, lambda: check_split(HashSplit("id", 0.5), schema, "the data"))
    assert told == (
        f"id column 'id' has type {type_}; a split by hash needs integers or text: cast it to text"
    )


def test_the_reference_of_the_split_needs_the_standard_library_alone() -> None:
    code, _ = code_of("split.md")
    assert imported(code) == {"hashlib", "fractions"}


# --- replay.md ------------------------------------------------------------------------------------


def check_replay(problem: Problem) -> int:
    """The page's replay of every row from the file alone, against the package; returns how many
    scores it changed."""
    _, page = code_of("replay.md")
    with quietly():
        pair = fit(problem)
        table = pair.apply(pa.Table.from_batches(batches_of(problem, ())))
    model = json.loads(json.dumps(pair.to_json()))
    changed = 0
    names = names_of(problem)
    for row in table.to_pylist():
        given = [row[name] for name in names]
        new = page["replay"](model, *given)
        assert new == [row[f"{name}_reconciled"] for name in names]
        for loss in model["losses"]:
            for i, values in enumerate((*given, *new)):
                when, number = ("before", "after")[i // len(names)], i % len(names) + 1
                action = page["best_response"](loss, page["on_grid"](model, values))
                assert loss["actions"][action] == row[f"{loss['name']}_{number}_{when}"]
        moved = [a != b for a, b in zip(given, new, strict=True)]
        assert row["touched"] or not any(moved)
        changed += sum(moved)
    return changed


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("form", ["one column", "classes"])
def test_the_page_replays_any_model(algorithm: str, form: str) -> None:
    given: dict[str, Any] = {"algorithm": algorithm, "binary": form == "one column"}
    changed = [check_replay(random_problem(seed, **given)) for seed in range(25)]
    assert sum(map(bool, changed)) >= 8  # most do something


def test_the_page_replays_models_of_several_losses() -> None:
    seen, seed = 0, 0
    while seen < 10:
        problem = random_problem(seed, algorithm="dc_then_redcal")
        seed += 1
        if len(problem.losses or ()) > 1:
            seen += bool(check_replay(problem))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_page_replays_more_than_two_models(algorithm: str) -> None:
    given: dict[str, Any] = {"algorithm": algorithm, "models": 4, "max_n": 30, "max_d": 5}
    changed = [check_replay(random_problem(seed, **given)) for seed in range(12)]
    assert sum(map(bool, changed)) >= 5


def test_the_page_replays_a_file_of_two_models_without_other() -> None:
    _, page = code_of("replay.md")
    known = json.loads(Path(__file__).with_name("model_version_1.json").read_text("utf-8"))
    pair = ReconciledPair.from_json(known["model"])
    old = pair.to_json(2)
    assert "other" not in old["log"][0]
    for row in zip(*known["scores"], strict=True):
        assert page["replay"](old, *row) == page["replay"](pair.to_json(), *row)


@pytest.mark.slow
@settings(DRAWN, max_examples=400)
@given(seeded_problems())
def test_the_page_replays_drawn_models(problem: Problem) -> None:
    check_replay(problem)


def test_the_page_replays_a_model_of_real_size(tmp_path: Path) -> None:
    """Many patches and rounds, from a file."""
    _, page = code_of("replay.md")
    table = scores(2_000, seed=11)
    losses = {name: loss["costs"] for name, loss in LOSSES.items()}
    columns: Any = {"model_1": "a", "model_2": "b", "label": "outcome", "classes": CLASSES}
    made = Reconciler(losses=losses, alpha=0.002, eta=0.004, **columns)
    pair = made.fit(table)
    assert pair.log.rounds > 5
    pair.save(tmp_path / "model.json")
    model = json.loads((tmp_path / "model.json").read_text("utf-8"))
    newer = scores(500, seed=12)
    found = pair.apply(newer)
    for row in found.to_pylist():
        assert page["replay"](model, row["a"], row["b"]) == [
            row["a_reconciled"],
            row["b_reconciled"],
        ]
    assert sum(found["touched"].to_pylist()) > 20


def test_the_replay_needs_the_standard_library_alone() -> None:
    code, _ = code_of("replay.md")
    assert imported(code) == {"fractions"}
    assert len([line for line in code.splitlines() if line.strip()]) < 50


def test_the_page_states_what_was_measured() -> None:
    """The numbers are those of the file, which says when, by which commit and on what machine."""
    found = json.loads((PAGES.parent / "results" / "normalise.json").read_text("utf-8"))
    assert {"date", "commit", "machine"} <= set(found)
    total = found["totals"]
    drawn, round_ = total["drawn"], total["round"]
    sums = [one[key] for one in found["cases"] for key in ("smallest_sum", "largest_sum")]
    assert (min(sums), max(sums)) == (total["smallest_sum"], total["largest_sum"])
    both = {key: drawn[key] + round_[key] for key in round_}
    page = " ".join((PAGES / "replay.md").read_text("utf-8").split())
    for said in (
        f"sums went from {min(sums):.3f} to {max(sums):.3f}",
        f"of {found['date']})",
        f"In {both['decisions']:,} decisions",
        f"gave another action {both['grid']} times",
        f"in float64 did {both['float64']} times, and {both['float64_ties']} of these are",
        f"undivided, did {both['float64_undivided']} times",
    ):
        assert said in page, said
