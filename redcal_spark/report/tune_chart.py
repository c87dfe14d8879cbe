"""The chart of `redcal tune`: loss, rows in dispute and patches of every candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redcal_spark.core.tuned import Candidate
from redcal_spark.report.charts import short
from redcal_spark.report.compare_chart import ABOVE, BELOW, HIGH, LEFT, drawing, frame, write_svg
from redcal_spark.report.markup import Html, joined, tag
from redcal_spark.runs.tune import Tuning

WIDE = 260  # a panel, in pixels
STYLES = (
    {"stroke": "#ee7733"},
    {"stroke": "#4477aa", "stroke_dasharray": "8 4"},
)
Number = Callable[[Candidate], float]


def write_tune_chart(tuning: Tuning, path: str) -> None:
    write_svg(draw(tuning), path, "How eta was chosen")


def draw(tuning: Tuning) -> Html:
    """Three panels side by side; a line for every rule of beta."""
    tuned = tuning.tuned
    before = float(tuning.mean_loss(tuned.before.loss))
    disputed = float(tuned.share(tuned.before.disputed))
    panels: list[tuple[str, Number, float | None, bool]] = [
        (
            "loss on rows that were not fitted",
            lambda c: float(tuning.mean_loss(c.loss)),
            before,
            False,
        ),
        ("rows still in dispute", lambda c: float(tuned.share(c.disputed)), disputed, True),
        ("patches, both folds", lambda c: float(sum(f.patches for f in c.folds)), None, False),
    ]
    drawn = [
        tag("g", _panel(tuning, *panel), transform=f"translate({LEFT + i * (LEFT + WIDE)} {ABOVE})")
        for i, panel in enumerate(panels)
    ]
    wide, high = len(panels) * (LEFT + WIDE) + 30, ABOVE + HIGH + BELOW
    label = (
        f"Loss, rows in dispute and patches by eta; chosen: eta {tuning.eta:g}, beta "
        f"{tuning.chosen.rule}"
    )
    return drawing(wide, high, 40, drawn, _legend(tuning), label)


def _panel(tuning: Tuning, title: str, number: Number, before: float | None, share: bool) -> Html:
    candidates = tuning.tuned.candidates
    etas = list(dict.fromkeys(candidate.eta for candidate in candidates))
    values = [number(candidate) for candidate in candidates]
    known = values if before is None else [*values, before]
    parts, y = frame(title, known, WIDE, 0.08, percent=share)

    def x(eta: float) -> str:
        return short(WIDE * (etas.index(eta) + 0.5) / len(etas))

    for eta in etas:
        parts.append(tag("text", f"{eta:g}", x=x(eta), y=HIGH + 16, text_anchor="middle"))
    parts.append(tag("text", "eta", x=WIDE / 2, y=HIGH + 32, text_anchor="middle"))
    if before is not None:
        at, words = y(before), tag("title", "before any patch")
        parts.append(tag("line", words, x1=0, x2=WIDE, y1=at, y2=at, stroke="#777"))
    for rule, style in zip(_rules(candidates), STYLES, strict=False):
        own = [candidate for candidate in candidates if candidate.rule == rule]
        line = " ".join(f"{x(c.eta)},{y(number(c))}" for c in own)
        parts.append(tag("polyline", points=line, fill="none", stroke_width=1.5, **style))
        for c in own:
            chosen = c is tuning.chosen
            words = tag("title", f"eta {c.eta:g}, beta {rule}: {number(c):.6g}")
            fill = style["stroke"] if chosen else "#fff"
            parts.append(
                tag("circle", words, cx=x(c.eta), cy=y(number(c)), r=5 if chosen else 3,
                    fill=fill, stroke=style["stroke"])
            )  # fmt: skip
    return joined(*parts)


def _rules(candidates: Sequence[Candidate]) -> list[str]:
    return list(dict.fromkeys(candidate.rule for candidate in candidates))


def _legend(tuning: Tuning) -> Html:
    names = [f"beta {rule}" for rule in _rules(tuning.tuned.candidates)]
    styles: list[dict[str, str]] = [*STYLES[: len(names)], {"stroke": "#777"}]
    parts = []
    for place, (name, style) in enumerate(zip([*names, "before any patch"], styles, strict=True)):
        x = place * 170
        line = tag("line", x1=x, x2=x + 30, y1=0, y2=0, stroke_width=1.5, **style)
        parts += [line, tag("text", name, x=x + 38, y=0, dy=".32em")]
    parts.append(tag("text", "filled: chosen", x=len(styles) * 170, y=0, dy=".32em"))
    return joined(*parts)
