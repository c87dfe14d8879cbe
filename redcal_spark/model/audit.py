"""The audit: how much the models disagree and what that costs, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.intervals import AUDIT_LEVEL, calibration_margin, cost_margin
from redcal_spark.core.columns import Columns
from redcal_spark.core.events import Pair, pairs_of
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS
from redcal_spark.core.history import Point, before_and_after
from redcal_spark.core.metrics import Metrics, root
from redcal_spark.core.moves import moves_json
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import ScanResult
from redcal_spark.model.segment_audit import all_segments, segments_by_stage

INTERVALS = {
    "level": AUDIT_LEVEL,
    "calibration_gap": "McDiarmid: holds for any number of rows, given the scores, for labels that "
    "are independent and are classes or distributions; each gap by itself",
    "cost_difference": "Hoeffding: holds for any number of rows, given the scores, for labels that "
    "are independent and are classes or distributions; each pair by itself",
}


def audit_rows(problem: Problem, gathered: ScanResult) -> dict[str, Any]:
    """Of all labelled rows; what there is to fix is counted on the fitting ones."""
    everything = Metrics(gathered.fit.totals + gathered.holdout.totals, problem.losses)
    to_mend = to_fix(Metrics(gathered.fit.totals, problem.losses), problem.parameters)
    data = audit(everything, problem.columns) | {"to_fix": to_mend}
    if "weights" in data:
        data["weights"] |= {"weightless_rows": gathered.weightless}
    if everything.totals.segments is not None:
        data["segments"] = all_segments(everything.totals, problem)
    return data


def audits(
    pair: Fitted,
    histories: Mapping[str, Sequence[Point]],
    certificate: Certificate | None = None,
) -> dict[str, Any]:
    """The audit of the first and of the last point, per split.

    Without its `pairs`: `rows` and `event_rows` say which there are, and what they cost is counted
    by `redcal audit` alone. At 50 actions they would be two thirds of it. With its `moves`, of
    holdout rows after the last patch: `core.moves.moves_json` says what they are.
    """

    def small(metrics: Metrics) -> dict[str, Any]:
        data = audit(metrics, pair.columns)
        for loss in data["losses"]:
            for each in loss.get("by_pair", [loss]):
                del each["pairs"], each["costs_known"]
        moves = moves_json(metrics.totals, metrics.losses)
        return data if moves is None else data | {"moves": moves}

    stages = before_and_after(histories, pair.losses)
    by_split = {
        split: {stage: small(metrics) for stage, metrics in both.items()}
        for split, both in stages.items()
    }
    for split, both in segments_by_stage(pair, histories, certificate).items():
        for stage, lines in both.items():
            by_split[split][stage]["segments"] = lines
    return by_split


def audit(metrics: Metrics, columns: Columns | None = None) -> dict[str, Any]:
    """Plain data, ready for `json.dumps`. Floats are for people; integers and texts are exact.

    rows: labelled rows that were looked at; where they have weights, the sum of these.
    segments: only where there are segment columns, as `segment_audit` has them.
    weights: only then, {rows, largest, effective}: the rows with a weight above 0, the largest
    weight in units, and how many rows of equal weight would say as much.
    models: their names, only where users gave them names.
    brier, brier_sums: per model, the mean squared error over all classes (of one column P(1) twice
    the usual one) and its sum in units of 2^-52, as text.
    intervals: what the intervals below are, in words.
    coordinates: for Reconcile, {coordinate, class, rows, mass} beyond its alpha; else empty.
    losses: per loss
        loss, actions: their names.
        decision_loss, loss_gap: per model, the mean cost and what of it is above optimal_loss,
        that of the actions that know the label; decision_loss_exact, optimal_loss_exact: "a/b".
        disagreement, disagreement_rows: where not all actions are the same, by whatever margin.
        largest_event, largest_event_rows: the largest disagreement beyond alpha.
        calibration_gap: per model, the largest gap below.
        calibration: {model, action, rows, mass, gap, low, high, squared_gap_exact}: the norm of
        the mean of y - f over all rows, counted where this is the model's action.
        by_action: {model, action, rows, mass, cost, cost_exact}: what of the mean cost comes from
        the rows where this is the model's action; over all actions they add up to decision_loss.
        rows, event_rows: matrices, a1 x a2.
        pairs: per a1 != a2 that occurs, largest event first, {a1, a2, rows, mass, event_rows,
        event_mass, cost, cost_exact, difference, low, high, right, sure}. cost: what a1 and what
        a2 costs on average on these rows, by their labels, in the user's units; difference: of
        the first to the second, with its interval; right: the model with the cheaper action, or
        null; sure: the interval leaves no doubt of it. These are null where costs_known is false:
        for a loss of too many actions and classes, and where rows were not read for an audit.
    Of more than two models, coordinates have `models`, the two that they are of, and a loss has
    by_pair instead of rows, event_rows, costs_known and pairs: per pair of models {models,
    disagreement, disagreement_rows, largest_event, largest_event_rows} and these; `right` is then
    one of the two models.
    """
    classes, names = (None, None) if columns is None else (columns.classes, columns.model_names)
    weights = metrics.totals.weights_seen
    return {
        "rows": metrics.rows,
        **({} if weights is None else {"weights": weights}),
        **({} if names is None else {"models": list(names)}),
        "brier": [float(metrics.brier(m)) for m in metrics.models],
        "brier_sums": [str(total) for total in metrics.totals.brier],
        "intervals": INTERVALS,
        "coordinates": list(_coordinates(metrics, classes)),
        "losses": [_loss(metrics, place) for place in range(len(metrics.losses))],
    }


def to_fix(metrics: Metrics, parameters: Parameters) -> dict[str, Any]:
    """What the algorithm finds to do when it starts, on the rows that it is fitted on.

    rows: of these. alpha, eta, beta: null where the algorithm has none; beta as resolved.
    eta_auto: only where eta is still to be chosen: true; eta is its smallest candidate.
    events: for ReDCal, {loss, a1, a2, rows, mass} with a mass of eta or more, in its order.
    event_rows: per loss, the rows in such events, each once.
    calibrations: for Decision Calibration everywhere, {loss, action, model, gap} beyond beta.
    coordinates: for Reconcile, {coordinate, rows, mass} with a mass of eta or more.
    Of more than two models, events and coordinates have `models`, the two that they are of, and
    event_rows is null: a row may be in events of several pairs.
    """
    n, losses, chosen = metrics.rows, metrics.losses, parameters.tunes
    parameters = parameters.known
    resolved = parameters.resolve(int(metrics.totals.effective), metrics.totals.gaps.shape[1])
    least = None if resolved.eta is None else resolved.eta * n
    events: list[dict[str, Any]] = []
    calibrations: list[dict[str, Any]] = []
    coordinates: list[dict[str, Any]] = []
    if least is not None and parameters.reconciles_decisions:
        for loss, counts in zip(losses.losses, metrics.totals.events, strict=True):
            large = np.moveaxis(counts >= max(1, ceil(least)), 0, 2)  # in the order of ties
            for a1, a2, pair in np.argwhere(large).tolist():
                rows = int(counts[pair, a1, a2])
                event = {"loss": loss.name, **_whose(metrics, pair), "a1": a1, "a2": a2}
                events.append(event | {"rows": rows, "mass": rows / n})
        events.sort(key=lambda event: -event["rows"])  # stable: ties stay in their order
    if parameters.calibrates_everywhere:
        assert resolved.beta is not None
        for model in metrics.models:
            for place, loss in enumerate(losses.losses):
                for action, square in enumerate(metrics.squared_calibration_gaps(place, model)):
                    if square > resolved.beta**2:
                        choice = {"loss": loss.name, "action": action, "model": model}
                        calibrations.append(choice | {"gap": root(square)})
    if least is not None and parameters.reconciles_scores:
        coordinates = [
            _whose(metrics, pair) | {"coordinate": j, "rows": rows, "mass": rows / n}
            for pair, line in enumerate(metrics.totals.gaps.tolist())
            for j, rows in enumerate(line)
            if rows >= least
        ]
    return {
        "algorithm": parameters.algorithm,
        "rows": n,
        "alpha": parameters.alpha,
        "eta": parameters.eta,
        **({"eta_auto": True} if chosen else {}),
        "beta": None if resolved.beta is None else float(resolved.beta),
        "events": events,
        "event_rows": {
            loss.name: sum(event["rows"] for event in events if event["loss"] == loss.name)
            for loss in losses.losses
        }
        if len(metrics.models) == 2
        else None,
        "calibrations": calibrations,
        "coordinates": coordinates,
    }


def _coordinates(metrics: Metrics, classes: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    for pair, line in enumerate(metrics.totals.gaps.tolist()):
        for j, rows in enumerate(line):
            if rows:
                name = None if classes is None else classes[j]
                where = _whose(metrics, pair) | {"coordinate": j, "class": name}
                yield where | {"rows": rows, "mass": rows / metrics.rows}


def _whose(metrics: Metrics, pair: int) -> dict[str, Any]:
    """The models of a pair, where there are more than two."""
    models = pairs_of(len(metrics.models))[pair]
    return {} if len(metrics.models) == 2 else {"models": list(models)}


def _loss(metrics: Metrics, place: int) -> dict[str, Any]:
    loss, totals = metrics.losses[place], metrics.totals
    costs = [metrics.decision_loss(place, model) for model in metrics.models]
    optimum = metrics.optimal_loss(place)
    pairs = [_pair(metrics, place, pair) for pair in range(len(totals.pairs[place]))]
    return {
        "loss": loss.name,
        "actions": list(loss.actions),
        "decision_loss": [float(cost) for cost in costs],
        "decision_loss_exact": [str(cost) for cost in costs],
        "optimal_loss": float(optimum),
        "optimal_loss_exact": str(optimum),
        "loss_gap": [float(cost - optimum) for cost in costs],
        "disagreement": float(metrics.disagreement(place)),
        "disagreement_rows": int(metrics.disagreement(place) * metrics.rows),
        "largest_event": float(metrics.largest_event(place)),
        "largest_event_rows": int(totals.events[place].max()),
        "calibration_gap": [
            root(metrics.squared_calibration_gap(place, m)) for m in metrics.models
        ],
        "calibration": list(_calibration(metrics, place)),
        "by_action": list(_by_action(metrics, place)),
        **(pairs[0] if len(pairs) == 1 else {"by_pair": pairs}),
    }


def _pair(metrics: Metrics, place: int, pair: int) -> dict[str, Any]:
    """What one pair of models does under a loss."""
    rows, events = metrics.totals.pairs[place][pair], metrics.totals.events[place][pair]
    whose = _whose(metrics, pair)
    if whose:
        apart, largest = int(rows.sum() - np.trace(rows)), int(events.max())
        whose |= {"disagreement": apart / metrics.rows, "disagreement_rows": apart}
        whose |= {"largest_event": largest / metrics.rows, "largest_event_rows": largest}
    return whose | {
        "rows": rows.tolist(),
        "event_rows": events.tolist(),
        "costs_known": _pair_labels(metrics, place) is not None,
        "pairs": _pairs(metrics, place, pair),
    }


# --- calibration --------------------------------------------------------------------------------


def _taken(metrics: Metrics, place: int, model: int) -> list[dict[str, Any]]:
    """Per action of a loss, the rows on which it is the model's."""
    rows = metrics.totals.taken(place, model).tolist()
    return [
        {"model": model, "action": action, "rows": count, "mass": count / metrics.rows}
        for action, count in enumerate(rows)
    ]


def _calibration(metrics: Metrics, place: int) -> Iterator[dict[str, Any]]:
    for model in metrics.models:
        squares = metrics.squared_calibration_gaps(place, model)
        for taken, square in zip(_taken(metrics, place, model), squares, strict=True):
            # the squares of weights add up to the largest times their sum, at most
            heavy = taken["rows"] * metrics.totals.heaviest
            gap, margin = root(square), calibration_margin(heavy, metrics.rows)
            yield taken | {
                "gap": gap,
                "low": max(0.0, gap - margin),
                "high": gap + margin,
                "squared_gap_exact": str(square),
            }


# --- cost by action ------------------------------------------------------------------------------


def _by_action(metrics: Metrics, place: int) -> Iterator[dict[str, Any]]:
    cells, (costs, unit) = metrics.losses.cells(place), metrics.losses[place].whole_costs
    for model in metrics.models:
        labels = metrics.totals.labels[model - 1][cells].tolist()
        for taken, line, sums in zip(_taken(metrics, place, model), costs, labels, strict=True):
            total = sum(c * y for c, y in zip(line, sums, strict=True))
            cost = Fraction(total, unit * metrics.rows << BITS)
            yield taken | {"cost": float(cost), "cost_exact": str(cost)}


# --- pairs of actions -----------------------------------------------------------------------------


def _pair_labels(metrics: Metrics, place: int) -> Any:
    labels = metrics.totals.pair_labels[place] if metrics.totals.pair_labels else None
    return None if labels is None or not labels.size else labels


def _pairs(metrics: Metrics, place: int, which: int) -> list[dict[str, Any]]:
    loss, n, totals = metrics.losses[place], metrics.rows, metrics.totals
    rows, events = (x[place][which].tolist() for x in (totals.pairs, totals.events))
    labels, whole = _pair_labels(metrics, place), loss.whole_costs
    models = pairs_of(len(metrics.models))[which]
    pairs = []
    for a1 in range(loss.n_actions):
        for a2 in range(loss.n_actions):
            count = rows[a1][a2]
            if a1 != a2 and count:
                pair = {"a1": a1, "a2": a2, "rows": count, "mass": count / n}
                event = events[a1][a2]
                pair |= {"event_rows": event, "event_mass": event / n}
                sums = None if labels is None else labels[which, a1, a2].tolist()
                heaviest = metrics.totals.heaviest
                pairs.append(pair | _costs(whole, a1, a2, count, sums, models, heaviest))
    pairs.sort(key=lambda pair: (-pair["event_rows"], -pair["rows"]))
    return pairs


def _costs(
    whole: tuple[list[list[int]], int],
    a1: int,
    a2: int,
    rows: int,
    labels: list[int] | None,
    models: Pair,
    heaviest: int,
) -> dict[str, Any]:
    if labels is None:
        names = ("cost", "cost_exact", "difference", "low", "high", "right", "sure")
        return dict.fromkeys(names)
    costs, unit = whole
    one, two = (
        Fraction(sum(c * y for c, y in zip(costs[a], labels, strict=True)), unit * rows << BITS)
        for a in (a1, a2)
    )
    each = [x - y for x, y in zip(costs[a1], costs[a2], strict=True)]
    width = Fraction(max(each) - min(each), unit)
    difference, margin = float(one - two), cost_margin(width, Fraction(rows, heaviest))
    return {
        "cost": [float(one), float(two)],
        "cost_exact": [str(one), str(two)],
        "difference": difference,
        "low": difference - margin,
        "high": difference + margin,
        "right": None if one == two else models[0] if one < two else models[1],
        "sure": abs(difference) > margin,
    }
