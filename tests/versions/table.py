"""What was run in the environments and what came of it, as docs/results/versions.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.results import Part, Results, commit
from tests.bench.timing import machine
from tests.versions.rows import ENGINES, ROWS, Row

STEPS = ("contract", "run", "no_op", "resume", "merge", "stream", "apply", "audit", "workers")
WORDS = {"local": "local engine", "classic": "classic Spark", "connect": "Spark Connect"}
HEADS = ("platform", "Spark", "Delta", "Python", "pyarrow / pandas / numpy / pydantic")


@dataclass
class Outcome:
    """steps: by engine, what became of each. digests, commits: of the code that an engine ran on.

    problem: why nothing was run.
    """

    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    problem: str | None = None

    def good_for(self, digest: str, engines: Iterable[str]) -> bool:
        """Whether all steps of these engines passed, with this code."""
        now = all(self.digests.get(one) == digest and self._passed(one) for one in engines)
        return now and not self._spoilt

    def _passed(self, engine: str) -> bool:
        told = self.steps.get(engine, {}).values()
        return bool(told) and all(text.startswith(("ok", "-")) for text in told)

    @property
    def _spoilt(self) -> bool:
        return bool(self.replaced) or self.problem is not None

    @property
    def good(self) -> bool:
        return bool(self.steps) and all(map(self._passed, self.steps)) and not self._spoilt

    @property
    def told(self) -> str:
        if self.problem is not None:
            return self.problem
        if not self.steps:
            return "nothing was run"
        bad = [
            f"{engine} {step}: {text}"
            for engine, steps in self.steps.items()
            for step, text in steps.items()
            if not text.startswith(("ok", "-"))
        ]
        replaced = [f"replaced: {', '.join(self.replaced)}"] if self.replaced else []
        return "; ".join([*bad, *replaced]) or "all passed"


def save(path: Path, known: Mapping[str, Outcome]) -> None:
    parts = [Part(list(_versions(known)), (*HEADS, "nothing of it replaced")), *_engines(known)]
    now = f"{datetime.now(UTC):%Y-%m-%d}"
    Results("make test-versions", now, commit(), machine(), parts).save(path)


def _versions(known: Mapping[str, Outcome]) -> Iterator[list[str]]:
    for row in ROWS:
        found = known.get(row.name, Outcome(problem="not yet"))
        replaced = "yes" if not found.replaced else f"NO: {', '.join(found.replaced)}"
        yield [
            *(row.platform, row.spark, row.delta, row.python, _libraries(row)),
            replaced if found.problem is None else f"not run: {found.problem}",
        ]


def _libraries(row: Row) -> str:
    if len(row.libraries) < 4:
        return ", ".join(f"{name} {version}" for name, version in row.libraries.items()) or "newest"
    return " / ".join(row.libraries.values())


def _engines(known: Mapping[str, Outcome]) -> Iterator[Part]:
    """A table per engine: rows by steps."""
    for engine in ENGINES:
        steps, lines = _steps_of(engine), []
        for row in ROWS:
            outcome = known.get(row.name, Outcome())
            told, ran = outcome.steps.get(engine, {}), outcome.commits.get(engine, "-")
            missing = "not run" if engine in row.engines else "-"
            lines.append([row.platform, *(_cell(told, step, missing) for step in steps), ran])
        heads = (WORDS[engine], *(step.replace("_", "-") for step in steps), "commit")
        yield Part(lines, heads)


def _steps_of(engine: str) -> list[str]:
    return [step for step in STEPS if engine != "local" or step != "stream"]


def saved(path: Path) -> dict[str, Outcome]:
    """What a file that `save` wrote says of every row: of earlier commits, on other machines."""
    if not path.exists():
        return {}
    known = {row.name: Outcome() for row in ROWS}
    results = Results.load(path)
    for engine in ENGINES:
        lines = {line[0]: line for line in results.part(WORDS[engine]).rows}
        for row in ROWS:
            _, *cells, ran = lines.get(row.platform, ["", "not run", "-"])
            if cells[0] not in ("not run", "-"):
                known[row.name].steps[engine] = dict(zip(_steps_of(engine), cells, strict=True))
                known[row.name].commits[engine] = ran
    return {name: outcome for name, outcome in known.items() if outcome.steps}


def _cell(told: Mapping[str, str], step: str, missing: str) -> str:
    text = told.get(step, "-" if told else missing)
    return text if text.startswith(("ok", "-", "not run")) else "FAILED"
