"""Rules between keys, over the data as given: some of it may be wrong or missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from redcal_spark.config.class_order import in_other_order
from redcal_spark.config.section import KeyPath, Refusal, as_list, as_mapping, dotted, plain
from redcal_spark.config.tables import SIDE_TABLES, place_of, sibling

MODELS = ("model_1", "model_2")
SHEETS = (".csv", ".tsv", ".txt", ".json", ".xls", ".xlsx")  # no form that results have


def scores_in(given: Mapping[str, Any]) -> list[tuple[KeyPath, Any]]:
    """The scores of every model in the section `input`, and where they stand."""
    named = given.get("models")
    if named is None:
        return [((key,), given.get(key)) for key in MODELS]
    return [(("models", str(name)), scores) for name, scores in as_mapping(named).items()]


def repeats(key: str, names: object, within: KeyPath = ()) -> Iterator[Refusal]:
    seen: dict[str, int] = {}
    for index, name in enumerate(as_list(names)):
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            yield (*within, key, index), f"is the same as {key}[{seen[name]}]"


def missing_keys(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """What one section needs of another."""
    algorithm = as_mapping(data.get("reconcile")).get("algorithm", "redcal")
    needed = algorithm in ("redcal", "decision_calibration", "dc_then_redcal")
    if needed and not data.get("losses"):
        yield ("losses",), f"is required for {algorithm}"
    output = as_mapping(data.get("output"))
    merges, id = output.get("mode") == "merge", as_mapping(data.get("input")).get("id")
    if merges and id is None:
        yield ("input", "id"), "is required for output.mode: merge"
    carried = as_list(output.get("columns"))
    if merges and id is not None and carried and id not in carried:
        text = f"must have {id!r} (input.id): output.mode: merge finds rows by it"
        yield ("output", "columns"), text
    guard = as_mapping(data.get("reconcile")).get("guard")
    if guard == "best_prefix" and as_mapping(data.get("input")).get("split") is None:
        yield ("reconcile", "guard"), "best_prefix needs holdout rows: set input.split"


def unknown_tie(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """What decides rows in dispute: a model there is, or a rule."""
    tie = as_mapping(data.get("output")).get("tie", "off")
    if tie != "off" and not data.get("losses"):
        yield ("output", "tie"), "needs losses: without them there is nothing to decide"
    known = ["off", *(str(path[-1]) for path, _ in scores_in(as_mapping(data.get("input"))))]
    if isinstance(tie, str) and tie not in (*known, "cheaper"):
        yield ("output", "tie"), f"must be {', '.join(known)}, cheaper or null, got {tie!r}"


def unequal_sizes(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """Everything that tells the number of classes must tell the same."""
    given = as_mapping(data.get("input"))
    sizes: list[tuple[KeyPath, int]] = [(("input", "classes"), len(as_list(given.get("classes"))))]
    for path, scores in scores_in(given):
        sizes.append((("input", *path), len(as_list(scores))))
        columns = as_list(as_mapping(scores).get("columns"))
        sizes.append((("input", *path, "columns"), len(columns)))
    for name, loss in as_mapping(data.get("losses")).items():
        rows = as_list(as_mapping(plain(loss)).get("costs"))
        sizes.append((("losses", name, "costs"), len(as_list(rows[0])) if rows else 0))
    # What is shorter is not a list, or is refused on its own.
    sizes = [(path, size) for path, size in sizes if size >= 2]
    for path, size in sizes[1:]:
        first, expected = sizes[0]
        if size != expected:
            yield path, f"is for {size} classes, but {dotted(first)} is for {expected}"


def columns_of(scores: Any) -> list[Any]:
    """The columns in a model's scores as given, in a table of their own or not."""
    return as_list(as_mapping(scores).get("columns")) if as_mapping(scores) else as_list(scores)


def mixed_up_classes(
    given: Mapping[str, Any], classes: object, source: str
) -> Iterator[tuple[KeyPath, str]]:
    """Score columns that are named after the classes must be in their order.

    given: the section `input`. source: what has the classes.
    """
    names = [name for name in as_list(classes) if isinstance(name, str)]
    for path, scores in scores_in(given):
        columns = [name for name in columns_of(scores) if isinstance(name, str)]
        problem = in_other_order(columns, names, source) if names else None
        if problem is not None:
            yield ("input", *path), problem


def single_files(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """Results are no files; without this, `out.csv` is a table of a catalog, which wants Spark."""
    table = as_mapping(data.get("output")).get("table")
    if not isinstance(table, str):
        return
    ending = os.path.splitext(table)[1].lower()
    if ending in SHEETS and not os.path.exists(table):  # a file has a message, a folder is a table
        text = f"results are Delta tables, not {ending[1:]} files: name a folder, as out/scores"
        yield ("output", "table"), text


def shared_tables(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """No output may overwrite an input or another output."""
    given, output = as_mapping(data.get("input")), as_mapping(data.get("output"))
    taken = {place_of(given.get("table")): "input.table"}
    for path, scores in scores_in(given):
        own = dotted(("input", *path, "table"))
        taken.setdefault(place_of(as_mapping(scores).get("table")), own)
    table = output.get("table")
    for key in ("table", *SIDE_TABLES, "checkpoint"):
        name = output.get(key)
        if name is None and isinstance(table, str):
            name = sibling(table, key)
        place = place_of(name)
        if place is None:
            continue
        if taken.setdefault(place, f"output.{key}") != f"output.{key}":
            yield ("output", key), f"is the same table as {taken[place]}"
        for folder, source in taken.items():
            # the next run would read what this one wrote; VACUUM would empty a checkpoint
            kept_out = source.startswith("input.") or key == "checkpoint"
            if folder and kept_out and place.startswith(folder + os.sep):
                yield ("output", key), f"is inside the folder of {source}"
