"""Losses: what each action costs in each class, and the action a prediction leads to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from redcal_spark.core.costs import read_costs
from redcal_spark.core.fixed_point import BITS, Ints, exact, loss_bits
from redcal_spark.core.number_text import plural
from redcal_spark.core.responses import LossGroup
from redcal_spark.errors import FitWarning, GridWarning, ModelFileError, UsageError, warn
from redcal_spark.settings import MAX_CLASSES


@dataclass(frozen=True, eq=False)
class Loss:
    """A K x d matrix of costs, action x class, with names for both where the user gave them.

    `costs` are the user's own; `quantised` the costs rescaled to [0, 1] on the grid 2^-bits.
    classes: the columns of the data frame that the costs came in, if they were names.
    """

    name: str
    costs: tuple[tuple[float, ...], ...]
    actions: tuple[str, ...]
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, name: str, costs: Any, actions: Sequence[str] | None = None) -> Loss:
        """Check a matrix the user gave. Every problem is told at once."""
        given, problems = read_costs(costs)
        if given is not None:
            matrix = given.matrix
            if len(matrix) < 2:
                problems.append(f"needs at least 2 actions (rows), got {len(matrix)}")
            if not 2 <= matrix.shape[1] <= MAX_CLASSES:
                problems.append(
                    f"needs 2 to {MAX_CLASSES:,} classes (columns), got {matrix.shape[1]}"
                )
            if actions is not None and len(actions) != len(matrix):
                problems.append(f"{len(actions)} action names for {len(matrix)} rows of costs")
            elif None not in (actions, given.actions) and tuple(actions or ()) != given.actions:
                problems.append(
                    f"the actions are {_listed(actions)}, and the rows of the costs are called "
                    f"{_listed(given.actions)}; name them once, or in the same order"
                )
            bad = np.argwhere(~np.isfinite(matrix))
            if len(bad):
                a, j = bad[0]
                problems.append(
                    f"{len(bad)} costs are not finite; first: action {a}, class {j}: {matrix[a, j]}"
                )
            elif matrix.size and not np.isfinite(float(matrix.max()) - float(matrix.min())):
                problems.append("the range of the costs is too large for float64")
            actions = given.actions if actions is None else actions
        if actions is not None and len(set(actions)) != len(actions):
            problems.append(f"action names repeat: {', '.join(map(str, actions))}")
        if problems:
            raise UsageError("; ".join(f"loss {name!r}: {problem}" for problem in problems))
        assert given is not None
        names = tuple(map(str, actions if actions is not None else range(len(matrix))))
        loss = cls(name, tuple(tuple(row) for row in matrix.tolist()), names, given.classes)
        loss._warn_of_merged_costs()
        if len(set(loss.costs)) == 1:
            warn(
                f"loss {name!r}: every action costs the same in each class, so that no action is "
                "ever worse than another and there is nothing to reconcile",
                FitWarning,
            )
        return loss

    @property
    def n_actions(self) -> int:
        return len(self.costs)

    @property
    def n_classes(self) -> int:
        return len(self.costs[0])

    @property
    def bits(self) -> int:
        return loss_bits(self.n_classes)

    @cached_property
    def quantised(self) -> Ints:
        m = np.array(self.costs, dtype=np.float64)
        low, high = m.min(), m.max()
        scaled = (m - low) / (high - low) if high > low else np.zeros_like(m)
        return np.rint(scaled * 2.0**self.bits).astype(np.int64)

    @cached_property
    def exact_costs(self) -> tuple[tuple[Fraction, ...], ...]:
        return tuple(tuple(exact(c) for c in row) for row in self.costs)

    @cached_property
    def whole_costs(self) -> tuple[list[list[int]], int]:
        """The costs as integers over one denominator: many sums of fractions would take long."""
        unit = math.lcm(*(cost.denominator for line in self.exact_costs for cost in line))
        return [[int(cost * unit) for cost in line] for line in self.exact_costs], unit

    @cached_property
    def scale(self) -> Fraction:
        """User's units per unit of the rescaled loss (0 for a constant loss)."""
        flat = [c for row in self.exact_costs for c in row]
        return max(flat) - min(flat)

    @cached_property
    def grid_error(self) -> Fraction:
        """How far the difference of two quantised costs of a class is from that of the user's own.

        At most 2 * 2^-G, but for costs so close together that float64 does not tell them apart.
        """
        costs, _ = self.whole_costs
        flat = [cost for line in costs for cost in line]
        least, spread = min(flat), max(flat) - min(flat)
        if not spread:
            return Fraction(0)
        errors = [
            [((cost - least) << self.bits) - spread * q for cost, q in zip(line, qs, strict=True)]
            for line, qs in zip(costs, self.quantised.tolist(), strict=True)
        ]
        worst = max(max(of) - min(of) for of in zip(*errors, strict=True))
        return max(Fraction(worst, spread), Fraction(2)) / (1 << self.bits)

    @cached_property
    def class_reach(self) -> int:
        """How far the quantised loss of a row can move, at most, if its label is a class."""
        return int((self.quantised.max(axis=0) - self.quantised.min(axis=0)).max())

    @cached_property
    def vector_reach(self) -> int:
        """The same if its label is a vector, whose coordinates are in [0, 1]."""
        costs = self.quantised
        return max(int(np.maximum(row - costs, 0).sum(axis=1).max()) for row in costs)

    @cached_property
    def action_distances(self) -> Fraction:
        """max over b of the sum over a of |l_a - l_b|, Euclidean, of the quantised loss.

        A sum of roots: rounded up to 2^-64 each, for it is a bound.
        """
        costs, most = self.quantised, 0
        for row in costs:
            squares = ((costs - row) ** 2).sum(axis=1).tolist()  # below 2^63, by the choice of G
            roots = [math.isqrt(square << 128) for square in squares]
            exact_ones = [
                root * root == square << 128 for root, square in zip(roots, squares, strict=True)
            ]
            most = max(most, sum(roots) + exact_ones.count(False))
        return Fraction(most, 1 << 64 + self.bits)

    def threshold(self, alpha: Fraction) -> int:
        """Integer score gaps above this are gaps above alpha."""
        return int(alpha * (1 << BITS + self.bits) // 1)

    def cost(self, label_sums: Ints) -> Fraction:
        """The total cost of label sums (action x class, on the grid), in the user's units."""
        costs, unit = self.whole_costs
        pairs = zip(costs, label_sums.tolist(), strict=True)
        total = sum(c * y for line, row in pairs for c, y in zip(line, row, strict=True))
        return Fraction(total, unit << BITS)

    def rescaled_cost(self, label_sums: Ints) -> Fraction:
        """The same with costs rescaled to [0, 1]; 0 for a constant loss."""
        if not self.scale:
            return Fraction(0)
        least = min(cost for row in self.exact_costs for cost in row)
        labels = sum(label_sums.sum(axis=0).tolist())
        return (self.cost(label_sums) - least * Fraction(labels, 1 << BITS)) / self.scale

    def _warn_of_merged_costs(self) -> None:
        values: dict[int, set[float]] = {}
        for q, c in zip(
            self.quantised.ravel().tolist(), np.ravel(self.costs).tolist(), strict=True
        ):
            values.setdefault(q, set()).add(c)
        merged = [sorted(same) for same in values.values() if len(same) > 1]
        if merged:
            shown = "; ".join(", ".join(map(repr, same[:4])) for same in merged[:3])
            warn(
                f"loss {self.name!r}: {plural(len(merged), 'group')} of distinct costs "
                f"{'is' if len(merged) == 1 else 'are'} equal on the grid "
                f"2^-{self.bits} of the rescaled loss: {shown}",
                GridWarning,
            )


def _listed(names: Sequence[str] | None) -> str:
    return ", ".join(map(repr, names or ()))


class LossFamily:
    """The losses, in the order of the configuration, which decides ties."""

    def __init__(self, losses: Sequence[Loss]):
        widths = {loss.n_classes for loss in losses}
        if len(widths) > 1:
            each = ", ".join(f"{loss.name!r} has {loss.n_classes}" for loss in losses)
            raise UsageError(f"losses must have the same number of classes (columns): {each}")
        names = [loss.name for loss in losses]
        if len(set(names)) < len(names):
            raise UsageError(f"loss names repeat: {', '.join(names)}")
        named = [loss for loss in losses if loss.classes is not None]
        if len({loss.classes for loss in named}) > 1:
            each = "; ".join(f"{loss.name!r}: {_listed(loss.classes)}" for loss in named)
            raise UsageError(f"losses must have the same classes (columns) in one order: {each}")
        self.classes = named[0].classes if named else None
        self.losses = tuple(losses)
        sizes = [loss.n_actions for loss in losses]
        self.offsets = np.cumsum([0, *sizes])
        self.cell_loss = np.repeat(np.arange(len(losses)), sizes)
        self.cell_action = np.concatenate([np.arange(k) for k in sizes] or [np.arange(0)])
        self.groups = tuple(self._group(k) for k in dict.fromkeys(sizes))
        largest = max(sizes, default=2)
        self.action_type = np.min_scalar_type(largest)
        self.event_type = np.min_scalar_type(largest * largest)
        self.no_event = np.iinfo(self.event_type).max  # of a row that is outside every event

    @classmethod
    def of(cls, losses: Any) -> LossFamily:
        """A family from what users write: {name: matrix} or {name: {"costs": ..., ...}}.

        A matrix is lists, an array, or a data frame whose index and columns name both sides.
        """
        if losses is None:
            return cls(())
        if isinstance(losses, LossFamily):
            return losses
        if isinstance(losses, Loss):
            return cls((losses,))
        if not isinstance(losses, Mapping):
            if isinstance(losses, Sequence) and all(isinstance(x, Loss) for x in losses):
                return cls(losses)
            raise UsageError(
                "losses: must be a mapping of names to cost matrices (action x class), "
                f"got {type(losses).__name__}"
            )
        family, problems = [], []
        for name, given in losses.items():
            given = given if isinstance(given, Mapping) else {"costs": given}
            unknown = set(given) - {"costs", "actions"}
            if unknown or "costs" not in given:
                problems.append(f"loss {name!r}: takes 'costs' and 'actions', got {sorted(given)}")
                continue
            try:
                family.append(Loss.of(str(name), given["costs"], given.get("actions")))
            except UsageError as err:
                problems.append(str(err))
        if problems:
            raise UsageError("; ".join(problems))
        return cls(family)

    def rescaled_cost(self, labels: Sequence[Ints]) -> Fraction:
        """What decisions cost in all, each loss rescaled to [0, 1].

        labels: per model, label sums (cell x class).
        """
        costs = (
            loss.rescaled_cost(sums[self.cells(place)])
            for place, loss in enumerate(self.losses)
            for sums in labels
        )
        return sum(costs, Fraction(0))

    def _group(self, k: int) -> LossGroup:
        index = np.array([i for i, loss in enumerate(self.losses) if loss.n_actions == k])
        stacked = np.stack([self.losses[i].quantised for i in index], axis=1)  # (K, losses, d)
        weights = np.ascontiguousarray(stacked.reshape(k * len(index), -1))
        return LossGroup(index, k, weights, self.losses[index[0]].bits)

    def __len__(self) -> int:
        return len(self.losses)

    def __getitem__(self, place: int) -> Loss:
        return self.losses[place]

    def place(self, name: str) -> int:
        for i, loss in enumerate(self.losses):
            if loss.name == name:
                return i
        raise UsageError(
            f"no loss named {name!r}; there are: {', '.join(x.name for x in self.losses)}"
        )

    @property
    def n_classes(self) -> int | None:
        return self.losses[0].n_classes if self.losses else None

    @property
    def n_cells(self) -> int:
        """Cells are pairs (loss, action), in the order that decides ties."""
        return int(self.offsets[-1])

    def cells(self, loss: int) -> slice:
        return slice(int(self.offsets[loss]), int(self.offsets[loss + 1]))

    def to_json(self, quantised: bool) -> list[dict[str, Any]]:
        """quantised: with the integers that decide, so that nobody need find them again."""
        return [
            {"name": x.name, "actions": list(x.actions), "costs": [list(row) for row in x.costs]}
            | ({"bits": x.bits, "quantised": x.quantised.tolist()} if quantised else {})
            for x in self.losses
        ]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]], quantised: bool) -> LossFamily:
        """Integers that are not those of the costs are refused."""
        family = cls([Loss.of(x["name"], x["costs"], x["actions"]) for x in data])
        for loss, given in zip(family.losses, data if quantised else (), strict=False):
            if (given["bits"], given["quantised"]) != (loss.bits, loss.quantised.tolist()):
                raise ModelFileError(
                    f"damaged model: loss {loss.name!r}: the quantised costs are not those of its "
                    "costs"
                )
        return family
