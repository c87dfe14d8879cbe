"""How eta was chosen, where the configuration says `auto`: every candidate, told and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from redcal_spark.core.number_text import decimal_text, digits_for, share_text
from redcal_spark.core.tuned import Candidate, Tuned
from redcal_spark.report.charts import Line, choice_chart
from redcal_spark.report.data import Report
from redcal_spark.report.markup import Html
from redcal_spark.report.numbers import decimal, share, typeset, whole

STYLES = ("holdout", "fit")  # of a rule for beta, as the page colours lines
Number = Callable[[Candidate], float]


def tuning(report: Report) -> dict[str, Any] | None:
    """The candidates, what they cost rows that they were not fitted on, and what was chosen."""
    tuned = report.tuned
    if tuned is None:
        return None
    cells = tuned.rows * len(report.losses) * len(report.models)

    def mean(loss: Fraction) -> Fraction:
        """Of a row, a loss and a model."""
        return loss / cells

    rows = tuned.rows if tuned.counts is None else tuned.counts.used
    best = mean(tuned.chosen.loss)
    exact = [mean(candidate.loss) for candidate in tuned.candidates]
    digits = digits_for([*map(float, exact), float(mean(tuned.before.loss))]) + 1

    def line(loss: Fraction, disputed: int, *of: object) -> dict[str, Html]:
        return {
            "loss": decimal(mean(loss), digits, "tuning", *of, "loss"),
            "above": decimal(mean(loss) - best, digits, "tuning", *of, "above"),
            "disputed": share(tuned.share(disputed), "tuning", *of, "disputed"),
        }

    return {
        "eta": f"{tuned.chosen.eta:g}",
        "rule": tuned.chosen.rule,
        "rows": whole(rows, "tuning", "rows"),
        "some": tuned.level > 0,
        "before": line(tuned.before.loss, tuned.before.disputed, "before"),
        "gains": tuned.chosen.loss < tuned.before.loss,
        "unfinished": bool(tuned.chosen.unfinished),
        "ended": any(candidate.unfinished for candidate in tuned.candidates),
        "rules": list(zip(_rules(tuned), STYLES, strict=False)),
        "lines": [
            {
                "chosen": candidate is tuned.chosen,
                "eta": f"{candidate.eta:g}",
                "rule": candidate.rule,
                "patches": [fold.patches for fold in candidate.folds],
                "ended": ", ".join(dict.fromkeys(candidate.unfinished)),
                **line(candidate.loss, candidate.disputed, f"{candidate.eta:g}", candidate.rule),
            }
            for candidate in tuned.candidates
        ],
        "charts": _charts(tuned, mean, digits),
    }


def _rules(tuned: Tuned) -> list[str]:
    return list(dict.fromkeys(candidate.rule for candidate in tuned.candidates))


def _charts(
    tuned: Tuned, mean: Callable[[Fraction], Fraction], digits: int
) -> list[tuple[str, Html]]:
    """Loss, rows in dispute and patches by eta; the rows before any patch as a dashed line."""
    before, disputed = float(mean(tuned.before.loss)), float(tuned.share(tuned.before.disputed))
    panels: list[tuple[str, Number, float | None, Callable[[float], str], bool]] = [
        (
            "Loss on rows that were not fitted",
            lambda c: float(mean(c.loss)),
            before,
            lambda v: decimal_text(v, digits),
            False,
        ),
        (
            "Rows still in dispute",
            lambda c: float(tuned.share(c.disputed)),
            disputed,
            share_text,
            True,
        ),
        (
            "Patches, both halves",
            lambda c: float(sum(fold.patches for fold in c.folds)),
            None,
            lambda v: f"{v:,.0f}",
            False,
        ),
    ]
    etas = list(dict.fromkeys(candidate.eta for candidate in tuned.candidates))
    charts = []
    for title, number, dashed, text, percent in panels:
        lines = [
            Line(
                f"beta {rule}",
                style,
                [(etas.index(c.eta), number(c)) for c in tuned.candidates if c.rule == rule],
            )
            for rule, style in zip(_rules(tuned), STYLES, strict=False)
        ]
        chosen = etas.index(tuned.chosen.eta), number(tuned.chosen)
        label = _label(title, tuned, number, text)
        names = [f"{eta:g}" for eta in etas]
        charts.append(
            (
                title,
                choice_chart(
                    lines,
                    label,
                    lambda v, text=text: typeset(text(v)),  # type: ignore[misc]
                    names=names,
                    chosen=chosen,
                    dashed=dashed,
                    percent=percent,
                ),
            )
        )
    return charts


def _label(title: str, tuned: Tuned, number: Number, text: Callable[[float], str]) -> str:
    ordered: Sequence[Candidate] = sorted(tuned.candidates, key=number)
    least, most = ordered[0], ordered[-1]
    return (
        f"{title} by eta: from {text(number(least))} at eta {least.eta:g}, beta {least.rule}, to "
        f"{text(number(most))} at eta {most.eta:g}, beta {most.rule}; chosen: eta "
        f"{tuned.chosen.eta:g}, beta {tuned.chosen.rule}, {text(number(tuned.chosen))}"
    )
