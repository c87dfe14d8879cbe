"""User errors: each names the column, says how many rows are wrong and shows the first few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from redcal_spark import Reconciler
from redcal_spark.errors import InputError, ScoreWarning, UsageError
from tests import problems
from tests.helpers import gather, refused
from tests.problems import ZERO_ONE

HOW = "\n  (on_bad_rows='skip' passes such rows through untouched)"
GOOD = [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.75, 0.25]]
LABELS = [0, 1, 0, 1, 0]


def reconciler(**options: Any) -> Reconciler:
    given: dict[str, Any] = {"losses": ZERO_ONE, "alpha": 0.1, "eta": 0.1} | options
    return Reconciler(**given)


def table(**columns: Any) -> pa.Table:
    return pa.table({"model_1": GOOD, "model_2": GOOD, "label": LABELS} | columns)


def message(data: Any, **options: Any) -> str:
    return refused(InputError, lambda: reconciler(**options).fit(data))


def told(*lines: str) -> str:
    return "\n  ".join(["the data has rows that cannot be used:", *lines]) + HOW


def changed(*rows: Any) -> list[Any]:
    """The good rows with these at the end."""
    return [*GOOD[: len(GOOD) - len(rows)], *rows]


NAN, INF = float("nan"), float("inf")
SCORES: list[tuple[list[Any], str]] = [
    ([[NAN, 0.5]], "1 row with NaN or infinity; first: row 4: [nan, 0.5]"),
    ([[0.5, INF]], "1 row with NaN or infinity; first: row 4: [0.5, inf]"),
    ([[-INF, 1.0]], "1 row with NaN or infinity; first: row 4: [-inf, 1.0]"),
    ([None, None], "2 rows with null; first: row 3: None, row 4: None"),
    ([[None, 1.0]], "1 row with a null among its values; first: row 4: [None, 1.0]"),
    ([[-1e-3, 1.0]], "1 row with a value outside [0, 1]; first: row 4: [-0.001, 1.0]"),
    ([[0.0, 1.001]], "1 row with a value outside [0, 1]; first: row 4: [0.0, 1.001]"),
    ([[0.5]], "1 row without exactly 2 values; first: row 4: [0.5]"),
    (
        [[0.2, 0.3, 0.5], []],
        "2 rows without exactly 2 values; first: row 3: [0.2, 0.3, 0.5], row 4: []",
    ),
    (
        [[2.0, 0.0], [3.0, 0.0], [4.0, 0.0], [5.0, 0.0]],
        "4 rows with a value outside [0, 1]; "
        "first: row 1: [2.0, 0.0], row 2: [3.0, 0.0], row 3: [4.0, 0.0]",
    ),
]


@pytest.mark.parametrize("column", ["model_1", "model_2"])
@pytest.mark.parametrize(("rows", "line"), SCORES)
def test_scores_that_cannot_be_used(column: str, rows: list[Any], line: str) -> None:
    assert message(table(**{column: changed(*rows)})) == told(f"column {column!r}: {line}")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (None, "1 row with null; first: row 4: None"),
        (NAN, "1 row with NaN or infinity; first: row 4: nan"),
        (INF, "1 row with NaN or infinity; first: row 4: inf"),
        (-1e-3, "1 row with a value outside [0, 1]; first: row 4: -0.001"),
    ],
)
@pytest.mark.parametrize("form", ["binary", "columns"])
def test_single_columns_that_cannot_be_used(form: str, value: Any, line: str) -> None:
    bad, good = pa.array([0.5] * 4 + [value], pa.float64()), [0.5] * 5
    if form == "binary":
        data, options = table(model_1=good, model_2=bad), {}
        name = "model_2"
    else:
        data = table(a=good, b=good, c=good, e=bad)
        options, name = {"model_1": ["a", "b"], "model_2": ["c", "e"]}, "e"
    assert message(data, **options) == told(f"column {name!r}: {line}")


def test_what_is_within_half_a_grid_step_of_the_box_passes() -> None:
    near = [[-1e-17, 1.0 + 1e-15]] * 5
    assert reconciler().fit(table(model_1=near)).rows == 5


def test_rows_are_named_by_their_id_where_there_is_one() -> None:
    data = table(model_1=changed([0.5, 7.0]), case=["a", "b", "c", "d", "e"])
    assert message(data, id="case") == told(
        "column 'model_1': 1 row with a value outside [0, 1]; first: id 'e': [0.5, 7.0]"
    )


def test_rows_are_numbered_across_batches() -> None:
    data = pa.concat_tables([table(), table(model_2=changed([0.5, 7.0])), table()])
    assert message(data) == told(
        "column 'model_2': 1 row with a value outside [0, 1]; first: row 9: [0.5, 7.0]"
    )


def test_every_problem_is_told_at_once() -> None:
    data = table(
        model_1=changed(None, [2.0, 0.0]),
        model_2=[GOOD[0], [0.5], *GOOD[2:]],
        label=[0, 1, 5, 1, 0],
    )
    assert message(data) == told(
        "column 'model_1': 1 row with null; first: row 3: None",
        "column 'model_1': 1 row with a value outside [0, 1]; first: row 4: [2.0, 0.0]",
        "column 'model_2': 1 row without exactly 2 values; first: row 1: [0.5]",
        "column 'label': 1 row with a label that is no class index from 0 to 1; first: row 2: 5",
    )


def test_long_rows_are_shortened() -> None:
    rows = [[0.1] * 10] * 2
    data = pa.table({"model_1": rows, "model_2": [[0.1] * 10, [0.1] * 9 + [9.0]], "label": [0, 1]})
    model = Reconciler(algorithm="reconcile", alpha=0.1, eta=0.1)
    assert refused(InputError, lambda: model.fit(data)) == told(
        "column 'model_2': 1 row with a value outside [0, 1]; "
        "first: row 1: [0.1, 0.1, 0.1, 0.1, 0.1, ... 10 values]"
    )


# Labels

LABEL_ROWS: list[tuple[Any, str]] = [
    ([0, 1, 2, -1, 0], "2 rows with a label that is no class index from 0 to 1; "),
    ([0, 1, 0.5, 1, 0], "1 row with a label that is no class index from 0 to 1; "),
    ([0, 1, NAN, 1, 0], "1 row with a label that is no class index from 0 to 1; "),
]


@pytest.mark.parametrize(("labels", "line"), LABEL_ROWS)
def test_labels_out_of_range(labels: list[Any], line: str) -> None:
    found = message(table(label=pa.array(labels, from_pandas=False)))
    shown = {2: "row 2: 2, row 3: -1", 0.5: "row 2: 0.5"}.get(labels[2], "row 2: nan")
    assert found == told(f"column 'label': {line}first: {shown}")


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        (
            ["a", "b", "a", "b", "a"],
            "label column 'label' holds text; name the classes with `classes`; first: 'a'",
        ),
        (
            [np.datetime64("2020-01-01", "ns")] * 5,
            "label column 'label' has type timestamp[ns]; labels are class indices, class names, "
            "0/1 or arrays of numbers",
        ),
    ],
)
def test_labels_of_the_wrong_type(labels: list[Any], line: str) -> None:
    assert message(table(label=pa.array(labels))) == f"the data: {line}"


def test_a_class_name_that_is_not_among_the_classes() -> None:
    data = table(label=["well", "sick", "will", "sick", "well"])
    assert message(data, classes=["well", "sick"]) == told(
        "column 'label': 1 row with a label not among the 2 classes; first: row 2: will",
        "(the classes are 'well', 'sick', in these very letters)",
    )


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ([False, True, False, True, False], {}),
        ([0.0, 1.0, 0.0, 1.0, 0.0], {}),
        (pa.array(LABELS, pa.int8()), {}),
        (["w", "s", "w", "s", "w"], {"classes": ["w", "s"]}),
        (pa.array(["w", "s", "w", "s", "w"]).dictionary_encode(), {"classes": ["w", "s"]}),
        (pa.array(LABELS).dictionary_encode(), {}),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], {}),
        (pa.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]], pa.list_(pa.int32(), 2)), {}),
    ],
)
def test_every_way_to_write_a_label_gives_the_same_log(labels: Any, options: Any) -> None:
    other = [row[::-1] for row in GOOD]
    expected = reconciler().fit(table(model_2=other)).log
    assert expected
    assert reconciler(**options).fit(table(model_2=other, label=labels)).log == expected


def test_rows_without_a_label_are_not_fitted() -> None:
    data = table(label=pa.array([0, None, 0, None, 0]))
    assert reconciler().fit(data).rows == 3
    none = table(label=pa.array([None] * 5, pa.int64()))
    assert message(none) == (
        "the data has no rows to fit on: of 5 rows 5 have no label and 0 cannot be used"
    )


# Shapes and columns


def test_a_missing_column_and_what_is_there() -> None:
    found = message(table(), model_1="score", label="outcome")
    assert found == (
        "column 'score' not found in the data; it has: model_1, model_2, label\n"
        "column 'outcome' not found in the data; it has: model_1, model_2, label"
    )
    frame = pd.DataFrame({"p": [0.5], "q": [0.5], "label": [0]})
    assert message(frame, model_1="p", model_2="r") == (
        "column 'r' not found in the data; it has: p, q, label"
    )


def test_two_models_of_different_width() -> None:
    three = [[0.2, 0.3, 0.5]] * 5
    one = np.array(GOOD)
    model = Reconciler(algorithm="reconcile", alpha=0.1, eta=0.1)
    expected = "the data: the models have different numbers of classes: 2 and 3"
    assert refused(InputError, lambda: model.fit(one, np.array(three), LABELS)) == expected
    assert message(table(model_2=three)) == expected
    assert message(table(model_1=[0.5] * 5, model_2=three)) == (
        "the data: one model has one column P(class 1), the other 3 classes; give both in one form"
    )


def test_costs_of_the_wrong_width() -> None:
    costs = {"l": [[0, 1, 2], [1, 0, 2]]}
    assert message(table(), losses=costs) == (
        "the data: column 'model_1' has 2 classes, losses and `classes` have 3"
    )
    names = {"model_1": ["a", "b"], "model_2": ["c", "e"]}
    data = table(a=[0.5] * 5, b=[0.5] * 5, c=[0.5] * 5, e=[0.5] * 5)
    assert message(data, losses=costs, **names) == (
        "the data: column 'a, b' has 2 classes, losses and `classes` have 3"
    )


def test_scores_of_the_wrong_type() -> None:
    assert message(table(model_1=["x"] * 5)) == (
        "the data: column 'model_1' has type string; scores are arrays of numbers or one number; "
        "first: 'x'"
    )
    assert message(table(model_1=[["x", "y"]] * 5)) == (
        "the data: column 'model_1' holds arrays of string, not of numbers"
    )
    assert message(table(a=["x"] * 5), model_1=["a", "label"]) == (
        "the data: column 'a' has type string; scores must be numbers; first: 'x'"
    )


def test_no_rows() -> None:
    assert message(table().slice(0, 0)) == "the data has no rows"
    empty = np.empty((0, 2))
    none = np.empty(0, dtype=np.int64)
    assert refused(InputError, lambda: reconciler().fit(empty, empty, none)) == (
        "the data has no rows"
    )


def test_arrays_that_do_not_fit_together() -> None:
    one = np.array(GOOD)
    assert refused(InputError, lambda: reconciler().fit(one, one[:4], LABELS)) == (
        "arrays of different length: model_1: 5, model_2: 4, label: 5"
    )
    assert refused(InputError, lambda: reconciler().fit(one[None], one, LABELS)) == (
        "the scores of model 1: must have one or two dimensions, got 3"
    )
    assert refused(UsageError, lambda: reconciler().fit(one, one)) == (
        "labels are missing: fit(scores_1, scores_2, labels), or fit([scores_1, ...], labels); "
        "or fit(X, y), X a table or an array with the scores of all models side by side"
    )
    assert refused(UsageError, lambda: reconciler().fit(one)) == (
        "data must be a DataFrame of pandas, polars or Spark, a pyarrow Table, a DuckDB relation, "
        "another table that has __arrow_c_stream__, or numpy arrays (scores, scores, labels); got "
        "ndarray"
    )
    assert refused(InputError, lambda: reconciler().fit(one.astype(str), one, LABELS)) == (
        "the scores of model 1: must be numbers, got an array of <U32"
    )


def test_ragged_rows_of_python_lists_are_named() -> None:
    ragged = [*GOOD[:4], [0.2, 0.3, 0.5]]
    assert refused(InputError, lambda: reconciler().fit(GOOD, ragged, LABELS)) == told(
        "column 'model_2': 1 row without exactly 2 values; first: row 4: [0.2, 0.3, 0.5]"
    )


# What is allowed


def test_rows_that_do_not_sum_to_1_are_used_and_told_once() -> None:
    off = [*GOOD[:3], [0.5, 0.4], [0.6, 0.6]]
    with pytest.warns(ScoreWarning) as found:
        pair = reconciler().fit(table(model_1=off))
    told = [str(warning.message) for warning in found if warning.category is ScoreWarning]
    assert told == [
        "the data: on 2 of 5 rows the scores of a model do not sum to 1 (by more than 0.001); "
        "they are used as they are"
    ]
    assert pair.rows == 5


def test_softmax_noise_is_not_told() -> None:
    thirds = np.full((4, 3), 1 / 3, dtype=np.float32)
    thirds[0] += 2e-4
    Reconciler(algorithm="reconcile", alpha=0.1, eta=0.1).fit(thirds, thirds, [0, 1, 2, 0])


def test_three_decimals_that_miss_by_just_0_001_are_not_told() -> None:
    """On the grid the sum of three rounded scores may be off by a little more than its decimals."""
    rows = [[0.333, 0.333, 0.333], [0.334, 0.334, 0.333], [0.001, 0.499, 0.499]] * 400
    assert {abs(round(1 - sum(row), 9)) for row in rows} == {0.001}
    model = Reconciler(algorithm="reconcile", alpha=0.1, eta=0.1)
    model.fit(np.array(rows), np.array(rows), [0, 1, 2] * 400)
    rows[7] = [0.332, 0.333, 0.333]
    with pytest.warns(ScoreWarning, match="on 1 of 1,200 rows the scores of a model do not sum"):
        model.fit(np.array(rows), np.array(rows), [0, 1, 2] * 400)


def test_bad_rows_can_be_skipped() -> None:
    other = [row[::-1] for row in GOOD]
    bad = table(model_1=[None, [9.0, 0.0], *GOOD[2:]], model_2=other, label=LABELS)
    rest = table(model_2=other).slice(2)
    pair = reconciler(on_bad_rows="skip").fit(bad)
    assert pair.rows == 3
    assert pair.log == reconciler().fit(rest).log != ()
    nothing = table(model_1=[None] * 5)
    nothing = nothing.set_column(0, "model_1", nothing["model_1"].cast(pa.list_(pa.float64())))
    assert message(nothing, on_bad_rows="skip") == (
        "the data has no rows to fit on: of 5 rows 0 have no label and 5 cannot be used"
    )


@pytest.mark.parametrize("algorithm", ["redcal", "reconcile"])
def test_models_that_agree_need_no_patch(algorithm: str) -> None:
    pair = reconciler(algorithm=algorithm).fit(table())
    assert (pair.status, pair.log) == ("converged", ())


def test_one_row() -> None:
    pair = reconciler(eta=1.0).fit([[0.75, 0.25]], [[0.25, 0.75]], [1])
    assert (pair.status, pair.rows, len(pair.log)) == ("converged", 1, 1)
    assert pair.log[0].model == 1
    new1, new2 = pair.apply([[0.75, 0.25]], [[0.25, 0.75]])
    assert (new1.tolist(), new2.tolist()) == ([[0.0, 1.0]], [[0.25, 0.75]])


def test_a_binary_column_and_two_columns_are_the_same_models() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    p1, p2 = np.array(problem.f1), np.array(problem.f2)
    model = reconciler(beta=0.2)
    one = model.fit(p1, p2, problem.y)
    two = model.fit(np.stack([1 - p1, p1], 1), np.stack([1 - p2, p2], 1), problem.y)
    assert one.log == two.log
    assert (one.binary, two.binary) == (True, False)


def test_labels_of_a_binary_pair_must_sum_to_one() -> None:
    """Else a patch could break f0 + f1 = 1."""
    made = Reconciler(losses={"l": [[0, 1], [1, 0]]}, alpha=0.1, eta=0.1)
    scores = np.array([0.2, 0.8])
    told = refused(
        InputError,
        lambda: made.fit(scores, 1 - scores, np.array([[0.5, 0.5], [0.9, 0.9]])),
    )
    assert "column 'label': 1 row with a label that does not sum to 1; first: row 1" in told
    assert made.fit(scores, 1 - scores, np.array([[0.5, 0.5], [0.1, 0.9]])).status == "converged"


def twice(column: str) -> pd.DataFrame:
    frame = pd.DataFrame({"model_1": GOOD, "model_2": GOOD, "label": LABELS, "id": range(5)})
    return pd.concat([frame, frame[[column]]], axis=1)


@pytest.mark.parametrize("column", ["model_1", "model_2", "label", "id"])
def test_a_column_that_is_there_twice(column: str) -> None:
    """pandas gives a frame for such a name, which ended in a bare KeyError."""
    told = f"the data has 2 columns named {column!r}; rename or drop the others"
    assert message(twice(column), id="id") == told
    names = ["model_1", "model_2", "label", "id", column]
    columns: list[Any] = [twice(column).iloc[:, place] for place in range(5)]
    assert message(pa.table(columns, names=names), id="id") == told


def test_a_column_that_is_there_twice_and_not_needed() -> None:
    frame = twice("id")
    assert reconciler().fit(frame).to_json() == reconciler().fit(twice("id").iloc[:, :4]).to_json()


def test_a_column_that_is_there_twice_on_apply() -> None:
    pair = reconciler().fit(twice("id"))
    told = "the data has 2 columns named 'model_1'; rename or drop the others"
    assert refused(InputError, lambda: pair.apply(twice("model_1"))) == told


@pytest.mark.parametrize("rows", [2**37, 2**37 + 1, 2**40])
def test_more_rows_than_int64_sums_can_take(rows: int) -> None:
    """Sums of 2^26 over 2^37 rows are 2^63: one row fewer is taken, this many are refused."""
    made = reconciler()
    gathered, _ = gather(made, table().to_batches(), table().schema)
    gathered.rows = 2**37 - 1
    made.problem.check(gathered, "scores")
    gathered.rows = rows
    told = refused(InputError, lambda: made.problem.check(gathered, "scores"))
    assert told == f"scores has {rows:,} rows; exact sums need fewer than 2^37"


def test_many_wrong_rows_have_a_way_out() -> None:
    given: dict[str, Any] = {"losses": {"t": [[0, 5, 9], [1, 0, 0]]}, "alpha": 0.1, "eta": 0.1}
    y = np.arange(30) % 3
    scores = np.full((30, 3), 1 / 3)
    percent = "(scores are probabilities: divide percentages by 100, and give logits to softmax)"
    from_one = "(labels count from 0: subtract 1 from labels that count from 1)"
    for scores_2, labels, hint, other in (
        (100 * scores, y, percent, from_one),
        (scores, y + 1, from_one, percent),
    ):
        with pytest.raises(InputError) as refused:
            Reconciler(**given).fit(scores, scores_2, labels)
        assert hint in str(refused.value) and other not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "way_out"),
    [("0,25", True), ("25%", True), ("12,5 %", True), ("0.25.1", False), ("high", False)],
)
def test_numbers_as_spreadsheets_write_them(text: str, way_out: bool) -> None:
    rows = pa.table({"model_1": [text] * 3, "model_2": [0.5] * 3, "label": [0, 1, 0]})
    with pytest.raises(InputError) as refused:
        Reconciler(losses={"t": [[0, 1], [1, 0]]}, alpha=0.1, eta=0.1).fit(rows)
    assert f"first: {text!r}" in str(refused.value)
    assert ("write 0.5 for '0,5' and for '50%'" in str(refused.value)) == way_out


@pytest.mark.parametrize(("text", "way_out"), [("NA", True), ("n/a", True), ("banana", False)])
def test_words_for_no_value(text: str, way_out: bool) -> None:
    rows = pa.table({"model_1": ["0.5", text, "0.2"], "model_2": [0.5] * 3, "label": [0, 1, 0]})
    with pytest.raises(InputError) as refused:
        Reconciler(losses={"t": [[0, 1], [1, 0]]}, alpha=0.1, eta=0.1).fit(rows)
    hint = f"first: {text!r}; leave such cells empty and set on_bad_rows='skip'"
    assert (hint in str(refused.value)) == way_out
