"""From tables to rows on the grid and back: every form of scores, labels, joins and bad rows."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from redcal_spark import Reconciler
from redcal_spark.backends.inputs import open_input
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import config_from_tree
from redcal_spark.core.patches import Patch
from redcal_spark.errors import InputError, JoinWarning
from redcal_spark.runs import start
from redcal_spark.runs.job import Job
from redcal_spark.runs.listener import Listener
from redcal_spark.runs.outcome import Outcome
from tests.helpers import refused

N, D = 400, 3
CLASSES = ["healthy", "mild", "severe"]
STORE = DeltaRsStore()
RNG = np.random.default_rng(4)
# Eighths are the same in float32, float64 and decimals.
P1, P2 = (np.array([RNG.multinomial(8, [0.4, 0.3, 0.3]) for _ in range(N)]) / 8 for _ in range(2))
Y = RNG.integers(0, D, N)
COSTS = [[0, 4, 9], [3, 0, 4], [8, 4, 0]]

Wrap = Callable[[Any], pa.Array]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Notes(Listener):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def job(
    listener: Listener | None = None, costs: Any = COSTS, suffix: Any = None, **given: Any
) -> Job:
    columns = {"id": "id", "label": "y", "model_1": "a", "model_2": "b"}
    tree: dict[str, Any] = {
        "input": {"table": "rows"} | columns | given,
        "losses": {"t": {"costs": costs}},
        "reconcile": {"alpha": 0.001, "eta": 0.02},
        "output": {"table": "out/done"} | ({"suffix": suffix} if suffix else {}),
        "engine": {"threads": 1},
    }
    return Job(config_from_tree(tree), LocalBackend(STORE), listener)


def run(listener: Listener | None = None, **given: Any) -> Outcome:
    return start.run(job(listener, **given))


def log_of(outcome: Outcome) -> list[Patch]:
    assert outcome.pair is not None
    return list(outcome.pair.log)


def done() -> pa.Table:
    """The rows written, in the order of their ids."""
    table = pa.Table.from_batches(STORE.open("out/done").batches())
    return table.sort_by("id") if "id" in table.column_names else table


def lists(p: Any, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([list(row) for row in np.asarray(p).tolist()], kind or pa.list_(pa.float64()))


def rows(**columns: Any) -> pa.Table:
    found = {"id": pa.array(range(N)), "y": pa.array(Y), "a": lists(P1), "b": lists(P2)}
    return pa.table({name: x for name, x in (found | columns).items() if x is not None})


def put(table: pa.Table, form: str = "parquet") -> None:
    if form == "delta":
        write_deltalake("rows", table)
    elif form == "csv":
        pa.csv.write_csv(table, "rows")
    else:
        pq.write_table(table, "rows", row_group_size=90)


@pytest.fixture(scope="module")
def expected() -> list[Patch]:
    """The log that every form of the same rows must give."""
    pair = Reconciler(losses={"t": COSTS}, alpha=0.001, eta=0.02, threads=1).fit(P1, P2, Y)
    assert len(pair.log) >= 3
    return list(pair.log)


# --- scores ---------------------------------------------------------------------------------------

LISTS: dict[str, pa.DataType] = {
    "list": pa.list_(pa.float64()),
    "large_list": pa.large_list(pa.float64()),
    "fixed_size": pa.list_(pa.float64(), D),
    "float32": pa.list_(pa.float32()),
    "float16": pa.list_(pa.float16(), D),
    "decimal": pa.list_(pa.decimal128(9, 6)),
}


@pytest.mark.parametrize("form", ["parquet", "delta"])
@pytest.mark.parametrize("kind", LISTS)
def test_array_columns(kind: str, form: str, expected: list[Patch]) -> None:
    if form == "delta" and kind == "float16":
        pytest.skip("Delta tables have no float16")
    if kind == "float16":
        flat = pa.array(P1.astype(np.float16).ravel())
        a: pa.Array = pa.FixedSizeListArray.from_arrays(flat, D)
    elif kind == "decimal":
        a = pa.array([[Decimal(x) for x in row] for row in P1.tolist()], LISTS[kind])
    else:
        a = lists(P1, LISTS[kind])
    put(rows(a=a), form)
    assert log_of(run()) == expected
    new = done()
    assert new.schema.field("a_reconciled").type.value_type == pa.float64()
    untouched = [i for i, touched in enumerate(new["touched"].to_pylist()) if not touched]
    found = new["a_reconciled"].to_pylist()
    assert untouched and all(found[i] == P1[i].tolist() for i in untouched)


@pytest.mark.parametrize("form", ["parquet", "delta", "csv"])
@pytest.mark.parametrize("kind", ["float64", "float32", "decimal"])
def test_a_column_per_class(kind: str, form: str, expected: list[Patch]) -> None:
    makers: dict[str, Wrap] = {
        "float64": lambda x: pa.array(x),
        "float32": lambda x: pa.array(x.astype(np.float32)),
        "decimal": lambda x: pa.array([Decimal(v) for v in x.tolist()], pa.decimal128(9, 6)),
    }
    names = [f"a{j}" for j in range(D)], [f"b{j}" for j in range(D)]
    columns = {n: makers[kind](P1[:, j]) for j, n in enumerate(names[0])}
    columns |= {n: pa.array(P2[:, j]) for j, n in enumerate(names[1])}
    put(rows(a=None, b=None, **columns), form)
    assert log_of(run(model_1=names[0], model_2=names[1])) == expected
    assert {f"{n}_reconciled" for n in names[0] + names[1]} <= set(done().column_names)


@pytest.mark.parametrize("form", ["parquet", "delta", "csv"])
def test_one_column_of_a_binary_score(form: str) -> None:
    y, costs = np.minimum(Y, 1), [[0, 5], [1, 0]]
    put(rows(y=pa.array(y), a=pa.array(P1[:, 0]), b=pa.array(P2[:, 0])), form)
    outcome = run(costs=costs)
    assert outcome.pair is not None and outcome.pair.binary and log_of(outcome)
    assert done().schema.field("a_reconciled").type == pa.float64()


def test_whole_numbers_are_scores_too() -> None:
    hard = np.eye(D, dtype=int)
    put(rows(a=lists(hard[P1.argmax(axis=1)], pa.list_(pa.int8())), b=lists(P2)))
    assert log_of(run())
    assert max(map(max, done()["a"].to_pylist())) == 1


# --- labels ---------------------------------------------------------------------------------------

LABELS: dict[str, tuple[Callable[[], pa.Array], bool]] = {
    "int8": (lambda: pa.array(Y, pa.int8()), False),
    "uint64": (lambda: pa.array(Y, pa.uint64()), False),
    "float": (lambda: pa.array(Y.astype(float)), False),
    "decimal": (lambda: pa.array([Decimal(int(k)) for k in Y]), False),
    "integers as a dictionary": (lambda: pa.array(Y).dictionary_encode(), False),
    "names": (lambda: pa.array([CLASSES[k] for k in Y]), True),
    "large names": (lambda: pa.array([CLASSES[k] for k in Y], pa.large_string()), True),
    "names as a dictionary": (lambda: pa.array([CLASSES[k] for k in Y]).dictionary_encode(), True),
    "arrays": (lambda: lists(np.eye(D)[Y]), False),
    "arrays of one size": (lambda: lists(np.eye(D)[Y], pa.list_(pa.float32(), D)), False),
    "indices beside names": (lambda: pa.array(Y), True),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels(kind: str, expected: list[Patch]) -> None:
    make, named = LABELS[kind]
    put(rows(y=make()))
    assert log_of(run(classes=CLASSES if named else None)) == expected


def test_bool_labels() -> None:
    columns = {"a": pa.array(P1[:, 0]), "b": pa.array(P2[:, 0])}
    logs = []
    for y in (pa.array(Y > 0), pa.array((Y > 0).astype(int))):
        put(rows(y=y, **columns))
        logs.append(log_of(start.fit(job(costs=[[0, 5], [1, 0]]), force=True)))
    assert logs[0] == logs[1] != []


def test_names_in_csv(expected: list[Patch]) -> None:
    names = {f"{m}{j}": pa.array(p[:, j]) for m, p in (("a", P1), ("b", P2)) for j in range(D)}
    put(rows(a=None, b=None, y=pa.array([CLASSES[k] for k in Y]), **names), "csv")
    models: dict[str, Any] = {"model_1": ["a0", "a1", "a2"], "model_2": ["b0", "b1", "b2"]}
    assert log_of(run(classes=CLASSES, **models)) == expected


def test_rows_without_a_label_are_applied_and_counted(expected: list[Patch]) -> None:
    late = 50
    y = pa.array([*Y.tolist(), *[None] * late])
    table = pa.table(
        {
            "id": range(N + late),
            "y": y,
            "a": lists(np.concatenate([P1, P1[:late]])),
            "b": lists(np.concatenate([P2, P2[:late]])),
        }
    )
    put(table)
    outcome = run()
    assert log_of(outcome) == expected
    row = outcome.row
    assert (row.rows, row.fit_rows, row.unlabelled_rows, row.bad_rows) == (N + late, N, late, 0)
    new = done()["a_reconciled"].to_pylist()
    assert new[N:] == new[:late]
    assert any(done()["touched"].to_pylist()[N:])


# --- joins ----------------------------------------------------------------------------------------

ID_KINDS: dict[str, Callable[[Sequence[int]], tuple[pa.Array, pa.Array]]] = {
    "int": lambda n: (pa.array(n), pa.array(n)),
    "int32 and uint8": lambda n: (pa.array(n, pa.int32()), pa.array(n, pa.uint16())),
    "text": lambda n: (pa.array([f"c{i}" for i in n]), pa.array([f"c{i}" for i in n])),
    "text and dictionary": lambda n: (
        pa.array([f"c{i}" for i in n]),
        pa.array([f"c{i}" for i in n]).dictionary_encode(),
    ),
}


def side(name: str, p: Any, ids: pa.Array, order: Sequence[int], **more: Any) -> dict[str, Any]:
    """Scores in a table of their own, in another order."""
    table = pa.table({"key": ids, "score": lists(p), "y": pa.array(Y[: len(ids)])}).take(order)
    write_deltalake(name, table) if name == "side_1" else pq.write_table(table, name)
    return {"table": name, "id": "key", "columns": "score"} | more


@pytest.mark.parametrize("kind", ID_KINDS)
@pytest.mark.parametrize("sides", [(1,), (2,), (1, 2)], ids=["first", "second", "both"])
def test_scores_in_tables_of_their_own(
    kind: str, sides: tuple[int, ...], expected: list[Patch]
) -> None:
    order = np.random.default_rng(5).permutation(N).tolist()
    ids, keys = ID_KINDS[kind](range(N))
    models: dict[str, Any] = {
        f"model_{m}": side(f"side_{m}", p, keys, order) for m, p in ((1, P1), (2, P2)) if m in sides
    }
    # the rows have a column `score` as well
    names = {name: None for name, m in (("a", 1), ("b", 2)) if m in sides}
    put(rows(id=ids, score=pa.array(["x"] * N), **names))
    outcome = run(**models)
    assert log_of(outcome) == expected
    new = done()
    for m, p in ((1, P1), (2, P2)):
        if m in sides:
            found = dict(
                zip(new["id"].to_pylist(), new[f"model_{m}_score"].to_pylist(), strict=True)
            )
            assert [found[i] for i in ids.to_pylist()] == p.tolist()
            assert f"model_{m}_score_reconciled" in new.column_names
    assert new["score"].to_pylist() == ["x"] * N


def test_columns_of_a_side_table_keep_names_that_are_free(expected: list[Patch]) -> None:
    found = side("side_1", P1, pa.array(range(N)), list(range(N)))
    put(rows(a=None))
    assert log_of(run(model_1=found)) == expected
    assert {"score", "score_reconciled"} <= set(done().column_names)


def test_a_table_that_is_named_twice_has_one_version(expected: list[Patch]) -> None:
    """Rows that come between two looks at it are of the next run."""
    put(rows(), "delta")

    class Busy(DeltaRsStore):
        looks = 0

        def open(self, name: str, *given: Any) -> Any:
            self.looks += 1
            if self.looks == 2:
                write_deltalake("rows", rows(id=pa.array(range(N, 2 * N))), mode="append")
            return super().open(name, *given)

    own = {"model_1": {"table": "rows", "columns": "a"}}
    tree: dict[str, Any] = {"table": "rows", "id": "id", "label": "y", "model_2": "b", **own}
    given = job(**tree).config.input
    busy = Busy()
    table, _ = open_input(busy, given)
    assert busy.looks == 2 and DeltaTable("rows").version() == 1
    assert sum(batch.num_rows for batch in table.batches()) == N
    assert [part["version"] for part in table.identity()["tables"]] == [0, 0]
    # as of an older version, too, unless the model's own table names another one
    for version, rows_read in ((None, N), (0, N), (1, 2 * N)):
        newer = given.model_copy(update={"version": 0 if version is None else version})
        assert sum(b.num_rows for b in open_input(STORE, newer)[0].batches()) == rows_read


def misfits() -> tuple[dict[str, Any], list[int]]:
    """Rows and scores whose ids do not fit in every way, and the ids that do."""
    ids: list[Any] = [*range(N)]
    ids[3], ids[5], ids[9] = 2, None, 10_000
    keys = [*range(N)]
    keys[20], keys[30] = 21, 20_000
    put(rows(a=None, id=pa.array(ids)))
    found = side("side_1", P1, pa.array(keys), list(range(N)))
    bad = {2, 3, 5, 9, 20, 21, 30}
    return found, [i for i in range(N) if i not in bad]


def test_a_folder_of_delta_tables_is_not_read_as_parquet(tmp_path: Path) -> None:
    """Its files are those of every version."""
    for _ in range(2):
        write_deltalake(tmp_path / "gold" / "t", pa.table({"a": [0.5]}), mode="overwrite")
    (tmp_path / "other").mkdir()
    for name, below in ((tmp_path / "gold", "t"), (tmp_path, "gold/t")):
        told = refused(InputError, partial(DeltaRsStore().open, str(name)))
        assert told == f"{name}: holds Delta tables, such as {below}: name the one that is meant"


def test_ids_that_do_not_fit_are_an_error() -> None:
    found, _ = misfits()
    assert refused(InputError, job(model_1=found).check) == (
        "the tables cannot be joined:\n"
        "  null in rows: 1 id\n"
        "  more than once in rows: 1 id, first 2\n"
        "  more than once in side_1: 1 id, first 21\n"
        "  in rows but not in side_1: 3 ids, first 20, 30, 10000\n"
        "  in side_1 but not in rows: 4 ids, first 3, 5, 9\n"
        "  (input.join: inner leaves such ids out)"
    )


def test_ids_that_do_not_fit_are_left_out_on_request() -> None:
    found, good = misfits()
    notes = Notes()
    outcome = run(notes, model_1=found, join="inner")
    assert done()["id"].to_pylist() == good
    assert done()["score"].to_pylist() == P1[good].tolist()
    assert outcome.row.rows == len(good)
    (note,) = (note for note in notes.notes if "join" in note)
    assert note.startswith(
        f"the join leaves out {N - len(good)} of {N} rows; null in rows: 1 id; more than once in "
        "rows: 1 id, first 2; more than once in side_1: 1 id, first 21; "
    )
    with pytest.warns(JoinWarning):
        assert open_input(STORE, job(model_1=found, join="inner").config.input)[0].count() == len(
            good
        )


@pytest.mark.parametrize("nulls", [1, 2])
def test_rows_without_an_id_are_not_joined_with_scores_without_one(nulls: int) -> None:
    ids = pa.array([None] * nulls + [*range(nulls, N)], pa.int64())
    put(rows(a=None, id=ids))
    found = side("side_1", P1, ids, list(range(N)))
    opened, _ = open_input(STORE, job(model_1=found, join="inner").config.input)
    with pytest.warns(JoinWarning, match=f"leaves out {nulls} of {N} rows"):
        kept = pa.Table.from_batches(opened.batches(["id"]))
    assert kept["id"].to_pylist() == list(range(nulls, N))


def test_check_ids() -> None:
    put(rows(id=pa.array([0, 0, None, None, *range(4, N)])))
    job().check()
    assert refused(InputError, lambda: job().check(ids=True)) == (
        "null in rows: 2 ids\nmore than once in rows: 1 id, first 0"
    )
    put(rows(id=pa.array([f"c{i}" for i in range(N)])))
    job().check(ids=True)


# --- bad rows -------------------------------------------------------------------------------------

NAN = math.nan
BAD_ARRAYS = [None, [], [0.5, 0.5], [0.25] * 4, [0.5, None, 0.5], [NAN, 0.5, 0.5], [2.0, -1.0, 0.0]]


def test_bad_arrays_pass_through(expected: list[Patch]) -> None:
    bad = len(BAD_ARRAYS)
    a = [*BAD_ARRAYS, *P1.tolist(), *P1[:bad].tolist(), P1[0].tolist()]
    b = [*P2[:bad].tolist(), *P2.tolist(), *BAD_ARRAYS, P2[0].tolist()]
    y = [*Y[:bad].tolist(), *Y.tolist(), *Y[:bad].tolist(), 7]
    put(pa.table({"id": range(len(a)), "y": y, "a": a, "b": b}))
    outcome = run(on_bad_rows="skip")
    assert log_of(outcome) == expected
    row = outcome.row
    assert (row.rows, row.bad_rows, row.fit_rows) == (len(a), 2 * bad + 1, N)
    new = done()
    assert str(new["a_reconciled"].to_pylist()[:bad]) == str(BAD_ARRAYS)
    assert str(new["b_reconciled"].to_pylist()[-1 - bad : -1]) == str(BAD_ARRAYS)
    scored = [False] * bad + [True] * N + [False] * bad + [True]  # a bad label can be applied
    assert new["valid"].to_pylist() == scored
    assert not any(t for t, v in zip(new["touched"].to_pylist(), scored, strict=True) if not v)
    for name in ("t_1_before", "t_2_after", "t_agree"):
        assert [x is not None for x in new[name].to_pylist()] == scored
    clean = new.filter(new["valid"]).slice(0, N)
    put(rows())
    shutil.rmtree("out/done")  # no longer the columns that it has
    start.run(job())
    assert clean["a_reconciled"].to_pylist() == done()["a_reconciled"].to_pylist()


@pytest.mark.parametrize("form", ["fixed size", "columns", "binary"])
def test_bad_rows_of_other_forms_pass_through(form: str) -> None:
    bad = [None, NAN, math.inf, -0.25, 1.25]
    p, q = [*bad, *P1[:, 0].tolist()], [*P2[: len(bad), 0].tolist(), *P2[:, 0].tolist()]
    y = [*[0] * len(bad), *np.minimum(Y, 1).tolist()]
    table = {"id": list(range(len(p))), "y": y}
    given: dict[str, Any] = {"on_bad_rows": "skip", "costs": [[0, 5], [1, 0]]}
    if form == "binary":
        found = pa.table(table | {"a": p, "b": q})
    elif form == "columns":
        other = [None if x is None else 1 - x for x in p]
        found = pa.table(table | {"a0": other, "a1": p, "b0": [1 - x for x in q], "b1": q})
        given |= {"model_1": ["a0", "a1"], "model_2": ["b0", "b1"]}
    else:
        kind = pa.list_(pa.float64(), 2)
        one = pa.array([None if x is None else [1 - x, x] for x in p], kind)
        found = pa.table(table | {"a": one, "b": pa.array([[1 - x, x] for x in q], kind)})
    put(found)
    outcome = run(**given)
    assert (outcome.row.bad_rows, outcome.row.fit_rows) == (len(bad), N)
    assert log_of(outcome)
    new = done()
    assert new["valid"].to_pylist() == [False] * len(bad) + [True] * N
    source = "a1" if form == "columns" else "a"
    before, after = new[source].to_pylist(), new[f"{source}_reconciled"].to_pylist()
    assert str(after[: len(bad)]) == str(before[: len(bad)])


def test_a_number_too_large_for_the_grid_is_no_warning_of_numpy() -> None:
    put(rows(a=lists([[1e308, 0.0, 0.0], *P1[1:].tolist()])))
    notes = Notes()
    assert run(notes, on_bad_rows="skip").row.bad_rows == 1
    assert not [note for note in notes.notes if "overflow" in note]


def test_without_skip_there_is_no_valid_column() -> None:
    put(rows())
    run()
    assert "valid" not in done().column_names


# --- other columns --------------------------------------------------------------------------------


def test_other_columns_pass_through_untouched_and_in_order() -> None:
    moment = datetime(2026, 1, 31, 12, 30, 15, 123_456, tzinfo=UTC)
    extra = {
        "nested": pa.array([{"k": [i, None], "m": {"x": str(i)}} for i in range(N)]),
        "at": pa.array([moment] * N, pa.timestamp("us", "UTC")),
        "local": pa.array([moment.replace(tzinfo=None)] * N, pa.timestamp("us")),
        "price": pa.array([Decimal("12345678901234567890.12")] * N, pa.decimal128(30, 2)),
        "kind": pa.array(["u", None] * (N // 2)).dictionary_encode(),
        "nothing": pa.nulls(N),
        "small": pa.array([255] * N, pa.uint8()),
        "raw": pa.array([b"\x00\xff"] * N),
        "nan": pa.array([NAN] * N),
        "a name, with; (odd) = signs": pa.array(range(N)),
    }
    table = rows(**extra).select([*list(extra)[:5], "b", "a", "y", "id", *list(extra)[5:]])
    put(table)
    run()
    new = done()
    assert new.column_names == [
        *table.column_names,
        *("a_reconciled", "b_reconciled"),
        *("t_1_before", "t_2_before", "t_1_after", "t_2_after", "t_agree", "touched", "split"),
    ]
    for name in table.column_names:
        assert str(new[name].to_pylist()) == str(table[name].to_pylist()), name
    assert new.schema.field("at").type == pa.timestamp("us", "UTC")
    assert new.schema.field("price").type == pa.decimal128(30, 2)


def test_names_that_are_taken_and_the_way_out() -> None:
    put(rows(Touched=pa.array([1] * N), a_reconciled=lists(P1), t_agree=pa.array([1] * N)))
    assert refused(InputError, job().check) == (
        "rows has already the columns 'a_reconciled', 't_agree', 'Touched'; name the new ones "
        "otherwise, for instance with output.suffix: _v2"
    )
    run(suffix="_v2")
    assert {"Touched", "touched_v2", "a_v2", "t_agree_v2"} <= set(done().column_names)


def test_the_split_column_is_looked_at_before_anything_runs() -> None:
    put(rows(fold=pa.array([1, 2] * (N // 2))))
    checks = {
        "column 'part' not found in rows; it has: id, y, a, b, fold": ("part", 1, 2),
        "split column 'fold' has type int64 and cannot hold 'x'": ("fold", "x", "y"),
    }
    for told, (column, fit, holdout) in checks.items():
        split = {"column": column, "fit": fit, "holdout": holdout}
        assert refused(InputError, job(split=split).check) == told
    outcome = run(split={"column": "fold", "fit": 1, "holdout": 2})
    assert (outcome.row.fit_rows, outcome.row.holdout_rows) == (N // 2, N // 2)
