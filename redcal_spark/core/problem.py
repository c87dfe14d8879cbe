"""What is to be solved: parameters, losses, columns, and how rows are looked at for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Literal

import numpy as np

from redcal_spark.core.chosen_segments import MOST, check_values
from redcal_spark.core.columns import Columns, Layout
from redcal_spark.core.events import pairs_of
from redcal_spark.core.fixed_point import BITS, MAX_ROWS, exact
from redcal_spark.core.kernel import Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Totals
from redcal_spark.core.number_text import plural
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.reading import MISSING, NO_INDEX, OUTSIDE, UNNAMED, BadRows
from redcal_spark.core.scan import Scanner, ScanResult, check_weight
from redcal_spark.core.splits import Split
from redcal_spark.core.tuned import Tuned
from redcal_spark.errors import InputError, ScoreWarning, UsageError, warn
from redcal_spark.settings import TUNE_ROWS, setting

FAR = 10  # a beta so many times below `auto` fits noise
FEW = 100  # rows to fit on
SOME = 20  # names of classes in a message
MIXED_UP = (
    "are the classes in the order of the scores, do labels count from 0, and does every row have "
    "its own label?"
)
HINTS = {  # what is mostly the matter, by what is wrong with ten rows or more
    OUTSIDE: "scores are probabilities: divide percentages by 100, and give logits to softmax",
    NO_INDEX: "labels count from 0: subtract 1 from labels that count from 1",
}
MAX_LINES = 4_096  # losses x pairs of models, of each of which a row keeps its event
MAX_EVENTS = 1 << 24  # of all losses and pairs, which are counted


@dataclass(frozen=True, eq=False)
class Problem:
    """What is asked of the rows, whoever computes it and wherever they are.

    audit: rows are counted by pairs of actions, and none is kept. missing_model: what to do with
    rows without a model's scores. mean: a scan measures what the mean of all models would do, too.
    new_rows: nothing is to be fitted.
    tune_rows: active fitting rows that `eta: auto` looks at, at most. tuned: how the parameters'
    eta and beta were chosen, where they were.
    """

    parameters: Parameters
    losses: LossFamily
    columns: Columns
    on_bad_rows: Literal["error", "skip"] = "error"
    audit: bool = False
    missing_model: Literal["error", "skip_row"] = "error"
    tune_rows: int = TUNE_ROWS
    tuned: Tuned | None = None
    mean: bool = False
    new_rows: bool = False

    @property
    def n_classes(self) -> int | None:
        """What losses and class names say, before any data."""
        if self.losses.n_classes is not None:
            return self.losses.n_classes
        return None if self.columns.classes is None else len(self.columns.classes)

    def rules(self, binary: bool) -> Rules:
        return rules_of(self.parameters, self.losses, binary, self.columns.n_models)

    def fitting_rules(self, layout: Layout) -> Rules:
        """What fitting needs: for Reconcile no losses."""
        rules = self.rules(layout.binary)
        return rules.of_scores() if self.parameters.reconciles_scores else rules

    def scanner(self, layout: Layout, split: Split | None = None) -> Scanner:
        """What looks at every row once; Decision Calibration keeps them all."""
        return Scanner(
            replace(layout, skip_missing=self.missing_model == "skip_row"),
            self.rules(layout.binary),
            self.parameters.calibrates_everywhere,
            split,
            audit=self.audit,
            folds=self.parameters.tunes and not self.audit,
            mean=self.mean,
        )

    def check(self, gathered: ScanResult, where: str, split: Split | None = None) -> None:
        """Refuse data that cannot be fitted; tell what is odd."""
        self.check_readable(gathered, where)
        if not gathered.fit.rows and not self.new_rows:
            raise InputError(f"{where} has no rows to fit on: {_none_left(gathered, split)}")
        if gathered.rows >= MAX_ROWS:
            raise InputError(f"{where} has {gathered.rows:,} rows; exact sums need fewer than 2^37")
        for part in gathered.parts.values():
            check_weight(part.rows, where, self.columns.weight)
            if part.totals.segments is not None:
                check_values(self.columns.segments, part.totals.segments, where)
        if gathered.off_sum:
            warn(
                f"{where}: on {gathered.off_sum:,} of {gathered.rows:,} rows the scores of a model "
                "do not sum to 1 (by more than 0.001); they are used as they are",
                ScoreWarning,
            )

    def check_readable(self, gathered: ScanResult, where: str) -> None:
        """Refuse rows that cannot be used, unless they are to be left out."""
        if not gathered.rows:
            raise InputError(f"{where} has no rows")
        if self.on_bad_rows == "error":
            advice = hints(gathered.problems) + self._named(gathered)
            advice += f"\n  ({setting('on_bad_rows', 'skip')} passes such rows through untouched"
            if any(kind.startswith(MISSING) for _, kind in gathered.problems.kinds):
                advice += f", {setting('missing_model', 'skip_row')} those without a model's scores"
            advice += ")"
            gathered.problems.raise_if_any(where, advice)

    def _named(self, gathered: ScanResult) -> str:
        """What labels must be, letter by letter, where some are not."""
        if not any(kind.startswith(UNNAMED) for _, kind in gathered.problems.kinds):
            return ""
        names = [repr(name) for name in self.columns.classes or ()]
        more = ["..."] if len(names) > SOME else []
        return f"\n  (the classes are {', '.join(names[:SOME] + more)}, in these very letters)"

    def doubts(self, gathered: ScanResult) -> list[str]:
        """What to say before a fit that is perhaps not meant, of the rows it would be fitted on.

        Of parameters that are still to be chosen nothing can be said, of labels once.
        """
        totals, doubts = gathered.fit.totals, list[str | None]()
        rows = int(totals.effective)
        if self.tuned is None:
            doubts.append(one_class(totals, self.columns.classes))
            doubts.append(worse_than_equal(totals, self.columns.shown))
            doubts += self._too_many_values(gathered)
        if not self.parameters.tunes:
            doubts.insert(0, few_rows(self.parameters, rows, totals.weights is not None))
            doubts.append(beta_warning(self.parameters, rows))
        return [text for text in doubts if text is not None]

    def _too_many_values(self, gathered: ScanResult) -> Iterator[str]:
        """Segment columns of which not all values are told apart."""
        both = (gathered.fit.totals + gathered.holdout.totals).segments
        if both is None:
            return
        for name, known in zip(self.columns.segments, both.sums, strict=True):
            if len(known) > MOST:
                yield (
                    f"segment column {name!r} has {len(known):,} values: the {MOST - 1} with most "
                    "rows are told apart, the others are put together"
                )

    def chosen(self, tuned: Tuned) -> Problem:
        """The same with the eta and beta that were chosen."""
        return replace(self, parameters=tuned.parameters(self.parameters), tuned=tuned)


def way_out(problems: BadRows) -> str:
    """What is mostly the matter, a line each, and how bad rows are passed by."""
    skip = setting("on_bad_rows", "skip")
    return f"{hints(problems)}\n  ({skip} passes such rows through untouched)"


def hints(problems: BadRows) -> str:
    """What is mostly the matter, a line each."""
    often = [kind for (_, kind), bad in problems.kinds.items() if bad.rows >= 10]
    told = (hint for wrong, hint in HINTS.items() if any(k.startswith(wrong) for k in often))
    return "".join(f"\n  ({hint})" for hint in told)


def _none_left(gathered: ScanResult, split: Split | None) -> str:
    """Why no row is left to fit on."""
    counts = [
        (gathered.unlabelled, "have no label"),
        (gathered.bad, "cannot be used"),
        (gathered.weightless, "have the weight 0"),
    ]
    text = " and ".join(f"{n:,} {what}" for n, what in counts[: 3 if gathered.weightless else 2])
    text = f"of {gathered.rows:,} rows {text}"
    if gathered.holdout.counted or gathered.unused:
        text += (
            f"; the split holds out {gathered.holdout.counted:,} and leaves "
            f"{gathered.unused:,} unused"
        )
        if split is not None and not split.column.startswith("__"):  # a column of ours
            text += f": {split.rule}"
    return text


def rules_of(parameters: Parameters, losses: LossFamily, binary: bool, models: int) -> Rules:
    """Thresholds as integers. Reconcile's alpha is of probability: its events count any margin."""
    alpha = Fraction(0) if parameters.alpha is None else exact(parameters.alpha)
    if parameters.reconciles_scores:
        thresholds = tuple(loss.threshold(Fraction(0)) for loss in losses.losses)
        return Rules(losses, thresholds, int(alpha * (1 << BITS) // 1), binary, models)
    thresholds = tuple(loss.threshold(alpha) for loss in losses.losses)
    return Rules(losses, thresholds, None, binary, models)


def checked(problem: Problem) -> Problem:
    """A problem whose parts fit together; classes that nobody named are those of the losses."""
    family, columns = problem.losses, problem.columns
    if not problem.parameters.reconciles_scores and not len(family):
        raise UsageError(f"losses: {problem.parameters.algorithm} needs at least one")
    check_size(family, columns.n_models)
    names = family.classes if columns.classes is None else columns.classes
    d = family.n_classes
    if names is not None and d is not None and len(names) != d:
        raise UsageError(f"classes: {len(names)} names, but the losses have {d} classes")
    if family.classes not in (None, names):
        raise UsageError(
            f"classes: are {', '.join(names or ())}, and the columns of the costs are "
            f"{', '.join(family.classes or ())}; give both in the same order"
        )
    return replace(problem, columns=replace(columns, classes=names))


def check_size(losses: LossFamily, models: int) -> None:
    """Refuse what memory could not hold: an event for every row, loss and pair, and its counts."""
    pairs = len(pairs_of(models))
    lines, events = pairs * len(losses), pairs * sum(x.n_actions**2 for x in losses.losses)
    if models > 2 and (lines > MAX_LINES or events > MAX_EVENTS):
        raise UsageError(
            f"{models} models make {pairs} pairs; with {plural(len(losses), 'loss', 'losses')} "
            f"there are {lines:,} comparisons of a row and {events:,} events, and at most "
            f"{MAX_LINES:,} and {MAX_EVENTS:,} can be held: take fewer models, losses or actions"
        )


def few_rows(parameters: Parameters, rows: int, weighted: bool = False) -> str | None:
    """What to say if a fit rests on few rows, or if one row alone is enough for a patch.

    weighted: rows are as many as would say as much, and events are counted otherwise.
    """
    eta = None if parameters.calibrates_only or parameters.eta == "auto" else parameters.eta
    least = None if eta is None or weighted else max(1, ceil(exact(eta) * rows))
    if rows >= FEW and least != 1:
        return None
    basis = plural(rows, "row")
    if least is not None:
        event = "one row" if least == 1 else f"{least} rows"
        basis += f", where an event of {event} reaches {setting('eta', eta)},"
    return f"the fit uses only {basis} and may not hold on other rows"


def beta_warning(parameters: Parameters, rows: int) -> str | None:
    """What to say if beta is far below `auto` for so many fitting rows."""
    if parameters.beta == "auto" or parameters.reconciles_scores:
        return None
    auto = parameters.auto_beta(rows)
    given = exact(parameters.beta)
    if given * FAR > auto:
        return None
    return (
        f"{setting('beta')} {float(given):g} is {float(auto / given):,.0f} times below the noise "
        f"of {rows:,} rows: patches would fit noise; {setting('beta', 'auto')} would be "
        f"{float(auto):g}"
    )


def one_class(totals: Totals, names: Sequence[str] | None) -> str | None:
    """Labels that are all alike are seldom what someone meant; for Reconcile they are not known."""
    classes = np.flatnonzero(totals.labels[0].sum(axis=0))
    if len(classes) != 1:
        return None
    k = int(classes[0])
    called = f"class {k}" if names is None else repr(names[k])
    return f"all {totals.counted:,} fitting rows have the same label, {called}"


def worse_than_equal(totals: Totals, models: Sequence[str]) -> str | None:
    """What to say of models that say less than equal scores would."""
    d = totals.gaps.shape[1]
    worse = below_equal(totals.brier, totals.rows, d) if totals.counted >= FEW else []
    if not worse:
        return None
    return (
        "equal scores for all classes would have a better Brier score than "
        f"{' and '.join(models[place] for place in worse)}: {MIXED_UP}"
    )


def below_equal(brier_sums: Sequence[int], rows: int, d: int) -> list[int]:
    """The places of models that say less than equal scores would: mostly mixed-up classes or rows.

    Equal scores have a Brier score of 1 - 1 / d for classes, and no more for vectors of labels.
    """
    limit = (d - 1) * (rows << 2 * BITS)
    return [place for place, sum_ in enumerate(brier_sums) if sum_ * d > limit]
