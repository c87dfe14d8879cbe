"""Alerts: what a scheduler that knows success and failure only may want to hear of as a failure."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.outcome import Outcome

MEANING = {
    "capped": "max_rounds or max_steps stopped it before it was done",
    "stalled": "the next patch rounds to nothing on the patch grid (grid_bits)",
    "cut": "the guard left out patches that raised the cost on holdout rows",
}


def _status(name: str) -> Callable[[Outcome], str | None]:
    return lambda outcome: MEANING[name] if outcome.row.status == name else None


def _certificate(outcome: Outcome) -> str | None:
    checks = json.loads(outcome.row.certificate or "{}").get("checks", ())
    failed = [check["name"] for check in checks if check["verdict"] in ("violated", "fail")]
    return f"violated on the holdout rows: {', '.join(failed)}" if failed else None


def _rows(count: Callable[[RunRow], int | None], what: str) -> Callable[[Outcome], str | None]:
    return lambda outcome: f"{count(outcome.row):,} rows {what}" if count(outcome.row) else None


CONDITIONS: dict[str, Callable[[Outcome], str | None]] = {
    **{name: _status(name) for name in MEANING},
    "certificate": _certificate,
    "bad_rows": _rows(lambda row: row.bad_rows, "could not be used"),
    "unlabelled": _rows(lambda row: row.unlabelled_rows, "have no label yet"),
    "unchanged": lambda outcome: (
        "nothing has changed since the last run" if outcome.unchanged else None
    ),
    "held": lambda outcome: outcome.held,
}


@dataclass(frozen=True)
class NamesAmong:
    """Reads a list as `--fail-on` has it; completion offers what is known."""

    known: tuple[str, ...]

    def __call__(self, text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in self.known:
                known = ", ".join(self.known)
                raise argparse.ArgumentTypeError(f"{name!r} is unknown; there are: {known}")
        return names


def alerts(names: Sequence[str], outcome: Outcome) -> list[str]:
    """Which of the conditions hold of a run, and why.

    A run that had nothing to do counts as the one that did it: else a failure that a scheduler
    tries again would be a success.
    """
    reasons = ((name, CONDITIONS[name](outcome)) for name in names)
    return [f"{name}: {why}" for name, why in reasons if why is not None]
