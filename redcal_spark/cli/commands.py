"""The commands: each takes its options and returns its exit code."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, replace
from typing import Any

from redcal_spark.atomic_write import write_whole
from redcal_spark.cli.audit_tables import audit_tables
from redcal_spark.cli.compare_tables import comparison_tables
from redcal_spark.cli.open_job import job_of, model_of, renamed
from redcal_spark.cli.results import (
    console_of,
    did_just_this,
    evaluation_json,
    model_names,
    patches_of,
    show,
    show_end,
    show_evaluation,
    show_held,
    tell_findings,
)
from redcal_spark.cli.sql_export import select_of
from redcal_spark.cli.tables import (
    explanation_lines,
    log_table,
    runs_table,
)
from redcal_spark.core.number_text import plain, plural
from redcal_spark.core.output_columns import tag
from redcal_spark.core.problem import few_rows
from redcal_spark.errors import UsageError
from redcal_spark.model.audit import audit_rows
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.registry import runs as registry
from redcal_spark.report.compare_chart import check_chart, write_chart
from redcal_spark.report.data import Report
from redcal_spark.report.pdf import find_browser
from redcal_spark.report.write import format_of, place_on_demand, write_report
from redcal_spark.runs import start
from redcal_spark.runs.claim import is_dead
from redcal_spark.runs.compare import compare_job
from redcal_spark.runs.dead import way_out
from redcal_spark.runs.evaluation.evaluate import evaluate as evaluate_job
from redcal_spark.runs.evaluation.findings import EXIT as EXIT_OF
from redcal_spark.runs.explain_row import explain_id
from redcal_spark.runs.job import Job
from redcal_spark.runs.prune import compact, prune, prune_lines, record_export
from redcal_spark.runs.signals import asked_to_stop
from redcal_spark.runs.stream import stream
from redcal_spark.runs.view import view_of


def check(options: argparse.Namespace) -> int:
    job = job_of(options)
    layout = job.check(ids=options.ids)
    registry.check(job)
    rows = job.input.count()
    if rows is not None and (warning := few_rows(job.problem.parameters, rows)) is not None:
        job.listener.note(warning)
    split = (
        "all labelled rows are fitted" if job.split is None else f"split by {job.split.column!r}"
    )
    columns = job.problem.columns
    weight = None if columns.weight is None else (columns.weight, columns.weight_unit)
    plan = {
        "input": job.input.name,
        "rows": rows,
        "classes": layout.n_classes,
        "scores": list(layout.forms),
        "labels": layout.label,
        "split": split,
        **({} if weight is None else {"weight": weight[0], "weight_unit": weight[1]}),
        "folder": os.getcwd(),
        "outputs": job.tables._asdict(),
    }
    counted = "" if rows is None else f", {rows:,} rows"
    tables = job.tables._asdict().items()
    return show(
        options,
        plan,
        f"{options.config}: fine",
        f"  input    {job.input.name}{counted}, {layout.n_classes} classes",
        f"  split    {split}",
        *([f"  segments {', '.join(columns.segments)}"] if columns.segments else []),
        *([] if weight is None else [f"  weight   {weight[0]!r}, multiples of {plain(weight[1])}"]),
        f"  folder   {os.getcwd()}",  # where relative paths start
        *(f"  {'rows' if name == 'table' else name:<8} {table}" for name, table in tables),
    )


def audit_(options: argparse.Namespace) -> int:
    job = job_of(options)
    job.check_input()
    problem = replace(job.problem, audit=True)
    scanned = job.scan(problem)
    scanned.close()
    audit = audit_rows(problem, scanned.gathered)
    if options.json:
        print(json.dumps(audit))
        return 0
    console = console_of(options)
    for part in audit_tables(audit, model_names(job), scanned.layout.binary, problem.columns.unit):
        console.print(part)
    return 0


def run(options: argparse.Namespace) -> int:
    job = job_of(options)
    registry.check(job)
    return show_end(options, job, start.run(job, force=options.force, wait=options.wait))


def fit(options: argparse.Namespace) -> int:
    job = job_of(options)
    return show_end(options, job, start.fit(job, force=options.force, wait=options.wait))


def resume(options: argparse.Namespace) -> int:
    job = job_of(options)
    registry.check(job)
    return show_end(options, job, start.resume(job, options.run, wait=options.wait))


def apply(options: argparse.Namespace) -> int:
    job = job_of(options)
    streams = options.incremental or options.follow is not None
    if options.switch_model and not streams:
        raise UsageError("--switch-model needs --incremental or --follow")
    pair, called, fitted = model_of(options, job)
    if streams:
        return _stream(options, job, pair, called)
    outcome = start.apply(job, pair, fitted=fitted, force=options.force, wait=options.wait)
    row = outcome.row
    if outcome.held is not None:
        return show_held(options, outcome)
    told: dict[str, Any] = {"run_id": row.run_id, "outputs": json.loads(row.outputs or "{}")}
    if outcome.unchanged:
        told["unchanged"] = True
        return show(options, told, did_just_this(row, "--force appends again"))
    text = f"{patches_of(pair)} applied to {job.input.name}; rows in {job.tables.table}"
    if job.skip:
        valid = f"valid{tag(job.config.output.suffix)}"
        text += f", those that cannot be used as they were ({valid} is false)"
    return show(options, told, text)


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
        return show_held(options, outcome)
    version = json.loads(row.inputs)["version"]
    written = {"run_id": row.run_id, "rows": row.rows, "source_version": version}
    return show(
        options,
        written | {"outputs": json.loads(row.outputs or "{}")},
        f"{row.rows:,} rows written to {job.tables.table}, up to version {version} of "
        f"{job.config.input.table} (run {row.run_id})",
    )


def evaluate(options: argparse.Namespace) -> int:
    job = job_of(options)
    model = None if options.model is None else model_of(options, job)[0]
    evaluation = evaluate_job(job, options.run, model)
    if options.json:
        print(json.dumps(evaluation_json(evaluation)))
    elif not options.quiet:
        show_evaluation(options, job, evaluation)
    elif evaluation.result != "ok":
        tell_findings(options, evaluation)
    return EXIT_OF[evaluation.result]


def compare(options: argparse.Namespace) -> int:
    if options.output is not None:
        check_chart(options.output)  # before hours are spent
    job = job_of(options)
    compared = compare_job(job, options.reconcile_alpha)
    if options.output is not None:
        write_chart(compared, options.output)
    if options.json:
        print(json.dumps({"input": job.input.name, **compared.to_json()}))
        return 0
    if not options.quiet:
        console = console_of(options)
        for part in comparison_tables(compared):
            console.print(part)
        if options.output is not None:
            print(f"\n  chart    {options.output}")
    return 0


def explain(options: argparse.Namespace) -> int:
    job = job_of(options)
    run = job.find(options.run)
    explained = explain_id(job, run, options.id)
    if options.json:
        print(json.dumps(explained.to_json()))
        return 0
    console = console_of(options)
    for note in explained.notes:
        console.print(f"note: {note}", soft_wrap=True)
    for row in explained.rows:
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
    rounds = plural(row.rounds or 0, "round")
    console.print(f"run {row.run_id}: {row.status}, {patches_of(pair)}, {rounds}")
    console.print(log_table(pair.log, pair.losses, pair.columns.model_names, pair.columns.unit))
    return 0


def export(options: argparse.Namespace) -> int:
    sql = options.format == "sql"
    if not sql and (options.dialect is not None or options.table is not None):
        raise UsageError("--dialect and --table need --format sql")
    job = job_of(options)
    row = job.find(options.run)
    pair = renamed(job.pair_of(row), job.config.hidden.stored_json)
    text = select_of(job, pair, options.dialect, options.table) if sql else None
    if options.output is None:
        print(text or json.dumps(pair.to_json()))
        return 0
    try:
        if text is not None:
            write_whole(options.output, lambda file: file.write(f"{text}\n"))
        else:
            replace(pair, certificate=None).save(options.output)  # the model, as it is printed
    except OSError as err:
        raise UsageError(f"{options.output}: {err.strerror}") from err
    record_export(job, row, options.output)
    data = {"run_id": row.run_id, "model": options.output}
    return show(options, data, f"{patches_of(pair)} in {options.output}")


def report(options: argparse.Namespace) -> int:
    given = options.output
    if given == "-":
        raise UsageError("-o -: a report is a file; name it, such as -o report.md")
    form = format_of(given, options.format)
    if form == "pdf":
        find_browser()  # before anything is read
    job = job_of(options)
    row = job.find(options.run)
    place = place_on_demand(job.config, given, form)
    write_report(Report.of(job.store, job.tables, row), place, form)
    if given is not None:  # the one beside the table is the newest run's, whichever that is
        record_export(job, row, given)
    data = {"run_id": row.run_id, "report": place.name}
    return show(options, data, f"report of run {row.run_id} in {place.name}")


def view(options: argparse.Namespace) -> int:
    made = view_of(job_of(options), options.run, options.name)
    if options.json:
        print(json.dumps({"run_id": made.run_id, "sql": made.statement}))
    else:
        print(f"{made.statement};")
    return 0


def runs(options: argparse.Namespace) -> int:
    choices = options.keep is not None or options.older_than is not None or options.dry_run
    if choices and not options.prune:
        raise UsageError("--keep, --older-than and --dry-run need --prune")
    if options.prune or options.compact:
        return _housekeeping(options, options.prune)
    job = job_of(options)
    rows = job.ledger.rows()
    dead = {row.run_id for row in rows if is_dead(row, job.lease)}
    if options.json:
        for row in rows:
            print(json.dumps(asdict(row) | {"dead": row.run_id in dead}, default=str))
        return 0
    console = console_of(options)
    console.print(runs_table(rows, dead) if rows else f"no runs in {job.tables.runs}")
    for row in rows:
        if row.error is not None and row.pruned_at is None:
            console.print(f"run {row.run_id}: {row.error}", soft_wrap=True)
        elif row.run_id in dead:
            state = f"its process is gone, {row.last_heard}; {way_out(job, row)}"
            console.print(f"run {row.run_id}: {state}", soft_wrap=True)
    return 0


def prune_(options: argparse.Namespace) -> int:
    choices = options.keep is not None or options.older_than is not None
    return _housekeeping(options, choices or not options.compact or options.dry_run)


def _housekeeping(options: argparse.Namespace, prunes: bool) -> int:
    job = job_of(options)
    done: dict[str, object] = {}
    lines: list[str] = []
    if prunes:
        pruned = prune(job, options.keep, options.older_than, options.dry_run)
        done |= pruned.to_json()
        lines += prune_lines(pruned)
    if options.compact and not options.dry_run:
        files = compact(job)
        done["files_of_tables"] = files
        lines += [f"{name}: {before} files, now {now}" for name, (before, now) in files.items()]
    return show(options, done, *lines)
