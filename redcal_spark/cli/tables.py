"""The tables that people see: of a run, a log, the ledger and a row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from rich.table import Table

from redcal_spark.certificate.certify import Certificate
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics, brier_words
from redcal_spark.core.number_text import cost_texts, share_text, weight_text
from redcal_spark.core.patches import Patch, PatchLog
from redcal_spark.core.splits import SPLITS
from redcal_spark.errors import ModelFileError
from redcal_spark.model.explanation import Explanation
from redcal_spark.runs.ledger import RunRow

Shown = Table | str


def columns_of(left: Iterable[str], right: Iterable[str]) -> Table:
    """Text on the left may wrap, numbers on the right may not."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


# --- runs -----------------------------------------------------------------------------------------


def before_and_after(
    splits: Mapping[str, tuple[Metrics, Metrics]],
    models: Sequence[str],
    losses: LossFamily,
    unit: Fraction,
) -> Table:
    """The closing table: what changed, on the rows fitted and the holdout rows.

    unit: of weights, here and below.
    """
    headings = []
    for split in splits:
        headings += [f"{SPLITS[split]}\nbefore", "\nafter"]
    table = columns_of([""], headings)
    columns = [metrics for pair in splits.values() for metrics in pair]
    table.add_row("rows", *(f"{m.totals.counted:,}" for m in columns))
    if columns[0].totals.weights is not None:
        table.add_row("sum of their weights", *(weight_text(m.rows, unit) for m in columns))
    for i, model in enumerate(models, 1):
        title = f"{brier_words(columns[0].binary)}, {model}"
        table.add_row(title, *(f"{float(m.usual_brier(i)):.4f}" for m in columns))
    for place, loss in enumerate(losses.losses):
        for i, model in enumerate(models, 1):
            costs = cost_texts([float(m.decision_loss(place, i)) for m in columns])
            table.add_row(f"{loss.name}: cost of {model}", *costs)
        apart = (share_text(m.disagreement(place)) for m in columns)
        table.add_row(f"{loss.name}: rows that disagree", *apart)
        largest = (share_text(m.largest_event(place)) for m in columns)
        table.add_row(f"{loss.name}: largest event", *largest)
    if not len(losses):
        table.add_row("largest share beyond alpha", *(share_text(m.largest_gap()) for m in columns))
    return table


def log_table(
    patches: PatchLog, losses: LossFamily, models: Sequence[str] | None, unit: Fraction
) -> Table:
    """The patch log for people; of phi its largest value. models: their names, if they have any."""
    table = columns_of((), ("step", "round"))
    table.add_column("kind", no_wrap=True)
    table.add_column("model", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    for name in ("rows", "largest change"):
        table.add_column(name, justify="right", no_wrap=True)
    for patch in patches:
        table.add_row(
            str(patch.step),
            "" if patch.round is None else str(patch.round),
            patch.kind,
            str(patch.model) if models is None else models[patch.model - 1],
            event_words(patch, losses, models),
            weight_text(patch.rows, unit),
            f"{max(patch.phi, key=abs) / 2**26:+.4f}",
        )
    return table


def runs_table(rows: Sequence[RunRow], dead: Collection[str] = ()) -> Table:
    """The ledger for people, oldest run first. dead: the runs that nobody works on any more."""
    table = columns_of(("run", "command", "status", "started (UTC)"), ("patches", "rows"))
    table.add_column("certificate", overflow="fold")
    for row in rows:
        status = "dead" if row.run_id in dead else row.status
        table.add_row(
            row.run_id,
            row.command,
            status if row.pruned_at is None else f"{status}, pruned",
            f"{row.started_at:%Y-%m-%d %H:%M}",
            "" if row.patches is None else f"{row.patches:,}",
            "" if row.rows is None else f"{row.rows:,}",
            verdict_words(row.certificate),
        )
    return table


def verdict_words(certificate: str | None) -> str:
    """What a certificate in the ledger says, worst first; nothing where there is none."""
    if certificate is None:
        return ""
    try:
        verdicts = Certificate.from_json(json.loads(certificate)).verdicts
    except (ValueError, ModelFileError):  # the list must not fail by one run
        return "cannot be read"
    return ", ".join(verdicts) or "nothing promised"


def event_words(patch: Patch, losses: LossFamily, models: Sequence[str] | None = None) -> str:
    """Where a patch acts, in words; the loss is named where there are several, models by names."""
    one, two = patch.pair or (1, 2)
    names = (str(one), str(two)) if models is None else (models[one - 1], models[two - 1])
    if patch.kind == "score":
        return f"class {patch.coordinate}: {names[0]} {patch.direction} {names[1]}"
    assert patch.loss is not None
    actions = losses[losses.place(patch.loss)].actions
    place = f"{patch.loss}: " if len(losses) > 1 else ""
    if patch.action is not None:
        return f"{place}{actions[patch.action]}"
    assert patch.a1 is not None and patch.a2 is not None
    whose = "" if models is None else f" ({names[0]} / {names[1]})"
    return f"{place}{actions[patch.a1]} / {actions[patch.a2]}{whose}"


# --- a row ----------------------------------------------------------------------------------------


def explanation_lines(explanation: Explanation, models: Sequence[str]) -> list[Shown]:
    """The journey of a row in sentences, then what each model does before and after."""
    shown: list[Shown] = list(explanation.sentences(models))
    first, last = explanation.start.standings, explanation.end.standings
    if first:
        table = columns_of(["", *(f"{m}\n{w}" for w in ("before", "after") for m in models)], [])
        for before, after in zip(first, last, strict=True):
            table.add_row(before.loss, *before.actions, *after.actions)
        shown += ["", table]
    return shown
