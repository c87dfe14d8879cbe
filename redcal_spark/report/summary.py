"""The summary: what happened, in plain words, and the few numbers that tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from redcal_spark.certificate import exact_numbers
from redcal_spark.certificate.check import Check
from redcal_spark.certificate.exact_numbers import at_least
from redcal_spark.report.data import SPLITS, Report
from redcal_spark.report.markup import Html, joined, name, tag
from redcal_spark.report.numbers import (
    change_text,
    decimal,
    digits_for,
    plural,
    share,
    whole,
)

WORSE = Fraction(1, 200)  # a rise that is told
OVERVIEW = 12  # losses in the table of all of them

ALGORITHM = {
    "redcal": "ReDCal",
    "decision_calibration": "Decision Calibration",
    "reconcile": "Reconcile",
    "dc_then_redcal": "Decision Calibration, then ReDCal",
}
STATUS = {
    "converged": "The run converged: it ended because nothing was left to do.",
    "capped": "The run was stopped by max_rounds or max_steps before it was done. What it did is "
    "valid, but disagreement that counts may be left. Raise the limit, or raise eta.",
    "stalled": "The run stalled: its next patch rounds to nothing on the patch grid. What it did "
    "is valid, but disagreement that counts is left. Set a finer grid_bits, or leave it out.",
    "cut": "The guard cut the run: later patches raised the cost on the holdout rows and were left "
    "out. What is kept is valid, but disagreement that counts may be left.",
}


@dataclass(frozen=True)
class Tile:
    """One number before and after. One of `good`, `bad` and none colours the change."""

    label: Html
    before: Html
    after: Html
    widths: tuple[str, str]  # of the two bars, in per cent
    change: str | None = None
    mood: str = ""
    style: str = ""


@dataclass(frozen=True)
class Notice:
    """Something that must not be overlooked."""

    mood: str  # bad, warn or note
    title: str
    lines: Sequence[Html | str]


def headline(report: Report) -> Html:
    """The finding, in one sentence."""
    split, given = report.told_split, report.parameters
    if not report.log:
        return Html("Nothing had to be changed")
    if given.reconciles_scores:
        first, last = (_share_of_class(report, split, when) for when in ("before", "after"))
        return joined("The scores were apart on ", first, " of the rows; now on ", last)
    if given.calibrates_only:
        before, after = (largest_gap(report, split, when) for when in ("before", "after"))
        first = decimal(before, 4, split, "largest_gap", "before")
        last = decimal(after, 4, split, "largest_gap", "after")
        verb = "fell" if after < before else "rose" if after > before else "stayed"
        return joined(f"The largest calibration gap {verb} from ", first, " to ", last)
    loss = report.by_disagreement[0]
    first, last = (_apart(report, split, when, loss) for when in ("before", "after"))
    return joined("The models decided differently on ", first, " of the rows; now on ", last)


def paragraphs(report: Report) -> Iterator[Html]:
    """What happened, from the rows to the verdict."""
    row, split = report.row, report.told_split
    one, two = (tag("b", name(model), class_=c) for model, c in _coloured(report))
    yield joined(
        *("Two models, ", one, " and ", two, ", scored "),
        *(whole(row.rows or report.rows("fit"), "rows"), " rows. "),
        *_how(report),
    )
    if report.log and len(report.losses):
        yield joined(*_decisions(report, split))
    yield joined(*_scores(report, split))
    ended = (
        [STATUS["converged"], " "] if row.status == "converged" else []
    )  # else there is a notice
    yield joined(*ended, *_proof(report))


def _how(report: Report) -> Iterator[Html | str]:
    row, algorithm = report.row, ALGORITHM[report.parameters.algorithm]
    if not report.log:
        yield f"{algorithm} looked at "
        yield joined(whole(report.rows("fit"), "fit", "rows"), " labelled rows and found nothing ")
        yield "that exceeds its limits."
        return
    yield f"{algorithm} changed them by "
    yield whole(len(report.log), "patches")
    yield f" small correction{'s' if len(report.log) > 1 else ''}, learned on "
    yield whole(report.rows("fit"), "fit", "rows")
    yield " labelled rows"
    if "holdout" in report.audits:
        yield joined(
            "  and checked on ", whole(report.rows("holdout"), "holdout", "rows"), " others"
        )
        yield ", which it never saw. All numbers here are of those others, unless it says fitted."
    else:
        yield "."
    left_out = [(row.unlabelled_rows, "without a label"), (row.bad_rows, "unusable")]
    told = [joined(whole(count, why), f" {why}") for count, why in left_out if count]
    if told:
        yield joined(" Left out of the fit: ", joined(*told, by=", "), ".")


def _decisions(report: Report, split: str) -> Iterator[Html | str]:
    """Of the loss with most disagreement, and how the others stand."""
    loss = report.by_disagreement[0]
    costs = [[report.cost(split, w, loss, m) for w in ("before", "after")] for m in (1, 2)]
    if len(report.losses) > 1:
        yield joined("Of ", whole(len(report.losses), "losses"), " losses, ")
        yield joined(tag("b", name(report.losses[loss].name)), " had most disagreement. ")
    apart = [report.apart(split, when, loss) for when in ("before", "after")]
    if apart[0] != apart[1]:
        yield joined("Rows with different decisions went from ")
        yield joined(_apart(report, split, "before", loss), " to ")
        yield joined(_apart(report, split, "after", loss), ". ")
    else:
        yield joined("Rows with different decisions stayed at ")
        yield joined(_apart(report, split, "after", loss), ". ")
    digits = digits_for(float(x) for pair in costs for x in pair)
    for model, (before, after) in enumerate(costs, 1):
        verb = "fell" if after < before else "rose" if after > before else "stayed"
        first, last = (
            decimal(x, digits, split, report.losses[loss].name, f"cost_{model}", when)
            for x, when in ((before, "before"), (after, "after"))
        )
        yield "The mean cost of " if model == 1 else "; that of "
        yield joined(name(report.models[model - 1]), f"’s decisions {verb} ")
        yield joined("at ", last) if before == after else joined("from ", first, " to ", last)
    yield "."


def _scores(report: Report, split: str) -> Iterator[Html | str]:
    yield f"The Brier score ({report.brier_words}, lower is better) "
    said = ""
    for model in (1, 2):
        before, after = (report.brier(split, when, model) for when in ("before", "after"))
        verb = "fell" if after < before else "rose" if after > before else "stayed"
        first, last = (
            decimal(x, 4, split, f"brier_{model}", when)
            for x, when in ((before, "before"), (after, "after"))
        )
        yield joined("" if model == 1 else ", and ", "" if verb == said else f"{verb} ")
        said = verb
        yield joined("at ", last) if before == after else joined("from ", first, " to ", last)
        yield joined(" for ", name(report.models[model - 1]))
    yield "."


def _proof(report: Report) -> Iterator[Html | str]:
    if report.certificate is None:
        yield "It has no certificate."
        return
    counts = report.certificate.counts
    violated, held = len(report.certificate.violated), counts["holds"]
    if violated:
        yield tag("b", f"{plural(violated, 'promise')} did not hold", class_="bad")
        yield f", {held:,} {'do' if held > 1 else 'does'}" if held else ""
    else:
        hold = "holds" if held == 1 else "hold"
        yield f"{plural(held, 'promise')} {hold}" if held else "No promise could be shown to hold"
    if counts["undecided"]:
        yield f"; of {counts['undecided']:,} more there are too few holdout rows to tell"
    if counts["not covered"]:
        yield f"; {counts['not covered']:,} are not covered by theory here, and say why"
    yield "."
    fell = [
        (check.model, at_least(check.interval.low))
        for check in report.certificate.checks
        if check.name == "loss_fell"
        and check.verdict == "holds"
        and check.interval is not None
        and check.loss == report.losses[report.by_disagreement[0]].name
    ]
    if fell:
        yield " On new rows the mean cost "
        if len(report.losses) > 1:
            yield joined("of ", name(report.losses[report.by_disagreement[0]].name), " ")
        yield joined(
            "falls by at least ",
            joined(
                *(joined(x, " for ", name(report.models[(m or 1) - 1])) for m, x in fell),
                by=" and by at least ",
            ),
            f", with {float(1 - report.certificate.delta) * 100:g} % confidence in all of this.",
        )


def notices(report: Report) -> Iterator[Notice]:
    """What must not be overlooked, loudest first."""
    certificate = report.certificate
    if certificate is not None and certificate.violated:
        lines: list[Html | str] = [_failure(report, check) for check in certificate.violated[:6]]
        if len(certificate.violated) > 6:
            lines.append(f"… and {len(certificate.violated) - 6:,} more, below")
        if certificate.sound:
            title = (
                f"{plural(len(certificate.violated), 'promise')} did not hold on the holdout rows"
            )
        else:
            title = "This run contradicts itself: use nothing of it"
        yield Notice("bad", title, lines)
    if report.row.status != "converged":
        told = STATUS.get(report.row.status, f"It ended as {report.row.status}.")
        yield Notice("warn", f"Not converged: {report.row.status}", [told])
    worse = list(_worse(report)) if "holdout" in report.audits else []
    if worse:
        advice = (
            "Corrections may have fitted noise: reconcile.guard: best_prefix keeps only those that "
            "did good on the holdout rows, and reconcile.beta: auto calibrates no finer than the "
            "noise."
        )
        yield Notice("warn", "Worse on rows that the fit never saw", [*worse, advice])
    if "holdout" not in report.audits:
        told = (
            "Every number here is of rows that the models were fitted on; new rows may fare worse. "
            "input.split holds rows out."
        )
        yield Notice("note", "No holdout rows", [told])


def _failure(report: Report, check: Check) -> str:
    """A promise that was not kept, in a sentence."""
    assert check.measured is not None
    of = [] if check.loss is None else [check.loss]
    of += [] if check.model is None else [report.models[check.model - 1]]
    relation = check.relation.replace("<=", "≤").replace(">=", "≥").replace("==", "=")
    measured, bound = (exact_numbers.shown(x, check.scale) for x in (check.measured, check.bound))
    numbers = f"measured {measured}, promised {relation} {bound}"
    told = f"Not so: {check.claim}: {numbers} ({', '.join(of)}"
    told += f"{', ' if of else ''}{split_words(check.split)})"
    why = report.as_written(check.why)
    return f"{told}: {why}" if why else told


def _worse(report: Report) -> Iterator[str]:
    """What went up on the holdout rows by half a per cent or more."""
    for model in (1, 2):
        before, after = (report.brier("holdout", when, model) for when in ("before", "after"))
        if after - before >= WORSE * before and after > before:
            told = change_text(before, after) or "from 0"
            yield f"The Brier score of {report.models[model - 1]} rose: {told}."
    found = []
    for loss in range(len(report.losses)):
        for model in (1, 2):
            before, after = (report.cost("holdout", w, loss, model) for w in ("before", "after"))
            if after - before >= WORSE * abs(before) and after > before:
                found.append((change_text(before, after) or "from 0", loss, model))
    if found:
        told, loss, model = found[0]
        costs = 2 * len(report.losses)
        first = f"{report.models[model - 1]} for {report.losses[loss].name}: {told}"
        yield f"{len(found):,} of {costs:,} mean costs rose; the first, of {first}."


# --- the few numbers ------------------------------------------------------------------------------


def tiles(report: Report) -> Iterator[Tile]:
    split = report.told_split
    if len(report.losses):
        loss = report.by_disagreement[0]
        title = report.losses[loss].name
        apart = [report.apart(split, when, loss) for when in ("before", "after")]
        shares = [_apart(report, split, when, loss) for when in ("before", "after")]
        yield _tile("Different decisions", apart, shares, title if len(report.losses) > 1 else "")
        costs = [[report.cost(split, w, loss, m) for w in ("before", "after")] for m in (1, 2)]
        digits = digits_for(float(x) for pair in costs for x in pair)
        for m, pair in enumerate(costs, 1):
            told = [
                decimal(x, digits, split, title, f"cost_{m}", when)
                for x, when in zip(pair, ("before", "after"), strict=True)
            ]
            of = f"Mean cost, {title}" if len(report.losses) > 1 else "Mean cost"
            yield _tile(of, pair, told, report.models[m - 1], "one" if m == 1 else "two")
    if report.parameters.reconciles_scores:
        found = [report.largest_class(split, when) for when in ("before", "after")]
        shares = [_share_of_class(report, split, when) for when in ("before", "after")]
        yield _tile("Scores apart, worst class", found, shares)
    if report.parameters.calibrates_only:
        gaps = [largest_gap(report, split, when) for when in ("before", "after")]
        told = [
            decimal(g, 4, split, "largest_gap", w)
            for g, w in zip(gaps, ("before", "after"), strict=True)
        ]
        yield _tile("Largest calibration gap", [Fraction(g) for g in gaps], told)
    for m in (1, 2):
        found = [report.brier(split, when, m) for when in ("before", "after")]
        told = [
            decimal(x, 4, split, f"brier_{m}", when)
            for x, when in zip(found, ("before", "after"), strict=True)
        ]
        yield _tile("Brier score", found, told, report.models[m - 1], "one" if m == 1 else "two")


def _tile(
    title: str, values: Sequence[Fraction], told: Sequence[Html], of: str = "", style: str = ""
) -> Tile:
    before, after = values
    top = max(abs(before), abs(after)) or Fraction(1)
    label = joined(title, tag("span", name(of), class_="of") if of else "")
    mood = "good" if after < before else "bad" if after > before else ""
    widths = [f"{float(100 * abs(x) / top):.1f}" for x in (before, after)]
    text = change_text(before, after)
    return Tile(label, told[0], told[1], (widths[0], widths[1]), text, mood, style)


# --- all losses -----------------------------------------------------------------------------------


def overview(report: Report) -> list[list[Html]]:
    """Per loss, where there are several: what disagrees and what it costs, before and after."""
    if len(report.losses) < 2:
        return []
    split, lines = report.told_split, []
    for loss in report.by_disagreement[:OVERVIEW]:
        title = report.losses[loss].name
        line = [name(title)]
        line += [_apart(report, split, when, loss) for when in ("before", "after")]
        costs = [report.cost(split, w, loss, m) for m in (1, 2) for w in ("before", "after")]
        digits = digits_for(map(float, costs))
        keys = [(m, w) for m in (1, 2) for w in ("before", "after")]
        line += [
            decimal(x, digits, split, title, f"cost_{m}", w)
            for x, (m, w) in zip(costs, keys, strict=True)
        ]
        lines.append(line)
    return lines


def rest_of_losses(report: Report) -> Html | None:
    """How those stand that the table leaves out."""
    rest = report.by_disagreement[OVERVIEW:]
    if len(report.losses) < 2 or not rest:
        return None
    split = report.told_split
    found = sorted((report.apart(split, "after", loss), loss) for loss in rest)
    (_, least), (_, most) = found[0], found[-1]
    return joined(
        f"… and {plural(len(rest), 'loss', 'losses')} with less disagreement before; now between ",
        *(
            _apart(report, split, "after", least),
            " and ",
            _apart(report, split, "after", most),
            ".",
        ),
    )


# --- helpers --------------------------------------------------------------------------------------


def split_words(split: str) -> str:
    return f"{SPLITS[split]} rows"


def largest_gap(report: Report, split: str, when: str) -> float:
    """The largest calibration gap of all losses and both models."""
    found = report.audits[split][when]["losses"]
    return max((gap for loss in found for gap in loss["calibration_gap"]), default=0.0)


def _apart(report: Report, split: str, when: str, loss: int) -> Html:
    title = report.losses[loss].name
    return share(report.apart(split, when, loss), split, title, "disagreement", when)


def _share_of_class(report: Report, split: str, when: str) -> Html:
    return share(report.largest_class(split, when), split, "largest_class", when)


def _coloured(report: Report) -> list[tuple[str, str]]:
    return list(zip(report.models, ("one", "two"), strict=True))
