"""The commands: each takes its options and returns its exit code."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.store import Commit
from redcal_spark.cli.compare_table import comparison_tables
from redcal_spark.cli.evaluation_table import evaluation_json, tell_evaluation
from redcal_spark.cli.open_job import job_of, model_of, renamed
from redcal_spark.cli.results import (
    aside,
    console_of,
    counted,
    model_names,
    patches_of,
    tell_end,
    tell_held,
)
from redcal_spark.cli.tables import audit_tables, explanation_lines
from redcal_spark.cli.terminal import (
    log_table,
    runs_table,
)
from redcal_spark.config.load import load_config
from redcal_spark.core.problem import few_rows
from redcal_spark.demo import CONFIG, SCHEMA, SEED, patients
from redcal_spark.errors import UsageError
from redcal_spark.model.audit import audit_rows
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.report.compare_chart import check_chart, write_chart
from redcal_spark.report.write import path_on_demand, write_report
from redcal_spark.runs import start
from redcal_spark.runs.claim import is_dead
from redcal_spark.runs.compare import compare_job
from redcal_spark.runs.evaluation.evaluate import evaluate as evaluate_job
from redcal_spark.runs.evaluation.findings import EXIT as EXIT_OF
from redcal_spark.runs.explain_row import explain_id
from redcal_spark.runs.job import Job
from redcal_spark.runs.prune import compact, prune, prune_lines, record_export
from redcal_spark.runs.signals import asked_to_stop
from redcal_spark.runs.stream import stream


def check(options: argparse.Namespace) -> int:
    job = job_of(options)
    layout = job.check(ids=options.ids)
    rows = job.input.count()
    if rows is not None and (told := few_rows(job.problem.parameters, rows)) is not None:
        job.listener.note(told)
    split = (
        "all labelled rows are fitted" if job.split is None else f"split by {job.split.column!r}"
    )
    found = {
        "input": job.input.name,
        "rows": rows,
        "classes": layout.n_classes,
        "scores": list(layout.forms),
        "labels": layout.label,
        "split": split,
        "folder": os.getcwd(),
        "outputs": job.tables._asdict(),
    }
    if options.json:
        print(json.dumps(found))
    elif not options.quiet:
        print(f"{options.config}: fine")
        counted = "" if rows is None else f", {rows:,} rows"
        print(f"  input    {job.input.name}{counted}, {layout.n_classes} classes")
        print(f"  split    {split}")
        print(f"  folder   {os.getcwd()}")  # where relative paths start
        for name, table in job.tables._asdict().items():
            print(f"  {'rows' if name == 'table' else name:<8} {table}")
    return 0


def audit_(options: argparse.Namespace) -> int:
    job = job_of(options)
    job.check_input()
    problem = replace(job.problem, audit=True)
    scanned = job.scan(problem)
    scanned.close()
    found = audit_rows(problem, scanned.gathered)
    if options.json:
        print(json.dumps(found))
        return 0
    console = console_of(options)
    for part in audit_tables(found, model_names(job), scanned.layout.binary):
        console.print(part)
    return 0


def run(options: argparse.Namespace) -> int:
    job = job_of(options)
    return tell_end(options, job, start.run(job, force=options.force, wait=options.wait))


def fit(options: argparse.Namespace) -> int:
    job = job_of(options)
    return tell_end(options, job, start.fit(job, force=options.force, wait=options.wait))


def resume(options: argparse.Namespace) -> int:
    job = job_of(options)
    return tell_end(options, job, start.resume(job, options.run, wait=options.wait))


def apply(options: argparse.Namespace) -> int:
    job = job_of(options)
    streams = options.incremental or options.follow is not None
    if options.switch_model and not streams:
        raise UsageError("--switch-model belongs to --incremental or --follow")
    pair, called, fitted = model_of(options, job)
    if streams:
        return _stream(options, job, pair, called)
    outcome = start.apply(job, pair, fitted=fitted, wait=options.wait)
    row = outcome.row
    if outcome.held is not None:
        return tell_held(options, outcome)
    if options.json:
        print(json.dumps({"run_id": row.run_id, "outputs": json.loads(row.outputs or "{}")}))
    elif not options.quiet:
        print(f"{patches_of(pair)} applied to {job.input.name}; rows in {job.tables.table}")
    return 0


def _stream(options: argparse.Namespace, job: Job, pair: ReconciledPair, called: str) -> int:
    with asked_to_stop() as stop:
        outcome = stream(
            job,
            pair,
            called,
            stop,
            every=options.follow,
            switch=options.switch_model,
            wait=options.wait,
        )
    row = outcome.row
    if outcome.held is not None:
        return tell_held(options, outcome)
    version = json.loads(row.inputs)["version"]
    if options.json:
        found = {"run_id": row.run_id, "rows": row.rows, "source_version": version}
        print(json.dumps(found | {"outputs": json.loads(row.outputs or "{}")}))
    elif not options.quiet:
        print(
            f"{row.rows:,} rows written to {job.tables.table}, up to version {version} of "
            f"{job.config.input.table} (run {row.run_id})"
        )
    return 0


def evaluate(options: argparse.Namespace) -> int:
    job = job_of(options)
    model = None if options.model is None else model_of(options, job)[0]
    found = evaluate_job(job, options.run, model)
    if options.json:
        print(json.dumps(evaluation_json(found)))
    elif not options.quiet:
        tell_evaluation(options, job, found)
    return EXIT_OF[found.result]


def compare(options: argparse.Namespace) -> int:
    if options.output is not None:
        check_chart(options.output)  # before hours are spent
    job = job_of(options)
    found = compare_job(job, options.reconcile_alpha)
    if options.output is not None:
        write_chart(found, options.output)
    if options.json:
        told = {"input": job.input.name, "procedures": [one.to_json() for one in found]}
        print(json.dumps(told))
        return 0
    if not options.quiet:
        console = console_of(options)
        for part in comparison_tables(found):
            console.print(part)
        if options.output is not None:
            print(f"\n  chart    {options.output}")
    return 0


def explain(options: argparse.Namespace) -> int:
    job = job_of(options)
    run = job.find(options.run)
    found = explain_id(job, run, options.id)
    if options.json:
        print(json.dumps(found.to_json()))
        return 0
    console = console_of(options)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)
    for row in found.rows:
        for part in [row] if isinstance(row, str) else explanation_lines(row, model_names(job)):
            console.print(part)
    return 0


def log(options: argparse.Namespace) -> int:
    job = job_of(options)
    row = job.find(options.run)
    pair = job.pair_of(row)
    if options.json:
        for patch in pair.log:
            print(patch.to_line())
        return 0
    console = console_of(options)
    rounds = counted(row.rounds, "round", "rounds")
    console.print(f"run {row.run_id}: {row.status}, {patches_of(pair)}, {rounds}")
    console.print(log_table(pair.log, pair.losses))
    return 0


def export(options: argparse.Namespace) -> int:
    job = job_of(options)
    row = job.find(options.run)
    pair = renamed(job.pair_of(row), job.config.hidden.stored_json)
    if options.output is None:
        print(json.dumps(pair.to_json()))
    else:
        try:
            pair.save(options.output)
        except OSError as err:
            raise UsageError(f"{options.output}: {err.strerror}") from err
        record_export(job, row, options.output)
        if options.json:
            print(json.dumps({"run_id": row.run_id, "model": options.output}))
        elif not options.quiet:
            print(f"{patches_of(pair)} in {options.output}")
    return 0


def report(options: argparse.Namespace) -> int:
    job = job_of(options)
    row = job.find(options.run)
    given = options.output
    path = path_on_demand(job.config.output) if given is None else Path(given)
    write_report(job, row, path)
    if given is not None:  # the one beside the table is the newest run's, whichever that is
        record_export(job, row, given)
    if options.json:
        print(json.dumps({"run_id": row.run_id, "report": str(path)}))
    elif not options.quiet:
        print(f"report of run {row.run_id} in {path}")
    return 0


def runs(options: argparse.Namespace) -> int:
    choices = options.keep is not None or options.older_than is not None or options.dry_run
    if choices and not options.prune:
        raise UsageError("--keep, --older-than and --dry-run belong to --prune")
    job = job_of(options)
    if options.prune or options.compact:
        return _housekeeping(options, job)
    found = job.ledger.rows()
    if options.json:
        for row in found:
            print(json.dumps(asdict(row), default=str))
        return 0
    console = console_of(options)
    console.print(runs_table(found) if found else f"no runs in {job.tables.runs}")
    for row in found:
        if row.error is not None:
            console.print(f"run {row.run_id}: {row.error}", soft_wrap=True)
        elif is_dead(row, job.lease):
            told = f"its process is gone, {row.last_heard}; the same command again goes on with it"
            console.print(f"run {row.run_id}: {told}", soft_wrap=True)
    return 0


def _housekeeping(options: argparse.Namespace, job: Job) -> int:
    told: dict[str, object] = {}
    lines: list[str] = []
    if options.prune:
        pruned = prune(job, options.keep, options.older_than, options.dry_run)
        told |= pruned.to_json()
        lines += prune_lines(pruned)
    if options.compact and not options.dry_run:
        files = compact(job)
        told["files_of_tables"] = files
        lines += [f"{name}: {before} files, now {now}" for name, (before, now) in files.items()]
    if options.json:
        print(json.dumps(told))
    elif not options.quiet:
        print("\n".join(lines))
    return 0


def _write_demo(config: Path) -> None:
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        if config.exists() and config.read_text(encoding="utf-8") != CONFIG:
            raise UsageError(
                f"{config} is no longer what the demo wrote; run it with: redcal run -c {config}, "
                "or move it out of the way"
            )
        config.write_text(CONFIG, encoding="utf-8")
    except (OSError, UnicodeError) as err:
        raise UsageError(f"{config}: cannot be written: {getattr(err, 'strerror', err)}") from err


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
            told = f"writing {options.rows:,} patients scored by two models to {table}"
            aside(options, told)
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
        page = path_on_demand(load_config(config).output)
        if page.exists():
            print(f"\nThe report, for your browser: {page}")
    return code
