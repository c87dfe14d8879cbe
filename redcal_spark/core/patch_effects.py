"""What every patch of a log does to rows that it was not fitted on: exact sums that merge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redcal_spark.core.additive import Additive
from redcal_spark.core.blocks import Block
from redcal_spark.core.kernel import Classified, Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.paired import Moments, loss_moments
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows


@dataclass(frozen=True)
class PatchEffect(Additive):
    """One patch: the rows that it acts on, and per loss the change of the patched model's loss.

    The change is after minus before, row by row, on the quantised loss, as of `core.paired`. With
    weights, rows count so often, and the change is w times that of the row.
    """

    rows: int
    losses: tuple[Moments, ...]

    @classmethod
    def none(cls, losses: LossFamily) -> PatchEffect:
        return cls(0, (Moments(),) * len(losses))


def patch_effects(
    block: Block,
    rules: Rules,
    log: Sequence[Patch],
    heaviest: int,
    classified: Classified | None = None,
) -> list[PatchEffect]:
    """Replay a log on labelled rows, patch by patch.

    heaviest: the largest weight of all rows, here or elsewhere.
    """
    rows, effects = Rows(block, rules, classified), []
    assert rows.y is not None
    y, w = rows.y, rows.w
    for patch in log:
        i = patch.model - 1
        before = rows.actions[i].copy()
        index = rows.apply(patch)
        moments = tuple(
            loss_moments(loss, before[place], rows.actions[i][place], y, index, w, heaviest)
            for place, loss in enumerate(rules.losses.losses)
        )
        effects.append(PatchEffect(rows.weight_of(index), moments))
    return effects


def added_effects(
    blocks: Iterable[Sequence[PatchEffect]],
    log: Sequence[Patch],
    losses: LossFamily,
) -> list[PatchEffect]:
    """Effects on many blocks, summed patch by patch."""
    total = [PatchEffect.none(losses) for _ in log]
    for effects in blocks:
        total = [known + more for known, more in zip(total, effects, strict=True)]
    return total
