"""Opening: the job that the options of a command ask for, and its model."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from redcal_spark.backends.backend import Backend
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.names import is_catalog_name
from redcal_spark.cli.log_lines import log_line
from redcal_spark.cli.terminal import Terminal
from redcal_spark.config.folder import looked_for
from redcal_spark.config.load import load_config
from redcal_spark.config.schema import Config
from redcal_spark.errors import ModelFileError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow


def job_of(options: argparse.Namespace) -> Job:
    config = _config(options)
    form = options.log_format
    quiet = options.quiet or (options.json and form == "text")  # a log for machines was asked for
    names = config.input.model_names
    listener = Terminal(quiet, options.verbose, options.screen, options.context, form, names)
    return Job(config, _work(config, options.engine), listener)


def _config(options: argparse.Namespace) -> Config:
    overrides = list(options.set)
    if options.engine is not None:
        overrides.append(f"engine.name={options.engine}")
    config = load_config(options.config, overrides)
    options.screen.hidden = config.hidden
    return config


def _work(config: Config, asked: str | None) -> Backend:
    """Where tables are and computing is done. asked: what --engine says."""
    engine, why = choose_engine(config)
    why = "asked for by --engine" if engine == asked else why
    level = logging.INFO if engine == "spark" else logging.DEBUG  # the usual goes without saying
    log_line.log(level, "engine %s: %s", engine, why)
    if engine == "local":
        return LocalBackend(DeltaRsStore(config.storage_options.given), config.engine.threads)
    given, options = config.engine, config.storage_options.given
    names = (config.input.table, *config.output.tables, given.scratch or "")
    work = {name: getattr(given, name) for name in ("scratch", "driver_budget", "threads", "read")}
    return _spark(names, options, **work)


def work_for(table: str, engine: str | None) -> Backend:
    """Where one table can be looked at, before there is a configuration."""
    catalog = is_catalog_name(table) and not Path(table).exists()
    on_spark = catalog or "DATABRICKS_RUNTIME_VERSION" in os.environ or _in_spark()
    if engine == "spark" or (engine in (None, "auto") and on_spark):
        return _spark((table,), {})
    return LocalBackend(DeltaRsStore())


def _spark(names: Sequence[str], options: Mapping[str, str], **work: Any) -> Backend:
    """names: tables that a session of our own must reach, with these options of object stores."""
    try:
        from redcal_spark.backends.spark.backend import SparkBackend
        from redcal_spark.backends.spark.hadoop import object_store_settings
        from redcal_spark.backends.spark.session import active_session, get_session, was_submitted
    except ModuleNotFoundError as err:
        raise UsageError(
            "engine.name: spark needs PySpark: pip install 'redcal-spark[spark]' "
            "(--engine local needs none)"
        ) from err
    if active_session() is None and not was_submitted():
        log_line.info(
            "starting Spark; the first time it fetches Delta, and for S3 hadoop-aws (some 100 MB), "
            "which takes minutes"
        )
    session = get_session(**object_store_settings(names, options))
    return SparkBackend(session, options=options, **work)


def choose_engine(config: Config) -> tuple[Literal["local", "spark"], str]:
    """What computes, and why: `auto` computes where the data is."""
    if config.engine.name != "auto":
        return config.engine.name, "set in the configuration"
    if "DATABRICKS_RUNTIME_VERSION" in os.environ or _in_spark():
        return "spark", "a Spark session is active"
    for name in (config.input.table, *config.output.tables):
        if is_catalog_name(name) and not Path(name).exists():
            return "spark", f"{name} is a catalog name"
    return "local", "no table is a catalog name, and no Spark session is active"


def _in_spark() -> bool:
    """Whether this process has a Spark session, asked without importing Spark."""
    spark = sys.modules.get("pyspark.sql")
    return spark is not None and spark.SparkSession.getActiveSession() is not None


def model_of(options: argparse.Namespace, job: Job) -> tuple[ReconciledPair, str, RunRow | None]:
    """The model to apply, what to call it, and the run it is of; a file does not know."""
    if options.model is not None:
        if not os.path.exists(options.model):
            raise ModelFileError(f"{options.model}: no such file{looked_for(options.model)}")
        pair = renamed(ReconciledPair.load(options.model), job.config.hidden.read_json)
        return pair, str(options.model), None
    row = job.find(options.run)
    return job.pair_of(row), f"run {row.run_id}", row


def renamed(pair: ReconciledPair, change: Callable[[str], str]) -> ReconciledPair:
    """A model whose names are as the configuration writes them, or as they are."""
    text = json.dumps(pair.to_json())
    changed = change(text)
    return pair if changed == text else ReconciledPair.from_json(json.loads(changed))
