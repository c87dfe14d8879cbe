"""What a notebook shows of a pair, and a fit that holds rows out: in Python as a job does it."""

from __future__ import annotations

import builtins
import json
import pickle
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import config_from_tree
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.splits import HashSplit
from redcal_spark.errors import FitWarning, InputError, ModelFileError, UsageError
from redcal_spark.runs import start
from redcal_spark.runs.job import Job
from tests.helpers import Array, refused

LOSSES: dict[str, Any] = {"lend": {"costs": [[0, 5], [1, 0]], "actions": ["approve", "refuse"]}}
GIVEN: dict[str, Any] = {"losses": LOSSES, "alpha": 0.01, "eta": 0.02, "threads": 1}


@cache
def rows() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 3_000)
    noise = rng.normal(0, 0.25, (2, 3_000))
    one, two = np.clip(0.3 + 0.4 * y + noise, 0, 1)
    return one, two, y


def frame() -> pd.DataFrame:
    one, two, y = rows()
    ids = [f"case {i}" for i in range(len(y))]
    return pd.DataFrame({"case": ids, "model_1": one, "model_2": two, "label": y})


@cache
def held() -> ReconciledPair:
    return Reconciler(**GIVEN).fit(*rows(), holdout=0.3)


def without(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """As if these were not installed."""
    known = builtins.__import__

    def imported(name: str, *others: Any, **more: Any) -> Any:
        if name.partition(".")[0] in libraries:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return known(name, *others, **more)

    monkeypatch.setattr(builtins, "__import__", imported)


# --- one line -------------------------------------------------------------------------------------


def test_everything_is_one_line() -> None:
    pair = held()
    assert repr(Reconciler(**GIVEN)) == (
        "Reconciler(losses=['lend'], alpha=0.01, eta=0.02, threads=1)"
    )
    shown = (pair, pair.log, pair.history, pair.certificate, pair.evaluate(*rows()))
    for thing in shown:
        assert len(repr(thing)) < 120 and "\n" not in repr(thing), thing
    assert repr(pair).startswith("<ReconciledPair: model_1 and model_2, redcal converged, ")
    assert repr(Reconciler(**GIVEN | {"losses": {"x" * 80: [[0, 1], [1, 0]]}})).count("x") < 60


def test_html_has_cards_and_certificate_and_loads_nothing() -> None:
    html = held()._repr_html_()
    assert html is not None and len(html) < 20_000
    summary = held().summary().to_pandas().set_index(["split", "measure", "model"])["after"]
    for measure in ("mean cost", "Brier score"):
        for model in held().models:
            assert f"{summary['holdout', measure, model]:.4f}" in html
    assert "Certificate:" in html and "prefers-color-scheme: dark" in html
    assert not re.search(r"<script|https?:|<link|@import|url\(|\bon\w+=", html)
    assert re.findall(r"^\s*\.(?!redcal)\w+.*{", html, re.MULTILINE) == [], "style of other cells"
    new = held().evaluate(*rows())._repr_html_()
    assert new is not None and "3,000 new labelled rows" in new


def test_names_are_escaped() -> None:
    losses = {"<script>": {"costs": [[0, 5], [1, 0]], "actions": ["<b>", "x"]}}
    html = Reconciler(**GIVEN | {"losses": losses}).fit(*rows())._repr_html_()
    assert html is not None and "<script>" not in html and "<b>&lt;" not in html


def test_without_jinja2_there_is_a_line_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "jinja2")
    assert held()._repr_html_() is None
    assert "pip install 'redcal-spark[report]'" in refused(UsageError, lambda: held().report("x"))


# --- summary --------------------------------------------------------------------------------------


def by_hand(part: Array, one: Array, two: Array) -> dict[str, float]:
    """Before or after, from scores and labels alone."""
    y = rows()[2][part]
    costs = np.array(LOSSES["lend"]["costs"], float)
    numbers = {}
    actions = []
    for name, scores in (("model_1", one[part]), ("model_2", two[part])):
        refuse = 5 * scores > 1 - scores
        actions.append(refuse)
        numbers[f"mean cost {name}"] = float(costs[refuse.astype(int), y].mean())
        numbers[f"Brier score {name}"] = float(((scores - y) ** 2).mean())
    numbers["decisions differ None"] = float((actions[0] != actions[1]).mean())
    return numbers


def test_the_summary_is_what_the_rows_say() -> None:
    pair, (one, two, y) = held(), rows()
    _, holdout = HashSplit("row", 0.3).masks(pa.record_batch({"row": np.arange(len(y))}))
    assert 800 < holdout.sum() < 1_000
    table = pair.summary().to_pandas().replace({np.nan: None})
    for split, part in (("fit", ~holdout), ("holdout", holdout)):
        for when, scores in (("before", (one, two)), ("after", pair.apply(one, two))):
            expected = by_hand(part, *scores)
            own = table[table["split"] == split]
            found = {f"{r.measure} {r.model}": getattr(r, when) for r in own.itertuples()}
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert found[key] == pytest.approx(value, abs=1e-7), (split, when, key)
    text = str(pair.summary())
    assert "decisions differ, lend" in text and f"{holdout.sum():,} holdout rows" in text
    assert repr(pair.summary()) == text


@pytest.mark.parametrize("algorithm", ["redcal", "decision_calibration", "reconcile"])
def test_every_algorithm_can_be_shown(algorithm: str, tmp_path: Path) -> None:
    given = GIVEN | {"algorithm": algorithm, "alpha": 0.1, "beta": 0.001}
    if algorithm == "reconcile":
        given["losses"] = None
    pair = Reconciler(**given).fit(*rows(), holdout=0.3)
    assert pair.log and pair._repr_html_() and str(pair.summary())
    pair.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and f"{len(pair.log):,}" in page
    assert len(pair.log.to_arrow()) == len(pair.log)


# --- charts ---------------------------------------------------------------------------------------


def bars_of(axes: Any) -> Any:
    return axes.patches


def test_charts_draw_what_was_measured() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pair, history = held(), held().history.to_pandas()  # type: ignore[union-attr]
    lines = {line.get_label(): line for line in pair.plot.steps().get_lines()}
    own = history[(history["split"] == "holdout") & (history["model"] == "model_2")]
    drawn = lines["model_2, holdout rows"]
    assert np.array_equal(drawn.get_xdata(), own["step"])
    assert np.array_equal(drawn.get_ydata(), own["decision_loss"])
    apart = {line.get_label(): line for line in pair.plot.disagreement().get_lines()}
    assert np.allclose(apart["holdout rows"].get_ydata(), 100 * own["disagreement"])
    bars = sorted(round(bar.get_height(), 9) for bar in bars_of(pair.plot.costs(loss="lend")))
    costs = pair.summary().to_pandas().query("measure == 'mean cost'")
    assert bars == sorted(costs[["before", "after"]].to_numpy().round(9).ravel().tolist())
    _, given = pyplot.subplots()
    assert pair.plot.patches(ax=given) is given
    heights = sorted(abs(bar.get_height()) for bar in bars_of(given))
    assert heights == sorted(patch.rows for patch in pair.log)
    with pytest.raises(UsageError, match="no loss named 'rent'"):
        pair.plot.costs(loss="rent")
    pyplot.close("all")


def test_charts_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "matplotlib")
    assert "redcal-spark[notebook]" in refused(UsageError, lambda: held().plot.steps())


# --- tables ---------------------------------------------------------------------------------------


def test_the_log_has_names_and_probabilities() -> None:
    pair = held()
    table = pair.log.to_pandas()
    assert len(table) == len(pair.log) > 3
    for row, patch in zip(table.to_dict("records"), pair.log, strict=True):
        assert row["model"] == f"model_{patch.model}" and row["rows"] == patch.rows
        assert row["change"].tolist() == [phi / ONE for phi in patch.phi]
        assert row["largest_class"] == "class 1" and row["largest_change"] == patch.phi[1] / ONE
        assert row["share"] == pytest.approx(patch.rows / pair.rows)
        actions = LOSSES["lend"]["actions"]
        if patch.kind == "reconcile":
            assert patch.a1 is not None and patch.a2 is not None
            assert (row["action_1"], row["action_2"]) == (actions[patch.a1], actions[patch.a2])
        else:
            assert patch.action is not None and row["action"] == actions[patch.action]
    assert pl.DataFrame(pair.log.to_arrow()).height == len(pair.log)
    again = pickle.loads(pickle.dumps(pair))
    assert again.log == pair.log and again.log.to_arrow().equals(pair.log.to_arrow())


def test_of_reconcile_classes_have_names() -> None:
    given = GIVEN | {"algorithm": "reconcile", "alpha": 0.1, "classes": ["paid", "lost"]}
    table = Reconciler(**given).fit(*rows()).log.to_pandas()
    assert set(table["class"]) == {"lost"} and set(table["direction"]) <= {">", "<"}
    assert table["change"].map(lambda x: x[0] == -x[1]).all()


def test_the_certificate_as_a_table() -> None:
    certificate = held().certificate
    assert certificate is not None
    table = certificate.to_pandas()
    assert len(table) == len(certificate.checks)
    fell = table[(table["check"] == "loss_fell") & (table["model"] == "model_1")].iloc[0]
    check = next(x for x in certificate.checks if x.name == "loss_fell" and x.model == 1)
    assert fell["measured"] == pytest.approx(float(check.measured))  # type: ignore[arg-type]
    assert fell["verdict"] == check.verdict and fell["low"] < fell["measured"] < fell["high"]
    loss = table[(table["check"] == "decision_loss") & (table["split"] == "fit")].iloc[0]
    same = next(x for x in certificate.checks if x.name == "decision_loss" and x.split == "fit")
    assert same.scale == Fraction(5)
    assert loss["bound"] == pytest.approx(5 * float(same.bound))  # type: ignore[arg-type]


def test_changed_rows() -> None:
    given = frame()
    pair = Reconciler(**GIVEN, id="case").fit(given)
    whole = pair.apply(given)
    changed = pair.changes(given)
    expected = whole[whole["touched"]]
    assert 0 < len(changed) < len(given)
    for name in ("case", "model_1", "model_1_reconciled", "lend_1_before", "lend_1_after"):
        assert changed[name].tolist() == expected[name].tolist()
    assert "label" not in changed
    polars = pair.changes(pl.DataFrame(given))
    assert isinstance(polars, pl.DataFrame) and polars["case"].to_list() == changed["case"].tolist()
    arrow = pair.changes(pa.Table.from_pandas(given))
    assert isinstance(arrow, pa.Table) and arrow["case"].to_pylist() == changed["case"].tolist()


# --- holdout rows ---------------------------------------------------------------------------------


def test_holdout_rows_in_every_form_give_the_same() -> None:
    given = frame()
    mask = np.random.default_rng(5).random(len(given)) < 0.3
    given["out"], given["flag"] = mask, mask.astype(int)
    given["part"] = np.where(mask, "holdout", "fit")
    given["fold"] = np.where(mask, 7, 3)
    reconciler = Reconciler(**GIVEN)
    pairs = [
        reconciler.fit(given, holdout=holdout)
        for holdout in (
            *("out", "flag", "part", mask, mask.tolist()),
            {"column": "fold", "fit": 3, "holdout": 7},
        )
    ]
    pairs.append(reconciler.fit(pl.DataFrame(given), holdout=pl.Series(mask)))
    pairs.append(reconciler.fit(*rows(), holdout=mask))
    fitted = reconciler.fit(given[~mask])
    for pair in pairs:
        assert pair.log == fitted.log and pair.rows == int((~mask).sum())
        assert pair.certificate == pairs[0].certificate and pair.history == pairs[0].history
    assert any(check.split == "holdout" for check in pairs[0].certificate.checks)  # type: ignore[union-attr]


def test_a_job_and_python_say_the_same(tmp_path: Path) -> None:
    """By a fraction of the ids: the same rows, the same numbers, the same certificate."""
    given = frame()
    given.to_parquet(tmp_path / "scores.parquet")
    config = config_from_tree(
        {
            "input": {
                "table": str(tmp_path / "scores.parquet"),
                "id": "case",
                "label": "label",
                "model_1": "model_1",
                "model_2": "model_2",
                "split": {"holdout_fraction": 0.3, "salt": "x"},
            },
            "losses": LOSSES,
            "reconcile": {"alpha": 0.01, "eta": 0.02},
            "output": {"table": str(tmp_path / "out")},
        }
    )
    outcome = start.fit(Job(config, LocalBackend(DeltaRsStore(), 1)))
    holdout = {"holdout_fraction": 0.3, "salt": "x"}
    pair = Reconciler(**GIVEN, id="case").fit(given, holdout=holdout)
    assert outcome.pair is not None and pair.log == outcome.pair.log
    assert pair.certificate == outcome.pair.certificate
    assert pair.evidence is not None
    assert json.loads(outcome.row.audits or "") == pair.evidence.audits


@pytest.mark.parametrize(
    ("holdout", "words"),
    [
        (1.5, "must be in (0, 1), got 1.5"),
        (True, "must be the name of a column, a mask"),
        ([True, False], "the mask has 2 values, and there are 3,000 rows"),
        (np.zeros(3_000), "an array of float64"),
        ("gone", "column 'gone' not found in the data; it has: case"),
        ("model_1", "column 'model_1' has type double"),
        ({"columns": "x"}, "got the keys columns"),
        ({"column": "case", "fit": 1, "holdout": 2}, "cannot hold 1"),
    ],
)
def test_what_is_no_holdout(holdout: Any, words: str) -> None:
    with pytest.raises((UsageError, InputError), match=re.escape(words)):
        Reconciler(**GIVEN).fit(frame(), holdout=holdout)


def test_the_guard_in_python() -> None:
    """Labels of holdout rows are noise, so that every patch does harm there."""
    one, two, y = rows()
    rng = np.random.default_rng(3)
    mask = np.arange(len(y)) % 3 == 0
    noise = np.where(mask, rng.integers(0, 2, len(y)), y)
    with pytest.warns(FitWarning, match="guard='best_prefix' would keep the first"):
        whole = Reconciler(**GIVEN).fit(one, two, noise, holdout=mask)
    cut = Reconciler(**GIVEN, guard="best_prefix").fit(one, two, noise, holdout=mask)
    assert cut.status == "cut" and len(cut.log) < len(whole.log)
    assert cut.log == whole.log[: len(cut.log)]
    assert cut.history is not None and cut.history.to_arrow()["step"].to_pylist()[-1] == len(
        cut.log
    )
    words = refused(UsageError, lambda: Reconciler(**GIVEN | {"guard": "on"}))
    assert "guard: must be one of off, report, best_prefix, got 'on'" in words


# --- saved and loaded -----------------------------------------------------------------------------


def test_what_was_measured_is_saved(tmp_path: Path) -> None:
    pair = held()
    pair.save(tmp_path / "pair.json")
    again = ReconciledPair.load(tmp_path / "pair.json")
    assert again.certificate == pair.certificate and again.history == pair.history
    assert str(again.summary()) == str(pair.summary())
    assert again._repr_html_() == pair._repr_html_()
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "pair.json").read_bytes()
    again.report(tmp_path / "again.html")
    pair.report(tmp_path / "pair.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "pair.html").read_bytes()


def test_evidence_of_another_model_is_refused(tmp_path: Path) -> None:
    held().save(tmp_path / "pair.json")
    data = json.loads((tmp_path / "pair.json").read_text())
    other = json.loads(json.dumps(data))
    other["log"] = other["log"][:-1]
    other["status"] = "cut"
    assert "evidence is of another model" in refused(
        ModelFileError, lambda: ReconciledPair.from_json(other)
    )
    for key in ("certificate", "measured"):
        gone = json.loads(json.dumps(data))
        del gone["evidence"][key]
        with pytest.raises(ModelFileError, match="evidence"):
            ReconciledPair.from_json(gone)
    changed = json.loads(json.dumps(data))
    changed["evidence"]["measured"]["history"][0]["brier"] = "0.1"
    refused(ModelFileError, lambda: ReconciledPair.from_json(changed))
    del data["evidence"]
    bare = ReconciledPair.from_json(data)
    assert bare.certificate is None and bare.history is None and bare._repr_html_() is None
    words = refused(UsageError, lambda: bare.summary())
    assert "pair.evaluate(data) measures it on labelled rows" in words


# --- new rows -------------------------------------------------------------------------------------


def test_new_rows_say_what_holdout_rows_of_the_fit_would(tmp_path: Path) -> None:
    one, two, y = rows()
    mask = np.arange(len(y)) % 3 == 0
    pair = Reconciler(**GIVEN).fit(one, two, y, holdout=mask)
    pair.save(tmp_path / "pair.json")
    for model in (pair, ReconciledPair.load(tmp_path / "pair.json")):
        seen = model.evaluate(one[mask], two[mask], y[mask])
        assert pair.certificate is not None and seen.rows == mask.sum()
        promised = [x for x in pair.certificate.checks if x.kind == "promise"]
        assert list(seen.certificate.checks) == [x for x in promised if x.split == "holdout"]
        ours = pair.summary().to_pandas().query("split == 'holdout'").reset_index(drop=True)
        assert seen.summary().to_pandas().equals(ours)
    with pytest.raises(InputError, match="no rows to evaluate on"):
        pair.evaluate(one, two, np.full(len(y), np.nan))
    with pytest.raises(UsageError, match="delta: must be in"):
        pair.evaluate(one, two, y, delta=0)
