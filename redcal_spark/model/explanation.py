"""The explanation of one row: every patch that touched it, in order, and why, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.number_text import model_text, plural, three_digits, weight_text
from redcal_spark.core.parameters import Status
from redcal_spark.core.patches import Patch
from redcal_spark.model.row_states import Standing, State, Step, compared, product

NAMED = 3  # losses, classes or actions that a sentence names


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a reconciled pair does with one row, and why.

    patches: of the log in all; steps: those that touched the row. The end is what `apply` gives.
    models: their names, if users gave them any.
    """

    id: Any
    algorithm: str
    alpha: float | None
    eta: float | None
    status: Status
    patches: int
    start: State
    steps: tuple[Step, ...]
    end: State
    losses: LossFamily
    classes: tuple[str, ...] | None
    models: tuple[str, ...] | None = None
    unit: Fraction = Fraction(1)  # of weights

    @property
    def _called(self) -> Sequence[str]:
        """What the models are called where nobody says otherwise."""
        models = range(1, len(self.start.scores) + 1)
        return tuple(model_text(model, self.models) for model in models)

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    @property
    def touched(self) -> bool:
        return bool(self.steps)

    def to_json(self) -> dict[str, Any]:
        """Plain data, ready for `json.dumps` (an id of any other type becomes text).

        id, algorithm, status, patches, touched, sentences;
        start, end: {scores: per model, losses: [{loss, actions, index, agree, in_event, margins,
        expected_costs}], beyond_alpha};
        steps: the fields of the patch, as the log has them, and words, correction, and before and
        after: {scores: of the patched model, losses: as above}.
        """
        return {
            "id": self.id if isinstance(self.id, int | str | None) else str(self.id),
            "algorithm": self.algorithm,
            "status": self.status,
            "patches": self.patches,
            "touched": self.touched,
            "start": self.start.to_json(),
            "steps": [self._step_to_json(step) for step in self.steps],
            "end": self.end.to_json(),
            "sentences": self.sentences(),
        }

    def _step_to_json(self, step: Step) -> dict[str, Any]:
        data = step.patch.to_json() | {
            "words": self._words(step, self._called),
            "correction": float(step.correction),
        }
        for name, state in (("before", step.before), ("after", step.after)):
            scores = list(state.scores[step.patch.model - 1])
            data[name] = {"scores": scores, "losses": [s.to_json() for s in state.standings]}
        return data

    # --- in words -------------------------------------------------------------------------------

    def sentences(self, models: Sequence[str] | None = None) -> list[str]:
        """The journey in words: where it began, each patch, where it ended or why none came."""
        models = models or self._called
        lines = [f"Before: {_both(self.start, models)}."] if self.start.standings else []
        if not self.steps:
            return [*lines, self._why_untouched(models)]
        lines += [self._words(step, models) for step in self.steps]
        count = f"{len(self.steps):,} of {self.patches:,} patches touched this row"
        if self.end.standings:
            return [*lines, f"After: {_both(self.end, models)}; {count}."]
        return [*lines, f"{count}."]

    def _words(self, step: Step, models: Sequence[str]) -> str:
        patch = step.patch
        round_ = "" if patch.round is None else f", round {patch.round}"
        parts = [self._where(patch, models), self._correction(step, models)]
        parts += self._changes(step, models)
        return f"Step {patch.step}{round_}: {'; '.join(parts)}."

    def _where(self, patch: Patch, models: Sequence[str]) -> str:
        """The event in words, and how many rows it was fitted on."""
        count = weight_text(patch.rows, self.unit)
        rows = f"{count} fitting row{'' if count == '1' else 's'} like this"
        own = models[patch.model - 1]
        first, second = (models[i - 1] for i in patch.pair or (1, 2))
        if patch.kind == "score":
            more = "above" if patch.direction == ">" else "below"
            return (
                f"{first} has {self._class(patch.coordinate)} more than {self.alpha:g} {more} "
                f"{second}; {rows}"
            )
        loss = self._loss(patch)
        under = f"under {loss.name}, " if len(self.losses) > 1 else ""
        if patch.kind == "reconcile":
            assert patch.a1 is not None and patch.a2 is not None
            one, two = called(loss, patch.a1), called(loss, patch.a2)
            return f"{under}{first} would choose {one}, {second} would choose {two}; {rows}"
        assert patch.action is not None
        within = "" if patch.round is None else " among those of this round"
        return f"{under}{own} would choose {called(loss, patch.action)}; {rows}{within}"

    def _correction(self, step: Step, models: Sequence[str]) -> str:
        """What the outcomes of the fitting rows said of the model."""
        patch, size = step.patch, three_digits(abs(step.correction))
        own = models[patch.model - 1]
        if patch.kind == "score":
            low = "low" if step.correction > 0 else "high"
            return f"{own} was {size} too {low} there on average"
        loss = self._loss(patch)
        if step.correction == 0:
            return f"there the scores of {own} were off, at no cost for this choice"
        cheap = "cheap" if step.correction > 0 else "dear"
        if patch.kind == "calibrate":
            assert patch.action is not None
            return f"there {own} took it for {size} too {cheap} on average"
        assert patch.a1 is not None and patch.a2 is not None
        one, two = called(loss, patch.a1), called(loss, patch.a2)
        return f"there {own} took {one} for {size} too {cheap} against {two} on average"

    def _changes(self, step: Step, models: Sequence[str]) -> Iterator[str]:
        """What the patch did to this row."""
        patch, i = step.patch, step.patch.model - 1
        own, before, after = models[i], step.before, step.after
        if patch.kind == "score":
            assert patch.coordinate is not None
            old, new = (s.scores[i][patch.coordinate] for s in (before, after))
            yield f"here {own} goes from {three_digits(old)} to {three_digits(new)}"
        else:
            loss = self._loss(patch)
            a, b = compared(patch)
            was, now = (product(loss, a, b, s.grid[i]) for s in (before, after))
            if b is None:
                cost, before_it = three_digits(now), three_digits(was)
                yield f"here {own} expects it to cost {cost}, before {before_it}"
            else:
                yield (
                    f"here {own} expects {called(loss, a)} to cost {_compare(now)} than "
                    f"{called(loss, b)}, before {_compare(was)}"
                )
        moved = [
            f"{_named(new, i)} instead of {_named(old, i)}"
            + (f" ({new.loss})" if len(self.losses) > 1 else "")
            for old, new in zip(before.standings, after.standings, strict=True)
            if old.index[i] != new.index[i]
        ]
        if moved:
            yield f"{own} now chooses {_list(moved)}"
        elif before.standings:
            yield f"{own} still chooses as before"

    def _why_untouched(self, models: Sequence[str]) -> str:
        if not self.patches:
            return f"No patch touched this row: the run made none ({self.status})."
        why = self._reason(models)
        early = "" if self.status == "converged" else f" (the run ended early: {self.status})"
        if self.patches == 1:
            return f"The only patch did not touch this row: {why}{early}."
        return f"None of the {self.patches:,} patches touched this row: {why}{early}."

    def _reason(self, models: Sequence[str]) -> str:
        if self.algorithm == "reconcile":
            if not self.start.beyond:
                return f"no scores of the models are more than {self.alpha:g} apart"
            names = _list([self._class(j) for j in self.start.beyond])
            return (
                f"the models are more than {self.alpha:g} apart in {names}, but no patch was on "
                "that side of it"
            )
        calibrated = "no patch calibrates a model where it chooses what it chooses here"
        if self.algorithm == "decision_calibration":
            return calibrated
        calibrated = f"{calibrated}, and " if self.algorithm == "dc_then_redcal" else ""
        events = [s for s in self.start.standings if s.in_event]
        apart = [s for s in self.start.standings if not s.agree]
        if events:
            named = _list([_event(s, models) for s in events])
            return (
                f"{calibrated}it is in the event {named}, which no round chose: only the largest "
                f"event is chosen, while it has {self.eta:g} of the fitting rows or more"
            )
        if not apart:
            every = "" if len(self.losses) == 1 else " under every loss"
            return f"{calibrated}the models agree{every}, so it is in no event"
        named = _list(
            [
                f"{s.loss} ("
                + ", ".join(
                    f"{model} by {three_digits(margin)}"
                    for model, margin in zip(models, s.margins, strict=True)
                )
                + ")"
                for s in apart
            ]
        )
        return (
            f"{calibrated}the models disagree under {named}, by no more than alpha = "
            f"{self.alpha:g} of the rescaled loss, so it is in no event"
        )

    def _loss(self, patch: Patch) -> Loss:
        assert patch.loss is not None
        return self.losses[self.losses.place(patch.loss)]

    def _class(self, j: int | None) -> str:
        assert j is not None
        return f"class {j}" if self.classes is None else self.classes[j]


# --- words ----------------------------------------------------------------------------------------


def _compare(difference: Fraction) -> str:
    return f"{three_digits(abs(difference))} {'less' if difference < 0 else 'more'}"


def called(loss: Loss, action: int) -> str:
    """An action by its name, where it has one."""
    name = loss.actions[action]
    return f"action {action}" if name == str(action) else name


def _both(state: State, models: Sequence[str]) -> str:
    """What the models would do, loss by loss where they differ."""
    standings, alone = state.standings, len(state.standings) == 1
    apart = [s for s in standings if not s.agree]
    if not apart:
        if alone:
            all_of_them = "both" if len(models) == 2 else "all"
            return f"{all_of_them} models would choose {_named(standings[0], 0)}"
        return f"the models agree under all {len(standings)} losses"
    texts = [("" if alone else f"under {s.loss} ") + _choices(s, models) for s in apart]
    rest = len(standings) - len(apart)
    losses = plural(rest, "other loss", "other losses")
    others = f"; they agree under {losses}" if rest else ""
    return _list(texts, "; ") + others


def _choices(standing: Standing, models: Sequence[str]) -> str:
    """Who would choose what, action by action."""
    by_action: dict[int, list[int]] = {}
    for model, action in enumerate(standing.index):
        by_action.setdefault(action, []).append(model)
    return ", ".join(
        f"{' and '.join(models[i] for i in own)} would choose {_named(standing, own[0])}"
        for own in by_action.values()
    )


def _event(standing: Standing, models: Sequence[str]) -> str:
    """The first event of a loss that the row is in; of more than two models, whose it is."""
    one, two = standing.events[0]
    whose = "" if len(models) == 2 else f", {models[one - 1]} and {models[two - 1]}"
    actions = f"{_named(standing, one - 1)} / {_named(standing, two - 1)}"
    return f"{actions} ({standing.loss}{whose})"


def _named(standing: Standing, model: int) -> str:
    index, name = standing.index[model], standing.actions[model]
    return f"action {index}" if name == str(index) else name


def _list(parts: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return between.join(parts[:NAMED]) + more
