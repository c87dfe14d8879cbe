"""The model as plain data: fields in order, versions refused by name, damage never applied."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core.patches import FIELDS, Patch, PatchLog
from redcal_spark.errors import ModelFileError, RedcalError
from redcal_spark.model.model_file import replay_version
from redcal_spark.runs.ledger import digest
from tests import oracle, problems
from tests.helpers import DRAWN, arrays, fit, quietly, refused
from tests.oracle import ALGORITHMS, Problem

Place = tuple[Any, ...]


@cache
def problem(algorithm: str) -> Problem:
    """A small problem with patches of every kind that the algorithm has."""
    seed = 0
    while True:
        found = problems.random_problem(seed, algorithm=algorithm, binary=False, max_n=12, max_d=3)
        kinds = {(p["kind"], p["round"] is None) for p in oracle.fit(found).log}
        if len(kinds) >= {"redcal": 2, "dc_then_redcal": 2}.get(algorithm, 1):
            return found
        seed += 1


@cache
def saved(algorithm: str) -> str:
    return json.dumps(fit(problem(algorithm)).to_json())


def places(data: Any, here: Place = ()) -> Iterator[Place]:
    """Every place in nested plain data."""
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data[:3])  # a few of a long list
    for key, value in items:
        yield (*here, key)
        yield from places(value, (*here, key))


def put(data: Any, place: Place, value: Any) -> Any:
    """A copy with another value at this place."""
    changed = copy.deepcopy(data)
    target = changed
    for key in place[:-1]:
        target = target[key]
    if value is MISSING:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return changed


MISSING = object()
TWO = ("model_1", "model_2")


# Patches


def test_fields_of_a_patch_in_their_order() -> None:
    assert (
        *("step", "round", "kind", "model", "other", "loss", "a1", "a2"),
        *("action", "coordinate", "direction", "rows", "phi"),
    ) == FIELDS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_line_of_the_log_is_one_json_object_with_exactly_the_fields(algorithm: str) -> None:
    log = fit(problem(algorithm)).log
    for patch, expected in zip(log, oracle.fit(problem(algorithm)).log, strict=True):
        line = patch.to_line()
        assert "\n" not in line
        pairs = json.loads(line, object_pairs_hook=list)
        assert [key for key, _ in pairs] == list(FIELDS)
        assert json.loads(line) == expected
        assert Patch.from_json(json.loads(line)) == patch
    assert PatchLog.from_json(log.to_json()) == log


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_patch_can_be_made_of_its_event(algorithm: str) -> None:
    pair = fit(problem(algorithm))
    for patch in pair.log:
        others = {name: getattr(patch, name) for name in ("step", "round", "model", "rows", "phi")}
        assert Patch.of(patch.event(pair.losses), pair.losses, **others) == patch
        assert patch.kind in pair.parameters.kinds


def test_a_patch_by_hand() -> None:
    line = (
        '{"step": 0, "round": 0, "kind": "score", "model": 1, "other": 2, "loss": null, '
        '"a1": null, "a2": null, "action": null, "coordinate": 1, "direction": "<", "rows": 10, '
        '"phi": [13631488]}'
    )
    assert fit(problems.theorem_1(phi=0.2)).log[0].to_line() == line


# Files


@pytest.mark.parametrize("version", [0, 4, 2.0, True, "1", None, "2024.1"])
def test_unknown_versions_are_refused_by_name(version: Any) -> None:
    data = json.loads(saved("redcal")) | {"schema_version": version}
    assert refused(ModelFileError, lambda: ReconciledPair.from_json(data)) == (
        f"schema_version {version!r} is unknown here; this release reads versions 1 to 3: "
        "use the release of redcal_spark that wrote the model"
    )


def test_a_file_of_the_first_release_still_loads_and_says_the_same() -> None:
    """Written by it, with what it made of six rows."""
    known = json.loads(Path(__file__).with_name("model_version_1.json").read_text("utf-8"))
    pair = ReconciledPair.from_json(known["model"])
    found = [new.tolist() for new in pair.apply(*known["scores"])]
    assert found == known["reconciled"] != known["scores"]
    assert pair.to_json(1) == known["model"]
    newer = pair.to_json(2)
    for loss in newer["losses"]:
        del loss["bits"], loss["quantised"]
    assert newer == known["model"] | {"schema_version": 2}
    newest = pair.to_json()
    assert newest.pop("weights") is None
    assert newest["columns"].pop("weight") is None
    assert newest["columns"].pop("weight_unit") == 1
    assert newest["columns"].pop("segments") == []
    assert newest["columns"].pop("models") == [known["model"]["columns"][k] for k in TWO]
    assert newest["columns"].pop("model_names") is None
    assert newest["columns"] == {k: x for k, x in newer["columns"].items() if k not in TWO}
    for patch, old in zip(newest["log"], newer["log"], strict=True):
        other = patch.pop("other")
        assert patch == old
        assert other == (None if patch["kind"] == "calibrate" else 3 - patch["model"])
    assert digest(pair.to_json(1)) == digest(known["model"])  # which checkpoints know it by


def test_the_quantised_costs_by_hand() -> None:
    """Three classes leave 34 bits for 26: (M - min) / (max - min) in units of 2^-26."""
    costs = [[0.0, 5.0, 10.0], [1.0, 2.5, 0.0]]
    scores = [[0.5, 0.25, 0.25]]
    pair = Reconciler(losses={"triage": costs}, alpha=0.1, eta=0.5).fit(scores, scores, [0])
    [loss] = pair.to_json()["losses"]
    assert loss["bits"] == 26
    assert loss["quantised"] == [[0, 2**25, 2**26], [6710886, 2**24, 0]]  # a tenth, rounded


@pytest.mark.parametrize("key", ["bits", "quantised", "costs"])
def test_quantised_costs_that_are_not_those_of_the_costs(key: str) -> None:
    data = json.loads(saved("redcal"))
    loss = data["losses"][0]
    if key == "bits":
        loss["bits"] -= 1
    elif key == "quantised":
        loss["quantised"][0][0] += 1
    else:
        place = loss["costs"][0].index(sorted(loss["costs"][0])[0])
        loss["costs"][0][place] -= 1.0
    assert refused(ModelFileError, lambda: ReconciledPair.from_json(data)) == (
        f"damaged model: loss {loss['name']!r}: the quantised costs are not those of its costs"
    )


@pytest.mark.parametrize(("names", "binary"), [(["b"], False), (["b", "c", "d"], True)])
def test_score_columns_that_are_not_one_a_class(names: list[str], binary: bool) -> None:
    data = json.loads(saved("redcal"))
    assert data["n_classes"] == 3
    data["columns"]["models"][1], data["binary"] = names, binary
    assert refused(ModelFileError, lambda: ReconciledPair.from_json(data)) == (
        f"damaged model: score columns {tuple(names)}, n_classes 3"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON: "),
        (b"{", "not JSON: "),
        (b"\x80\x04\x95", "not JSON: "),  # what a pickle starts with
        (b"[" * 100_000, "not JSON: "),
        (b"[]", "not a saved model: it has no schema_version"),
        (b'"x"', "not a saved model: it has no schema_version"),
        (b"{}", "not a saved model: it has no schema_version"),
        (b'{"schema_version": 1}', "damaged model: "),
        (b'{"schema_version": 2}', "damaged model: "),
    ],
)
def test_files_that_are_no_models(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    found = refused(ModelFileError, lambda: ReconciledPair.load(path))
    assert found.startswith(f"{path}: {message}")


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    assert refused(ModelFileError, lambda: ReconciledPair.load(path)) == (
        f"{path}: No such file or directory"
    )


@pytest.mark.parametrize("cut", [1, 100, -2, -30])
def test_a_file_cut_short(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    fit(problem("redcal")).save(path)
    path.write_text(path.read_text()[:cut])
    assert "not JSON" in refused(ModelFileError, lambda: ReconciledPair.load(path))


def test_a_saved_model_is_json_and_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("old")
    fit(problem("redcal")).save(path)
    assert json.loads(path.read_text())["schema_version"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


def test_a_save_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    path.write_text("old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="disk full"):
        fit(problem("redcal")).save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


# Damage

JUNK: list[Any] = [
    MISSING,
    None,
    "x",
    "",
    -1,
    0.5,
    True,
    [],
    {},
    [[]],
    float("inf"),
    float("nan"),
    2**70,
]


def check_damage(algorithm: str, data: Any, place: Place) -> None:
    """Refused; or loaded as what it says, and it can be applied."""
    rows = arrays(problem(algorithm))[:2]
    try:
        pair = ReconciledPair.from_json(data)
    except ModelFileError:
        return
    # What was loaded says what the file says: nothing was guessed or bent into shape.
    if json.loads(json.dumps(pair.to_json())) != json.loads(json.dumps(data)):
        raise AssertionError("changed in loading")
    with quietly(), suppress(RedcalError):  # these rows need not fit any more
        pair.apply(*rows)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_field_damaged_in_every_way(algorithm: str) -> None:
    data = json.loads(saved(algorithm))
    failures: list[str] = []
    for place in places(data):
        for junk in JUNK:
            if place == ("rows",) and junk == -1:
                continue  # see test_a_negative_number_of_rows_is_refused
            try:
                check_damage(algorithm, put(data, place, junk), place)
            except Exception as err:
                shown = "deleted" if junk is MISSING else repr(junk)
                failures.append(f"{place} = {shown}: {type(err).__name__}: {err}"[:100])
    assert not failures, f"{len(failures)}:\n" + "\n".join(failures)


@pytest.mark.timeout(5)
def test_a_negative_number_of_rows_is_refused() -> None:
    data = put(json.loads(saved("redcal")), ("rows",), -5)
    data["parameters"]["beta"] = "auto"
    refused(ModelFileError, lambda: ReconciledPair.from_json(data))


MUST_REFUSE: list[tuple[str, Place, Any]] = [
    ("redcal", ("status",), "banana"),
    ("redcal", ("kind",), "something.Else"),
    ("redcal", ("grid_bits",), 20),
    ("redcal", ("binary",), "no"),
    ("redcal", ("n_classes",), 1),
    ("redcal", ("resolved", "m"), 3),
    ("redcal", ("resolved", "beta"), "-1"),
    ("redcal", ("zero_calibrations",), -3),
    ("redcal", ("columns", "label"), 5),
    ("redcal", ("columns", "model_1"), []),
    ("redcal", ("losses", 0, "costs", 0), [0.0]),
    ("redcal", ("losses", 0, "name"), "another"),
    ("redcal", ("log", 0, "model"), 3),
    ("redcal", ("log", 0, "kind"), "recalibrate"),
    ("redcal", ("log", 0, "step"), 1),
    ("redcal", ("log", 0, "loss"), "no such loss"),
    ("redcal", ("log", 0, "a1"), 99),
    ("redcal", ("log", 0, "phi"), [0, 0, 0]),
    ("redcal", ("log", 0, "phi"), [1]),
    ("redcal", ("log", 0, "phi"), [2**26 + 1, 0, 0]),
    ("redcal", ("log", 0, "direction"), ">"),
    ("redcal", ("log", 0, "extra"), 1),
    ("reconcile", ("log", 0, "coordinate"), 99),
    ("reconcile", ("log", 0, "direction"), "="),
    ("reconcile", ("log", 0, "phi"), [1, 1]),
    # A log of one algorithm under the name of another cannot be replayed.
    ("reconcile", ("parameters", "algorithm"), "decision_calibration"),
    ("redcal", ("parameters", "algorithm"), "reconcile"),
]


@pytest.mark.parametrize(("algorithm", "place", "value"), MUST_REFUSE)
def test_damage_that_can_be_seen_is_refused(algorithm: str, place: Place, value: Any) -> None:
    data = put(json.loads(saved(algorithm)), place, value)
    refused(ModelFileError, lambda: ReconciledPair.from_json(data))


def test_a_log_with_a_hole_or_out_of_order_is_refused() -> None:
    log = fit(problem("redcal")).log.to_json()
    assert len(log) >= 2
    for damaged in (log[1:], log[::-1], [*log, log[-1]]):
        refused(ModelFileError, lambda: PatchLog.from_json(damaged))  # noqa: B023


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(DRAWN, max_examples=150)
@given(st.sampled_from(ALGORITHMS), st.data())
def test_drawn_damage(algorithm: str, data: st.DataObject) -> None:
    good = json.loads(saved(algorithm))
    place = data.draw(st.sampled_from(list(places(good))))
    value = data.draw(plain)
    if place == ("rows",) and isinstance(value, int | float) and not value > 0:
        return
    check_damage(algorithm, put(good, place, value), place)


def test_more_than_two_models_are_known_by_the_first_version_that_has_them() -> None:
    """Checkpoints of streams know a model by its oldest form, which must say all of it."""
    two = fit(problem("redcal"))
    assert replay_version(two) == 1
    three = fit(problems.random_problem(3, algorithm="redcal", models=3))
    assert replay_version(three) == 3
    assert ReconciledPair.from_json(three.to_json(3)).log == three.log
    named = replace(two, columns=replace(two.columns, model_names=("a", "b")))
    assert replay_version(named) == 3
