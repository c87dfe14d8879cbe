"""A model as one SELECT: the replay of its log in integer arithmetic, for whatever speaks SQL.

Every patch is two steps: which rows it acts on, and their new scores. Scores are grid integers in
BIGINT columns; a difference of two actions' scores is a sum of products below 2^62, so that nothing
is rounded anywhere. What a row looks like between steps: its carried columns, v (it can be used),
the scores of every model, t1, t2, ... (touched), e (in the event of the current round).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.losses import Loss
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.patches import Patch
from redcal_spark.errors import UsageError
from redcal_spark.model.sql_dialect import Dialect

PATCHES = 100
CLASSES = 20
LETTERS = 4_000_000
DEPTH = 4  # steps of an expression


def to_sql(fitted: Fitted, table: str, dialect: str, names: OutputNames) -> str:
    """The SELECT. table: as it is to stand behind FROM. names: what is carried, and new names.

    A row that cannot be used keeps its scores, has no actions, and is not `valid`.
    """
    _check(fitted, Dialect.of(dialect))
    statement = _Statement(fitted, Dialect.of(dialect), names)
    text = statement.text(table)
    if len(text) > LETTERS:
        raise UsageError(
            f"export --format sql: the SELECT would have {len(text):,} letters, and the limit is "
            f"{LETTERS:,}: {len(fitted.log)} patches of {fitted.n_classes} classes with "
            f"{fitted.losses.n_cells} actions in all; apply the model with redcal apply or Python"
        )
    return text


def _check(fitted: Fitted, dialect: Dialect) -> None:
    problems = []
    if len(fitted.log) > PATCHES:
        problems.append(f"{len(fitted.log):,} patches, and the limit is {PATCHES}")
    if fitted.n_classes > CLASSES:
        problems.append(f"{fitted.n_classes:,} classes, and the limit is {CLASSES}")
    if problems:
        raise UsageError(
            f"export --format sql: the model has {'; '.join(problems)}. Every patch nests the "
            "SELECT two levels deeper, and every class is a column of each: query planners give up "
            "before long. Apply the model with redcal apply or Python, or raise eta for fewer "
            "patches"
        )
    arrays = not fitted.binary and any(isinstance(scores, str) for scores in fitted.columns.models)
    if dialect.name == "ansi" and arrays:
        raise UsageError(
            "export --dialect ansi: the scores are array columns, which every engine writes in its "
            "own way; use --dialect spark or duckdb, or score columns, one for each class"
        )


@dataclass
class _Statement:
    """The common table expressions, one after the other, and the columns of the last one."""

    fitted: Fitted
    dialect: Dialect
    names: OutputNames
    steps: list[str] = field(default_factory=list)

    def text(self, table: str) -> str:
        self._grid(table)
        for patch in self.fitted.log:
            self._patch(patch)
        final = self._select()
        return f"WITH {self._expressions()}\n{final}"

    def _expressions(self) -> str:
        """The steps, some of them nested in each expression.

        Spark's analyzer resolves one expression a pass, and has 100 passes.
        """
        named, nested = [], ""
        for place, step in enumerate(self.steps):
            inner, last = f" FROM s{place - 1}", place == len(self.steps) - 1
            nested = step.removesuffix(inner) + f" FROM ({nested}) s{place - 1}" if nested else step
            if last or place % DEPTH == DEPTH - 1:
                named.append(f"s{place} AS ({nested})")
                nested = ""
        return ",\n".join(named)

    # --- columns --------------------------------------------------------------------------------

    @property
    def models(self) -> range:
        return range(1, self.fitted.columns.n_models + 1)

    @property
    def classes(self) -> range:
        """Coordinates that are kept: of one column P(1) the other one is the rest."""
        return range(1, 2) if self.fitted.binary else range(self.fitted.n_classes)

    @property
    def carried(self) -> list[str]:
        """The input columns that are needed in the end: those to show, and what scores are of."""
        shown = self.names.carried or ()
        return list(dict.fromkeys([*shown, *self.fitted.columns.names(label=False)]))

    @property
    def kept(self) -> list[str]:
        """The columns of every step, by their short names."""
        scores = [f"f{m}_{j}" for m in self.models for j in self.classes]
        before = [f"b{place}_{m}" for place in range(len(self.fitted.losses)) for m in self.models]
        places = [f"c{place}" for place in range(len(self.carried))]
        return [*places, "v", *before, *scores, *(f"t{m}" for m in self.models), "e"]

    def _step(self, new: dict[str, str], *, extra: Sequence[str] = ()) -> None:
        """One more step: the columns that stay, and new ones."""
        columns = [f"{new[name]} AS {name}" if name in new else name for name in self.kept]
        columns += [f"{new[name]} AS {name}" for name in extra]
        self.steps.append(f"SELECT {', '.join(columns)} FROM s{len(self.steps) - 1}")

    # --- the start ------------------------------------------------------------------------------

    def _grid(self, table: str) -> None:
        """Scores on the grid, and whether the row can be used."""
        sql = self.dialect
        columns = [f"{sql.quoted(name)} AS c{i}" for i, name in enumerate(self.carried)]
        grids = [
            f"{sql.on_grid(number)} AS q{model}_{j}"
            for model in self.models
            for j, number in zip(self.classes, self._given(model), strict=True)
        ]
        self.steps.append(f"SELECT {', '.join([*columns, *grids])} FROM {table}")
        known = [f"q{m}_{j} IS NOT NULL" for m in self.models for j in self.classes]
        if (id := self.fitted.columns.id) is not None:
            known.append(f"c{self.carried.index(id)} IS NOT NULL")
        before = {name: "0" for name in self.kept if name.startswith("b")}
        scores = {
            f"f{m}_{j}": f"coalesce(q{m}_{j}, {sql.whole(0)})"
            for m in self.models
            for j in self.classes
        }
        flags = {f"t{m}": "FALSE" for m in self.models} | {"e": "FALSE"}
        self._step({"v": f"({' AND '.join(known)})", **before, **scores, **flags})
        costs, chosen = self._decisions()
        self._step(costs, extra=list(costs))
        self._step({f"b{key}": action for key, action in chosen.items()})

    def _given(self, model: int) -> Iterator[str]:
        """The scores of a model as floating-point numbers."""
        sql, columns = self.dialect, self.fitted.columns.of_model(model)
        if self.fitted.binary or len(columns) > 1:
            for name in columns:
                yield sql.number(sql.quoted(name))
            return
        for j in self.classes:
            yield sql.number(sql.array_item(sql.quoted(columns[0]), j, self.fitted.n_classes))

    # --- patches --------------------------------------------------------------------------------

    def _patch(self, patch: Patch) -> None:
        opens = patch.kind == "reconcile"
        self._step({"h": f"({self._hit(patch)})"}, extra=["h"])
        model = patch.model
        changes = {
            f"f{model}_{j}": self._shifted(f"f{model}_{j}", phi)
            for j, phi in self._shifts(patch)
            if phi
        }
        flags = {f"t{model}": f"(t{model} OR h)"} | ({"e": "h"} if opens else {})
        self._step(changes | flags)

    def _shifts(self, patch: Patch) -> Iterator[tuple[int, int]]:
        if patch.coordinate is not None:
            yield patch.coordinate, patch.phi[0]
        else:
            assert not self.fitted.binary or patch.phi[0] == -patch.phi[1]
            yield from ((j, patch.phi[j]) for j in self.classes)

    def _hit(self, patch: Patch) -> str:
        """Whether a patch acts on a row."""
        if patch.kind == "score":
            assert patch.pair is not None
            one, two = (f"f{m}_{patch.coordinate}" for m in patch.pair)
            above = f"{one} - {two}" if patch.direction == ">" else f"{two} - {one}"
            gap = self.fitted.rules.gap
            assert gap is not None
            return f"v AND {above} > {self.dialect.whole(gap)}"
        assert patch.loss is not None
        place = self.fitted.losses.place(patch.loss)
        loss = self.fitted.losses[place]
        if patch.kind == "calibrate":
            assert patch.action is not None
            within = "v" if patch.round is None else "e"
            return " AND ".join([within, *self._best(loss, patch.model, patch.action)])
        assert patch.a1 is not None and patch.a2 is not None and patch.pair is not None
        i, j = patch.pair
        margin = self.dialect.whole(self.fitted.rules.thresholds[place])
        sure = " OR ".join(
            f"{self._contrast(loss, model, other, own)} > {margin}"
            for model, own, other in ((i, patch.a1, patch.a2), (j, patch.a2, patch.a1))
        )
        both = [*self._best(loss, i, patch.a1), *self._best(loss, j, patch.a2)]
        return " AND ".join(["v", *both, f"({sure})"])

    def _best(self, loss: Loss, model: int, action: int) -> Iterator[str]:
        """That an action is the cheapest, the lowest on ties."""
        for other in range(loss.n_actions):
            if other != action:
                relation = ">" if other < action else ">="
                zero = self.dialect.whole(0)
                yield f"{self._contrast(loss, model, other, action)} {relation} {zero}"

    def _contrast(self, loss: Loss, model: int, a: int, b: int) -> str:
        """By how much action a scores above b."""
        return self._sum((loss.quantised[a] - loss.quantised[b]).tolist(), f"f{model}")

    def _sum(self, costs: Sequence[int], scores: str) -> str:
        if self.fitted.binary:  # costs[0] (ONE - x) + costs[1] x
            return self._added([(costs[1] - costs[0], f"{scores}_1")], costs[0] * ONE)
        return self._added([(cost, f"{scores}_{j}") for j, cost in enumerate(costs)])

    # --- the end --------------------------------------------------------------------------------

    def _select(self) -> str:
        """All columns by their names: carried, new scores, actions before and after, flags."""
        sql, names = self.dialect, self.names
        shown = enumerate(self.names.carried or ())  # they come first among all that is carried
        last = [f"c{i} AS {sql.quoted(name)}" for i, name in shown]
        for model in self.models:
            values = zip(names.of_model(model), self._scores(model), strict=True)
            last += [f"{value} AS {sql.quoted(name)}" for name, value in values]
        costs, chosen = self._decisions()
        for place, loss in enumerate(self.fitted.losses.losses):
            for when, letter in (("before", "b"), ("after", "d")):
                for model in self.models:
                    action = self._named(f"{letter}{place}_{model}", loss)
                    last.append(f"{action} AS {sql.quoted(names.action(loss.name, model, when))}")
            alike = " AND ".join(f"d{place}_1 = d{place}_{m}" for m in self.models[1:])
            same = f"CASE WHEN v THEN {alike} END"
            last.append(f"{same} AS {sql.quoted(names.agree(loss.name))}")
        flags = (
            (names.touched, f"({' OR '.join(f't{m}' for m in self.models)})"),
            (names.valid, "v"),
        )
        last += [f"{flag} AS {sql.quoted(name)}" for name, flag in flags]
        self._step(costs, extra=list(costs))
        after = {f"d{key}": action for key, action in chosen.items()}
        self._step(after, extra=list(after))
        return f"SELECT {', '.join(last)}\nFROM s{len(self.steps) - 1}"

    def _decisions(self) -> tuple[dict[str, str], dict[str, str]]:
        """What every action costs by the current scores, and by these costs which one is taken.

        The first by name of its column; the second by loss and model, as 0_1.
        """
        costs: dict[str, str] = {}
        chosen: dict[str, str] = {}
        for place, loss in enumerate(self.fitted.losses.losses):
            for model in self.models:
                own = [f"a{place}_{model}_{a}" for a in range(loss.n_actions)]
                sums = [self._sum(line, f"f{model}") for line in loss.quantised.tolist()]
                costs |= dict(zip(own, sums, strict=True))
                chosen[f"{place}_{model}"] = self._choice(own)
        return costs, chosen

    def _scores(self, model: int) -> Iterator[str]:
        """New scores in the form of the old ones; untouched rows keep theirs."""
        sql, columns = self.dialect, self.fitted.columns.of_model(model)
        new = [f"{sql.number(f'f{model}_{j}')} / {ONE}" for j in self.classes]
        old = [f"c{self.carried.index(name)}" for name in columns]
        if self.fitted.binary or len(columns) > 1:
            for column, value in zip(old, new, strict=True):
                yield f"CASE WHEN t{model} THEN {value} ELSE {sql.number(column)} END"
        else:
            given = sql.as_doubles(old[0])
            yield f"CASE WHEN t{model} THEN {sql.array_of(new)} ELSE {given} END"

    @staticmethod
    def _choice(scores: Sequence[str]) -> str:
        """The first action that no later one undercuts is the cheapest, the lowest on ties."""
        cases = [
            f"WHEN {' AND '.join(f'{own} <= {other}' for other in scores[a + 1 :])} THEN {a}"
            for a, own in enumerate(scores[:-1])
        ]
        return f"CASE {' '.join(cases)} ELSE {len(scores) - 1} END"

    def _named(self, chosen: str, loss: Loss) -> str:
        cases = [
            f"WHEN v AND {chosen} = {a} THEN {self.dialect.text(name)}"
            for a, name in enumerate(loss.actions)
        ]
        return f"CASE {' '.join(cases)} END"

    def _added(self, terms: Sequence[tuple[int, str]], constant: int = 0) -> str:
        """A sum of products as text."""
        parts = [f"{self.dialect.whole(cost)} * {name}" for cost, name in terms if cost]
        if constant or not parts:
            parts.append(f"CAST({constant} AS BIGINT)")
        return f"({' + '.join(parts)})"

    def _shifted(self, score: str, phi: int) -> str:
        """phi is added where the patch acts, and the sum clipped to [0, 1]."""
        whole = self.dialect.whole
        if phi > 0:
            clipped = f"WHEN h AND {score} > {whole(ONE - phi)} THEN {whole(ONE)}"
        else:
            clipped = f"WHEN h AND {score} < {whole(-phi)} THEN {whole(0)}"
        return f"CASE {clipped} WHEN h THEN {score} + {whole(phi)} ELSE {score} END"
