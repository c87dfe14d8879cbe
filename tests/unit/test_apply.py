"""Apply: every kind of data comes back as what it was, with the new columns and nothing lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core.columns import Columns, plan
from redcal_spark.core.reading import BadRows
from redcal_spark.errors import InputError
from tests.helpers import refused

# Rows 0 and 1: the models disagree, and model 2 is right. Rows 2 and 3: they agree.
ONE_SIDED = [[1.0, 0.0], [1.0, 0.0], [0.3, 0.7], [0.25, 0.75]]
OTHER = [[0.0, 1.0], [0.0, 1.0], [0.1, 0.9], [0.0, 1.0]]
LABELS = [1, 1, 1, 1]
PATCHED = [[0.0, 1.0], [0.0, 1.0], [0.3, 0.7], [0.25, 0.75]]
LOSSES = {"act": {"costs": [[0, 1], [1, 0]], "actions": ["wait", "treat"]}}
NEW = [
    *("model_1_reconciled", "model_2_reconciled", "act_1_before", "act_2_before"),
    *("act_1_after", "act_2_after", "act_agree", "touched"),
]


def reconciler(**options: Any) -> Reconciler:
    given: dict[str, Any] = {"losses": LOSSES, "alpha": 0.1, "eta": 0.25} | options
    return Reconciler(**given)


@pytest.fixture(scope="module")
def pair() -> ReconciledPair:
    found = reconciler().fit(np.array(ONE_SIDED), np.array(OTHER), LABELS)
    assert [(p.model, p.rows) for p in found.log] == [(1, 2)]
    return found


def check_new_columns(found: dict[str, Any]) -> None:
    assert [list(row) for row in found["model_1_reconciled"]] == PATCHED
    assert [list(row) for row in found["model_2_reconciled"]] == OTHER
    check_flags(found)


def check_flags(found: dict[str, Any]) -> None:
    assert found["act_1_before"] == ["wait", "wait", "treat", "treat"]
    assert found["act_1_after"] == found["act_2_before"] == found["act_2_after"] == ["treat"] * 4
    assert found["act_agree"] == [True] * 4
    assert found["touched"] == [True, True, False, False]


def test_numpy(pair: ReconciledPair) -> None:
    one = np.array(ONE_SIDED)
    new1, new2 = pair.apply(one, np.array(OTHER))
    assert (new1.tolist(), new2.tolist()) == (PATCHED, OTHER)
    assert one.tolist() == ONE_SIDED
    assert all(type(x) is np.ndarray and x.dtype == np.float64 for x in (new1, new2))


def test_python_lists(pair: ReconciledPair) -> None:
    new1, new2 = pair.apply(ONE_SIDED, OTHER)
    assert (new1.tolist(), new2.tolist()) == (PATCHED, OTHER)


def test_pandas_keeps_index_and_columns(pair: ReconciledPair) -> None:
    frame = pd.DataFrame(
        {"note": [{"x": 1}, "a", 3, None], "model_1": ONE_SIDED, "model_2": OTHER},
        index=["d", "b", "c", "b"],
    )
    before = frame.copy(deep=True)
    done = pair.apply(frame)
    assert isinstance(done, pd.DataFrame)
    assert list(done.columns) == [*frame.columns, *NEW]
    assert list(done.index) == ["d", "b", "c", "b"]
    pd.testing.assert_frame_equal(done[list(frame.columns)], before)
    pd.testing.assert_frame_equal(frame, before)
    check_new_columns({name: done[name].tolist() for name in NEW})


def test_pandas_series_stand_for_arrays(pair: ReconciledPair) -> None:
    frame = pd.DataFrame({"model_1": ONE_SIDED, "model_2": OTHER, "label": LABELS})
    assert reconciler().fit(frame.model_1, frame.model_2, frame.label).log == pair.log
    new1, new2 = pair.apply(frame.model_1, frame.model_2)
    assert ([list(r) for r in new1], [list(r) for r in new2]) == (PATCHED, OTHER)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float64()),
        pa.list_(pa.float64(), 2),
        pa.large_list(pa.float64()),
        pa.list_(pa.float32()),
        pa.list_(pa.decimal128(5, 2)),
    ],
    ids=str,
)
def test_arrow(pair: ReconciledPair, kind: pa.DataType) -> None:
    exact = [[1.0, 0.0], [1.0, 0.0], [0.25, 0.75], [0.25, 0.75]]  # in every type
    arrays = {"model_1": exact, "model_2": [[0.0, 1.0]] * 4}
    data: dict[str, Any] = {
        name: pa.array(rows, pa.list_(pa.float64())).cast(kind)
        if not pa.types.is_decimal(kind.value_type)
        else decimals(rows, kind)
        for name, rows in arrays.items()
    }
    table = pa.table({"id": ["a", "b", "c", "d"]} | data)
    done = pair.apply(table)
    assert isinstance(done, pa.Table)
    assert done.column_names == [*table.column_names, *NEW]
    assert done.select(table.column_names).equals(table)
    new = done["model_1_reconciled"]
    assert new.type.value_type == pa.float64()
    assert new.to_pylist() == [[0.0, 1.0], [0.0, 1.0], [0.25, 0.75], [0.25, 0.75]]
    check_flags(done.select(NEW[2:]).to_pydict())


def decimals(rows: list[list[float]], kind: pa.DataType) -> pa.Array:
    flat = pa.array([x for row in rows for x in row]).cast(kind.value_type)
    return pa.ListArray.from_arrays(pa.array(range(0, len(flat) + 1, 2), pa.int32()), flat)


def test_a_sliced_and_chunked_table(pair: ReconciledPair) -> None:
    table = pa.table({"model_1": ONE_SIDED, "model_2": OTHER})
    padded = pa.concat_tables([table.slice(2), table, table.slice(3)])
    done = pair.apply(padded.slice(2, 4))
    check_new_columns(done.select(NEW).to_pydict())


def test_a_record_batch_comes_back_as_one(pair: ReconciledPair) -> None:
    batch = pa.RecordBatch.from_pydict({"model_1": ONE_SIDED, "model_2": OTHER})
    done = pair.apply(batch)
    assert isinstance(done, pa.RecordBatch)
    check_new_columns(done.select(NEW).to_pydict())


@pytest.mark.parametrize("kind", ["table", "batch", "numpy"])
def test_no_rows_give_no_rows(pair: ReconciledPair, kind: str) -> None:
    batch = pa.RecordBatch.from_pydict({"model_1": ONE_SIDED, "model_2": OTHER}).slice(0, 0)
    empty: Any = {
        "table": lambda: pair.apply(pa.Table.from_batches([batch])).num_rows,
        "batch": lambda: pair.apply(batch).num_rows,
        "numpy": lambda: len(pair.apply(np.empty((0, 2)), np.empty((0, 2)))[0]),
    }
    assert empty[kind]() == 0


def test_separate_columns() -> None:
    names: dict[str, Any] = {"model_1": ["a0", "a1"], "model_2": ["b0", "b1"]}
    one, two = np.array(ONE_SIDED), np.array(OTHER)
    frame = pd.DataFrame({"a0": one[:, 0], "a1": one[:, 1], "b0": two[:, 0], "b1": two[:, 1]})
    split = reconciler(**names).fit(frame.assign(label=LABELS))
    done = split.apply(frame)
    new = [f"{name}_reconciled" for name in ("a0", "a1", "b0", "b1")]
    assert list(done.columns) == [*frame.columns, *new, *NEW[2:]]
    assert done[new[:2]].to_numpy().tolist() == PATCHED
    assert done[new[2:]].to_numpy().tolist() == OTHER
    check_flags({name: done[name].tolist() for name in NEW[2:]})
    # scores that come model by model are those of any other pair
    frames = frame[["a0", "a1"]], frame[["b0", "b1"]]
    for scores in ((one, two), frames, (ONE_SIDED, OTHER)):
        assert [new.tolist() for new in split.apply(*scores)] == [PATCHED, OTHER]
    rows = one[0], two[0]
    for row in (rows, (ONE_SIDED[0], OTHER[0]), tuple(each.iloc[0] for each in frames)):
        assert [new.tolist() for new in split.apply(*row)] == [PATCHED[0], OTHER[0]]
        assert split.explain(*row) == split.explain(*rows)
    assert split.explain(*rows).sentences() == split.explain(frame.iloc[0]).sentences()


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(5, 2)])
def test_one_column_of_probabilities(kind: pa.DataType) -> None:
    p1, p2 = [0.0, 0.0, 0.75, 0.75], [1.0, 1.0, 0.25 + 0.5, 1.0]
    data = {"model_1": pa.array(p1).cast(kind), "model_2": pa.array(p2).cast(kind)}
    binary = reconciler().fit(pa.table(data | {"label": LABELS}))
    done = binary.apply(pa.table(data))
    assert done["model_1_reconciled"].type == pa.float64()
    assert done["model_1_reconciled"].to_pylist() == [1.0, 1.0, 0.75, 0.75]
    assert done["model_2_reconciled"].to_pylist() == p2
    check_flags(done.select(NEW[2:]).to_pydict())


def test_labels_are_not_needed_and_not_looked_at(pair: ReconciledPair) -> None:
    table = pa.table({"model_1": ONE_SIDED, "model_2": OTHER, "label": ["no", "such", "class", ""]})
    check_new_columns(pair.apply(table).select(NEW).to_pydict())


# Bad rows

BAD = {
    "model_1": [[1.0, 0.0], None, [0.3, 0.7], [float("nan"), 1.0], [0.5], [7.0, 0.0]],
    "model_2": [[0.0, 1.0]] * 6,
}


def skipped(pair: ReconciledPair, data: dict[str, Any]) -> tuple[Any, BadRows]:
    batch = pa.RecordBatch.from_pydict(data)
    layout = plan(batch.schema, Columns(), "the data", 2, batch, labels=False)
    problems = BadRows()
    return pair.apply_batch(batch, layout, problems=problems, skip=True), problems


def test_bad_rows_pass_through_untouched(pair: ReconciledPair) -> None:
    done, problems = skipped(pair, BAD)
    found = done.to_pydict()
    assert found["valid"] == [True, False, True, False, False, False]
    assert found["touched"] == [True, False, False, False, False, False]
    new = found["model_1_reconciled"]
    assert new[:3] == [[0.0, 1.0], None, [0.3, 0.7]]
    assert np.isnan(new[3][0]) and new[3][1] == 1.0
    assert new[4:] == [[0.5], [7.0, 0.0]]
    assert found["model_2_reconciled"] == BAD["model_2"]
    for name in ("act_1_before", "act_2_before", "act_1_after", "act_2_after", "act_agree"):
        assert [value is None for value in found[name]] == [False, True, False, True, True, True]
    assert problems.lines() == [
        "column 'model_1': 1 row with null; first: row 1: None",
        "column 'model_1': 1 row without exactly 2 values; first: row 4: [0.5]",
        "column 'model_1': 1 row with NaN or infinity; first: row 3: [nan, 1.0]",
        "column 'model_1': 1 row with a value outside [0, 1]; first: row 5: [7.0, 0.0]",
    ]


def test_bad_rows_of_one_column_pass_through_too() -> None:
    p1, p2 = [0.0, 0.0, 0.75, 0.75], [1.0] * 4
    binary = reconciler().fit(p1, p2, LABELS)
    done, _ = skipped(binary, {"model_1": [0.0, None, 1.5, 0.75], "model_2": [1.0] * 4})
    found = done.to_pydict()
    assert found["model_1_reconciled"] == [1.0, None, 1.5, 0.75]
    assert found["valid"] == [True, False, False, True]
    assert found["act_1_after"] == ["treat", None, None, "treat"]


@pytest.mark.parametrize("kind", ["numpy", "pandas", "arrow"])
def test_bad_rows_are_refused_unless_skipped(pair: ReconciledPair, kind: str) -> None:
    rows = [*ONE_SIDED[:3], [float("nan"), 1.0]]
    data: Any = {"model_1": rows, "model_2": OTHER}
    action: Any = {
        "numpy": lambda: pair.apply(np.array(rows), np.array(OTHER)),
        "pandas": lambda: pair.apply(pd.DataFrame(data)),
        "arrow": lambda: pair.apply(pa.table(data)),
    }
    # pandas makes no difference between NaN and null.
    line = {"pandas": "with a null among its values; first: row 3: [None, 1.0]"}.get(
        kind, "with NaN or infinity; first: row 3: [nan, 1.0]"
    )
    assert refused(InputError, action[kind]).startswith(
        f"the data has rows that cannot be used:\n  column 'model_1': 1 row {line}\n"
        "  (on_bad_rows='skip' passes such rows through untouched)"
    )


# Names


def test_a_column_that_exists_is_never_replaced(pair: ReconciledPair) -> None:
    table = pa.table({"model_1": ONE_SIDED, "model_2": OTHER, "touched": [1, 2, 3, 4]})
    assert refused(InputError, lambda: pair.apply(table)) == (
        "the data has already the column 'touched'; name the new ones otherwise, for "
        "instance with suffix='_v2'"
    )
    again = pair.apply(table.drop_columns("touched"))
    found = refused(InputError, lambda: pair.apply(again))
    assert found.startswith(
        "the data has already the columns 'model_1_reconciled', 'model_2_reconciled', "
    )


def test_a_suffix_is_the_way_out(pair: ReconciledPair) -> None:
    table = pa.table({"model_1": ONE_SIDED, "model_2": OTHER})
    once = pair.apply(table)
    twice = pair.apply(once, suffix="_v2")
    added = [name for name in twice.column_names if name not in once.column_names]
    assert added == [
        *("model_1_v2", "model_2_v2", "act_1_before_v2", "act_2_before_v2"),
        *("act_1_after_v2", "act_2_after_v2", "act_agree_v2", "touched_v2"),
    ]
    assert twice["model_1_v2"].to_pylist() == PATCHED


def test_a_score_column_with_the_name_of_a_new_one_is_refused() -> None:
    costs = [[0, 1], [1, 0]]
    clash = Reconciler(losses={"t": costs}, alpha=0.1, eta=0.1, model_1="m", model_2="t_agree").fit(
        pa.table({"m": ONE_SIDED, "t_agree": OTHER, "label": LABELS})
    )
    found = refused(InputError, lambda: clash.apply(pa.table({"m": ONE_SIDED, "t_agree": OTHER})))
    assert found.startswith("the data has already the column 't_agree'; name the new ones")


def test_other_forms_of_scores_than_the_fitted_are_refused(pair: ReconciledPair) -> None:
    assert refused(InputError, lambda: pair.apply([0.5], [0.5])) == (
        "the pair was fitted on scores given as arrays of 2 classes; these are not"
    )
    binary = reconciler().fit([0.0, 0.0], [1.0, 1.0], [1, 1])
    assert refused(InputError, lambda: binary.apply(ONE_SIDED, OTHER)) == (
        "the pair was fitted on scores given as one column P(class 1); these are not"
    )
    three = [[0.2, 0.3, 0.5]]
    assert refused(InputError, lambda: pair.apply(three, three)) == (
        "the data: column 'model_1' has 3 classes, losses and `classes` have 2"
    )
