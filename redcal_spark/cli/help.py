"""What `--help` shows: commands in groups, examples, and what the tables of a run are for."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping

# Commands that exist are shown in this order; each has two examples below.
GROUPS = {
    "try": ("init", "demo", "check", "audit", "compare", "tune"),
    "run": ("run", "fit", "apply", "resume"),
    "inspect": ("report", "explain", "log", "evaluate", "monitor", "view"),
    "maintain": ("runs", "export", "prune", "completion"),
}

# In this order they run in a folder that has conf/my.yaml, data/scores and model.json: a test
# does so.
EXAMPLES: dict[str, tuple[str, str]] = {
    "init": ("redcal init data/scores -o conf/scores.yaml", "redcal init model_a.csv model_b.csv"),
    "demo": ("redcal demo", "redcal demo --rows 5000 --force"),
    "check": ("redcal check -c conf/my.yaml", "redcal check -c conf/my.yaml --ids"),
    "audit": ("redcal audit -c conf/my.yaml", "redcal audit -c conf/my.yaml --json"),
    "compare": (
        "redcal compare -c conf/my.yaml",
        "redcal compare -c conf/my.yaml -o compared.svg",
    ),
    "tune": ("redcal tune -c conf/my.yaml", "redcal tune -c conf/my.yaml -o tuned.svg"),
    "run": (
        "redcal run -c conf/my.yaml",
        "redcal run -c conf/my.yaml --set reconcile.eta=0.02 --fail-on capped,certificate",
    ),
    "fit": (
        "redcal fit -c conf/my.yaml --force",
        "redcal fit -c conf/my.yaml --set reconcile.algorithm=dc_then_redcal",
    ),
    "apply": (
        "redcal apply -c conf/my.yaml --run latest",
        "redcal apply -c conf/my.yaml --model model.json",
    ),
    "resume": (
        "redcal resume -c conf/my.yaml",
        "redcal resume -c conf/my.yaml --wait",
    ),
    "report": (
        "redcal report -c conf/my.yaml",
        "redcal report -c conf/my.yaml --run latest -o report.md",
    ),
    "explain": (
        "redcal explain -c conf/my.yaml --id 17",
        "redcal explain -c conf/my.yaml --id 17 --json",
    ),
    "log": ("redcal log -c conf/my.yaml", "redcal log -c conf/my.yaml --json"),
    "evaluate": (
        "redcal evaluate -c conf/my.yaml",
        "redcal evaluate -c conf/my.yaml --model model.json",
    ),
    "monitor": (
        "redcal monitor -c conf/my.yaml",
        "redcal monitor -c conf/my.yaml --table data/scores --fail-on loss,mass",
    ),
    "view": (
        "redcal view -c conf/touched.yaml",
        "redcal view -c conf/touched.yaml --name scores_whole",
    ),
    "runs": ("redcal runs -c conf/my.yaml", "redcal runs -c conf/my.yaml --json"),
    "export": (
        "redcal export -c conf/my.yaml",
        "redcal export -c conf/my.yaml --format sql --dialect spark -o model.sql",
    ),
    "prune": (
        "redcal prune -c conf/my.yaml --keep 30 --dry-run",
        "redcal prune -c conf/my.yaml --older-than 90d --compact",
    ),
    "completion": ("redcal completion bash", "redcal completion fish"),
}

TOLD_APART = {
    "log": "what was changed: a line per patch (redcal log; <table>_patches)",
    "history": "how scores and costs went, round by round (<table>_history)",
    "metrics": "a number per row, for dashboards and alerts (<table>_metrics)",
    "runs": "who ran what when, and how it ended (redcal runs; <table>_runs)",
}
EXITS = (
    "Exit: 0 converged, 1 failed or interrupted, 2 wrong use, configuration or input, 3 finished "
    "but capped, stalled or cut. A run with nothing to do exits as the run that did it."
)


class Formatter(argparse.HelpFormatter):
    """Wraps paragraphs; those with indented lines stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if "\n " in part else textwrap.fill(" ".join(part.split()), width)
            for part in text.split("\n\n")
        )


def overview(texts: Mapping[str, str]) -> str:
    """The commands that there are, in their groups. texts: command -> what it does."""
    wide = max(map(len, texts)) + 2
    groups = (
        "\n".join([f"{group}:", *(f"  {name:<{wide}}{texts[name]}" for name in names)])
        for group, known in GROUPS.items()
        if (names := [name for name in known if name in texts])
    )
    return "\n\n".join(["Reconcile models that lead to different decisions.", *groups])


def told_apart() -> str:
    lines = (f"  {name:<9}{text}" for name, text in TOLD_APART.items())
    return "\n".join(["what a run leaves, told apart:", *lines])


def ending() -> str:
    """The last lines of `redcal --help`."""
    more = "redcal COMMAND --help has a command's options and two examples."
    return "\n\n".join([told_apart(), EXITS, more])


def examples(command: str, more: str | None = None) -> str:
    """The last lines of a command's help."""
    lines = (f"  {line}" for line in EXAMPLES[command])
    shown = "\n".join(["examples:", *lines])
    return shown if more is None else f"{more}\n\n{shown}"
