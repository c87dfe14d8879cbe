"""`redcal demo`: example data, and a run on it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.store import Commit
from redcal_spark.cli.commands import run
from redcal_spark.cli.results import aside
from redcal_spark.config.load import load_config
from redcal_spark.demo import CONFIG, SCHEMA, SEED, patients
from redcal_spark.errors import UsageError
from redcal_spark.report.write import place_on_demand


def demo(options: argparse.Namespace) -> int:
    """Write the demo's patients where its configuration looks for them, and run it."""
    store = DeltaRsStore()
    config = Path("conf/demo.yaml")
    if not config.exists() or config.read_text(encoding="utf-8") != CONFIG:
        config = Path("out/demo.yaml")
        _write_demo(config)
    table = load_config(config).input.table
    if (wrong := store.check_target(table, "input.table")) is not None:
        raise UsageError(wrong)
    commit = Commit("demo", f"{options.rows}-{SEED}")
    if store.last_writer(table) != "demo" or store.open(table).count() != options.rows:
        if not options.quiet:
            aside(options, f"writing {options.rows:,} patients scored by two models to {table}")
        store.write(table, SCHEMA, patients(options.rows), "overwrite", commit)
    options.config, options.set, options.engine = str(config), [], "local"
    options.wait, options.fail_on = True, ()
    code = run(options)
    if not options.quiet and not options.json:
        hidden = Path(sys.argv[0]).name == "redcal" and shutil.which("redcal") is None
        called = os.path.relpath(sys.argv[0]) if hidden else "redcal"
        print("\nTry next:")
        for command, why in (
            (f"{called} log -c {config}", "what was patched"),
            (f"{called} audit -c {config}", "the models before"),
            (f"{called} run -c {config} --set reconcile.eta=0.002", "go further"),
        ):
            print(f"  {command:<{50 + len(called)}} # {why}")
        page = place_on_demand(load_config(config))
        if page.exists():
            print(f"\nThe report, for your browser: {page.name}")
    return code


def _write_demo(config: Path) -> None:
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        if config.exists() and config.read_text(encoding="utf-8") != CONFIG:
            raise UsageError(
                f"{config} has changed since the demo wrote it; run it with: redcal run -c "
                f"{config}, or move it away"
            )
        config.write_text(CONFIG, encoding="utf-8")
    except (OSError, UnicodeError) as err:
        raise UsageError(f"{config}: cannot be written: {getattr(err, 'strerror', err)}") from err
