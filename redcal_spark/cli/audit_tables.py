"""The tables of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from redcal_spark.cli.tables import Shown, columns_of
from redcal_spark.core.metrics import brier_words
from redcal_spark.core.number_text import cost_texts, plural, share_text, weight_text

LARGEST = 8  # pairs of actions, actions, coordinates or segments that are listed
PAIRS = 3  # of more than two models, shown at length
ONE = Fraction(1)


def audit_tables(
    audit: Mapping[str, Any], models: Sequence[str], binary: bool = False, unit: Fraction = ONE
) -> list[Shown]:
    """The audit: the models side by side, where they part ways, and what is to do.

    audit: as `audit_rows` gives it. binary: scores are one column P(1), whose usual Brier score is
    half of that over both classes.
    """
    weights = audit.get("weights")
    head = f"{audit['rows']:,} labelled rows"
    if weights is not None:
        count = weight_text(audit["rows"], unit)
        head = f"{weights['rows']:,} labelled rows, weighted: they count as {count}"
    both = columns_of([head], models)
    usual = (x / 2 if binary else x for x in audit["brier"])
    both.add_row(brier_words(binary), *(f"{x:.4f}" for x in usual))
    shown: list[Shown] = [both]
    for loss in audit["losses"]:
        name = loss["loss"]
        *own, optimum = cost_texts([*loss["decision_loss"], loss["optimal_loss"]])
        both.add_row(f"{name}: cost", *own)
        both.add_row(f"{name}: cost if the outcome were known", *[optimum] * len(models))
        both.add_row(f"{name}: above that", *cost_texts(loss["loss_gap"]))
        apart = share_text(loss["disagreement"])
        shown.append(f"\n{name}: the models disagree on {apart} of the rows")
        if "by_pair" in loss:
            shown += _matrix(loss, models, unit)
        else:
            shown += _pairs(loss, loss["actions"], models, ("1", "2"), unit)
        shown += _calibration(loss, audit["intervals"]["level"], models)
    shown += _coordinates(audit, models, unit)
    shown += _segments(audit, models, unit)
    if "to_fix" in audit:
        shown += ["", *_to_fix(audit["to_fix"], audit["losses"], models, unit)]
    return shown


def _segments(audit: Mapping[str, Any], models: Sequence[str], unit: Fraction) -> Iterator[Shown]:
    """Per segment column and loss: the segments with most rows."""
    lines = audit.get("segments", ())
    for column in dict.fromkeys(line["segment"] for line in lines):
        own = [line for line in lines if line["segment"] == column]
        for place, loss in enumerate(audit["losses"]):
            head = column if len(audit["losses"]) == 1 else f"{column}, {loss['loss']}"
            table = columns_of([head], ("rows", "disagree", *(f"cost of {m}" for m in models)))
            first = own[:LARGEST]
            costs = iter(
                cost_texts([c for line in first for c in line["losses"][place]["decision_loss"]])
            )
            for line in first:
                value = {"null": "(null)", "other": "(other)"}.get(line["kind"], line["value"])
                apart = share_text(line["losses"][place]["disagreement"])
                table.add_row(
                    value, weight_text(line["rows"], unit), apart, *(next(costs) for _ in models)
                )
            yield ""
            yield table
            if len(own) > LARGEST:
                yield f"... and {len(own) - LARGEST} more segments"


def _matrix(loss: Mapping[str, Any], models: Sequence[str], unit: Fraction) -> Iterator[Shown]:
    """Every pair of models: the share of rows with other actions; then the largest at length."""
    shares = {tuple(pair["models"]): share_text(pair["disagreement"]) for pair in loss["by_pair"]}
    table = columns_of(["disagree"], models[1:])
    for i, name in enumerate(models[:-1], 1):
        table.add_row(name, *(shares.get((i, j), "") for j in range(2, len(models) + 1)))
    yield table
    order = sorted(loss["by_pair"], key=lambda pair: -pair["disagreement_rows"])
    for pair in order[:PAIRS]:
        two = [models[i - 1] for i in pair["models"]]
        if pair["pairs"]:
            yield ""
            yield from _pairs(pair, loss["actions"], two, two, unit)
    if len(order) > PAIRS:
        yield f"... and {len(order) - PAIRS} more pairs of models"


def _pairs(
    loss: Mapping[str, Any],
    actions: Sequence[str],
    models: Sequence[str],
    short: Sequence[str],
    unit: Fraction,
) -> Iterator[Shown]:
    """Where the actions differ, what each of them costs there, and whose is the cheaper.

    short: what the two models are called in the heads of columns.
    """
    pairs, numbered = loss["pairs"], loss.get("models", (1, 2))
    if not pairs:
        return
    numbers = ["rows", "share", "beyond\nalpha"]
    if loss["costs_known"]:
        numbers += [f"cost\nof {short[0]}", f"cost\nof {short[1]}", "right\nmodel"]
    table = columns_of(models, numbers)
    costs = cost_texts([x for pair in pairs[:LARGEST] for x in pair["cost"] or ()])
    doubtful = False
    for place, pair in enumerate(pairs[:LARGEST]):
        line = [weight_text(pair["rows"], unit), share_text(pair["mass"])]
        line.append(weight_text(pair["event_rows"], unit))
        if loss["costs_known"]:
            right = "none" if pair["right"] is None else short[numbered.index(pair["right"])]
            doubtful = doubtful or not pair["sure"]
            line += [*costs[2 * place : 2 * place + 2], right + ("" if pair["sure"] else "?")]
        table.add_row(actions[pair["a1"]], actions[pair["a2"]], *line)
    yield table
    if len(pairs) > LARGEST:
        yield f"... and {len(pairs) - LARGEST} more pairs of actions"
    if doubtful:
        yield "? may be chance: the interval of the difference (Hoeffding, 95 %) contains 0"
    if not loss["costs_known"]:
        yield "costs of these pairs are not counted: too many actions and classes"


def _calibration(loss: Mapping[str, Any], level: float, models: Sequence[str]) -> Iterator[Shown]:
    """Per action the gap of each model; the largest first."""
    gaps: dict[int, list[Any]] = {}
    for cell in loss["calibration"]:
        gaps.setdefault(cell["action"], []).append(cell)
    order = sorted(gaps, key=lambda action: (-max(c["gap"] for c in gaps[action]), action))
    level_told = f"{level * 100:g} %"
    short = ("1", "2") if len(models) == 2 else models
    heading = [x for m in short for x in (f"rows\nof {m}", f"gap of {m}\n({level_told})")]
    table = columns_of(["calibration"], heading)
    for action in order[:LARGEST]:
        line = []
        for cell in gaps[action]:
            gap = f"{cell['gap']:.4f} ({cell['low']:.3f}-{cell['high']:.3f})"
            line += [share_text(cell["mass"]), gap if cell["rows"] else ""]
        table.add_row(loss["actions"][action], *line)
    yield table
    if len(order) > LARGEST:
        yield f"... and {len(order) - LARGEST} more actions"


def _coordinates(
    audit: Mapping[str, Any], models: Sequence[str], unit: Fraction
) -> Iterator[Shown]:
    """For Reconcile: where the scores differ beyond alpha."""
    coordinates = audit["coordinates"]
    if not coordinates:
        return
    table = columns_of(["scores further apart than alpha"], ["rows", "share"])
    order = sorted(coordinates, key=lambda c: (-c["rows"], c["coordinate"]))
    for c in order[:LARGEST]:
        name = f"class {c['coordinate']}" if c["class"] is None else c["class"]
        if "models" in c:
            name += f", {' / '.join(models[i - 1] for i in c['models'])}"
        table.add_row(name, weight_text(c["rows"], unit), share_text(c["mass"]))
    yield ""
    yield table
    if len(order) > LARGEST:
        yield f"... and {len(order) - LARGEST} more classes"


def _to_fix(
    todo: Mapping[str, Any],
    losses: Sequence[Mapping[str, Any]],
    models: Sequence[str],
    unit: Fraction,
) -> Iterator[str]:
    rows = f"the {weight_text(todo['rows'], unit)} fitting rows"
    least = "eta: auto, its smallest candidate" if todo.get("eta_auto") else "eta"
    share = "" if todo["eta"] is None else f"{share_text(todo['eta'])} ({least})"
    if todo["calibrations"]:
        actions = plural(len(todo["calibrations"]), "action")
        limit = f"beta = {todo['beta']:g}"
        yield f"to calibrate on {rows}: {actions} of a model with a gap above {limit}"
    elif todo["algorithm"] == "decision_calibration":
        yield f"to calibrate on {rows}: no gap is above beta = {todo['beta']:g}"
    if todo["algorithm"] in ("redcal", "dc_then_redcal"):
        text = f"to reconcile on {rows}: {plural(len(todo['events']), 'event')} with "
        text += f"{share} of them or more"
        if todo["events"]:
            first = todo["events"][0]
            names = next(loss["actions"] for loss in losses if loss["loss"] == first["loss"])
            event = f"{names[first['a1']]} / {names[first['a2']]}"
            if "models" in first:
                event += f" ({' / '.join(models[i - 1] for i in first['models'])})"
            text += f"; the first: {first['loss']}, {event}, {_rows(first['rows'], unit)}"
        yield text
    if todo["algorithm"] == "reconcile":
        classes = plural(len(todo["coordinates"]), "class", "classes")
        yield f"to reconcile on {rows}: {classes} with {share} of them or more beyond alpha"


def _rows(count: int, unit: Fraction) -> str:
    return plural(count, "row") if unit == 1 else f"{weight_text(count, unit)} rows"
