"""The command line: `redcal`."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from redcal_spark import __version__, evaluation
from redcal_spark.alerts import CONDITIONS, MEANING, alerts, conditions
from redcal_spark.audit import Auditor, audit
from redcal_spark.compare import RECONCILE_ALPHA, compare_job
from redcal_spark.compare_chart import check_chart, write_chart
from redcal_spark.config import Config
from redcal_spark.config_file import load_config
from redcal_spark.demo import CONFIG, ROWS, SCHEMA, SEED, patients
from redcal_spark.errors import RedcalError, UsageError
from redcal_spark.logs import FORMATS, Context, Parser, logging_to_stderr
from redcal_spark.lookup import explain_id
from redcal_spark.metrics import Metrics
from redcal_spark.outcome import Outcome, summary
from redcal_spark.pair import ReconciledPair
from redcal_spark.prune import age, compact, prune, prune_lines, record_export
from redcal_spark.report.files import path_on_demand, report_run, write_report
from redcal_spark.runs import Job
from redcal_spark.screen import Screen, printable
from redcal_spark.signals import asked_to_stop
from redcal_spark.store.base import Commit
from redcal_spark.store.deltars import DeltaRsStore
from redcal_spark.streams import StreamJob
from redcal_spark.terminal import (
    Terminal,
    before_and_after,
    log_table,
    runs_table,
)
from redcal_spark.terminal_audit import audit_tables, explanation_lines
from redcal_spark.terminal_compare import comparison_tables
from redcal_spark.verdict import failures
from redcal_spark.work import InMemory, Work, choose_engine

log_line = logging.getLogger("redcal_spark.cli")

EXIT = {"converged": 0, "capped": 3, "stalled": 3, "cut": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. A user's mistake never shows a traceback."""
    parser = _parser()
    Parser.given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(arguments)
    if not hasattr(options, "do"):
        parser.print_help(sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):  # names may have letters that a terminal has not
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options.screen, options.context = Screen(), Context()
    how = options.quiet, options.verbose, options.log_format, options.context, options.screen
    with options.screen.on(), logging_to_stderr(*how):
        return _done(options)


def _done(options: argparse.Namespace) -> int:
    try:
        return int(options.do(options))
    except RedcalError as err:
        _aside(options, f"redcal {options.command}: {printable(str(err))}", logging.ERROR)
        return err.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _aside(options, "redcal: interrupted", logging.ERROR)
        return 1
    except Exception as err:
        told = f"redcal {options.command}: unexpected {type(err).__name__}: {err}"
        if not options.verbose:
            told += "\n  (--verbose shows where; please report it)"
            _aside(options, told, logging.ERROR)
        elif options.log_format == "json":
            log_line.exception(told)
        elif options.screen.hidden:  # Python would show it all
            traceback.print_exc()
        else:
            raise
        return 1


def _aside(options: argparse.Namespace, text: str, level: int = logging.INFO) -> None:
    """A line on standard error that is no part of the log; but where that is JSON, it is one."""
    if options.log_format == "json":
        log_line.log(level, "%s", text)
    else:
        print(text, file=sys.stderr)


# --- commands -------------------------------------------------------------------------------------


def check(options: argparse.Namespace) -> int:
    job = _job(options)
    layout = job.check(ids=options.ids)
    rows = job.input.count()
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
        "outputs": job.tables._asdict(),
    }
    if options.json:
        print(json.dumps(found))
    elif not options.quiet:
        print(f"{options.config}: fine")
        counted = "" if rows is None else f", {rows:,} rows"
        print(f"  input    {job.input.name}{counted}, {layout.n_classes} classes")
        print(f"  split    {split}")
        for name, table in job.tables._asdict().items():
            print(f"  {'rows' if name == 'table' else name:<8} {table}")
    return 0


def audit_(options: argparse.Namespace) -> int:
    job = _job(options)
    job.check_input()
    job.reconciler = auditor = Auditor(job.reconciler)
    scanned = job.scan()
    scanned.close()
    found = auditor.audit(scanned.gathered)
    if options.json:
        print(json.dumps(found))
        return 0
    console = _console(options)
    for part in audit_tables(found, _models(job)):
        console.print(part)
    return 0


def run(options: argparse.Namespace) -> int:
    job = _watched(options)
    return _closed(options, job, job.run(force=options.force, wait=options.wait))


def fit(options: argparse.Namespace) -> int:
    job = _watched(options)
    return _closed(options, job, job.fit(force=options.force, wait=options.wait))


def resume(options: argparse.Namespace) -> int:
    job = _watched(options)
    return _closed(options, job, job.resume(options.run, wait=options.wait))


def apply(options: argparse.Namespace) -> int:
    job = _job(options)
    pair, called = _model(options, job)
    if options.incremental or options.follow is not None:
        return _stream(options, job, pair, called)
    outcome = job.apply(pair, wait=options.wait)
    row = outcome.row
    if outcome.held is not None:
        return _held(options, outcome)
    if options.json:
        print(json.dumps({"run_id": row.run_id, "outputs": json.loads(row.outputs or "{}")}))
    elif not options.quiet:
        print(f"{_patches(pair)} applied to {job.input.name}; rows in {job.tables.table}")
    return 0


def _stream(options: argparse.Namespace, job: StreamJob, pair: ReconciledPair, called: str) -> int:
    with asked_to_stop() as stop:
        outcome = job.stream(
            pair,
            called,
            stop,
            every=options.follow,
            switch=options.switch_model,
            wait=options.wait,
        )
    row = outcome.row
    if outcome.held is not None:
        return _held(options, outcome)
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
    job = _job(options)
    found = evaluation.evaluate(job)
    certificate, run = found.certificate, None if found.row is None else found.row.run_id
    if options.json:
        told = {
            split: {"before": audit(before), "after": audit(after)}
            for split, (before, after) in found.metrics.items()
        }
        plain = None if certificate is None else certificate.to_json()
        print(json.dumps({"run_id": run, "splits": told, "certificate": plain}))
    elif not options.quiet:
        _console(options).print(_table(job, found.metrics))
        if certificate is None:
            print(f"\nnot certified: {job.tables.table} is not what a known run was fitted on")
        else:
            print(f"\nrun {run}, on the rows as they were written")
            for line in certificate.lines():
                _console(options).print(f"  {line}")
    return 0 if certificate is None or certificate.passed else 1


def compare(options: argparse.Namespace) -> int:
    if options.output is not None:
        check_chart(options.output)  # before hours are spent
    job = _job(options)
    found = compare_job(job, options.reconcile_alpha)
    if options.output is not None:
        write_chart(found, options.output)
    if options.json:
        told = {"input": job.input.name, "procedures": [one.to_json() for one in found]}
        print(json.dumps(told))
        return 0
    if not options.quiet:
        console = _console(options)
        for part in comparison_tables(found):
            console.print(part)
        if options.output is not None:
            print(f"\n  chart    {options.output}")
    return 0


def explain(options: argparse.Namespace) -> int:
    job = _job(options)
    run = job.find(options.run)
    found = explain_id(job, run, options.id)
    if options.json:
        print(json.dumps(found.to_json()))
        return 0
    console = _console(options)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)
    for row in found.rows:
        for part in [row] if isinstance(row, str) else explanation_lines(row, _models(job)):
            console.print(part)
    return 0


def log(options: argparse.Namespace) -> int:
    job = _job(options)
    row = job.find(options.run)
    pair = job.pair_of(row)
    if options.json:
        for patch in pair.log:
            print(patch.to_line())
        return 0
    console = _console(options)
    rounds = _count(row.rounds, "round", "rounds")
    console.print(f"run {row.run_id}: {row.status}, {_patches(pair)}, {rounds}")
    console.print(log_table(pair.log, pair.losses))
    return 0


def export(options: argparse.Namespace) -> int:
    job = _job(options)
    row = job.find(options.run)
    pair = _renamed(job.pair_of(row), job.config.hidden.stored_json)
    if options.output is None:
        print(json.dumps(pair.to_json()))
    else:
        try:
            pair.save(options.output)
        except OSError as err:
            raise UsageError(f"{options.output}: {err.strerror}") from err
        record_export(job, row, options.output)
        if not options.quiet:
            print(f"{_patches(pair)} in {options.output}")
    return 0


def report(options: argparse.Namespace) -> int:
    job = _job(options)
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
    job = _job(options)
    if options.prune or options.compact:
        return _housekeeping(options, job)
    if options.keep is not None or options.older_than is not None or options.dry_run:
        raise UsageError("runs: --keep, --older-than and --dry-run belong to --prune")
    found = job.ledger.rows()
    if options.json:
        for row in found:
            print(json.dumps(asdict(row), default=str))
        return 0
    console = _console(options)
    console.print(runs_table(found) if found else f"no runs in {job.tables.runs}")
    for row in found:
        if row.error is not None:
            console.print(f"run {row.run_id}: {row.error}", soft_wrap=True)
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


def demo(options: argparse.Namespace) -> int:
    """Write the demo's patients where its configuration looks for them, and run it."""
    store = DeltaRsStore()
    config = Path("conf/demo.yaml")
    if not config.exists() or config.read_text(encoding="utf-8") != CONFIG:
        config = Path("out/demo.yaml")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG, encoding="utf-8")
    table = load_config(config).input.table
    commit = Commit("demo", f"{options.rows}-{SEED}")
    if store.last_writer(table) != "demo" or store.open(table).count() != options.rows:
        if not options.quiet:
            told = f"writing {options.rows:,} patients scored by two models to {table}"
            _aside(options, told)
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


def _console(options: argparse.Namespace) -> Console:
    """Standard output; wide where no terminal says how wide it is, so that nothing wraps there."""
    width = None if sys.stdout.isatty() else 160
    screen: Screen = options.screen
    return screen.console(highlight=False, markup=False, emoji=False, width=width)


# --- helpers --------------------------------------------------------------------------------------


def _job(options: argparse.Namespace) -> StreamJob:
    config = _config(options)
    form = options.log_format
    quiet = options.quiet or (options.json and form == "text")  # a log for machines was asked for
    listener = Terminal(quiet, options.verbose, options.screen, options.context, form)
    return StreamJob(config, _work(config), listener)


def _watched(options: argparse.Namespace) -> Job:
    """A job whose rounds are told in the words of its losses."""
    job = _job(options)
    if isinstance(job.listener, Terminal):
        job.listener.losses = job.reconciler.losses
    return job


def _config(options: argparse.Namespace) -> Config:
    overrides = list(options.set)
    if options.engine is not None:
        overrides.append(f"engine.name={options.engine}")
    config = load_config(options.config, overrides)
    options.screen.hidden = config.hidden
    return config


def _work(config: Config) -> Work:
    """Where tables are and computing is done."""
    engine, why = choose_engine(config)
    level = logging.INFO if engine == "spark" else logging.DEBUG  # the usual goes without saying
    log_line.log(level, "engine %s: %s", engine, why)
    if engine == "local":
        return InMemory(DeltaRsStore(), config.engine.threads)
    try:
        from redcal_spark.session import get_session
        from redcal_spark.store.spark_work import OnSpark
    except ModuleNotFoundError as err:
        raise UsageError(
            "engine.name: spark needs PySpark: pip install 'redcal-spark[spark]' "
            "(--engine local needs none)"
        ) from err
    given = config.engine
    return OnSpark(get_session(), given.scratch, given.driver_budget, given.threads)


def _model(options: argparse.Namespace, job: Job) -> tuple[ReconciledPair, str]:
    """The model to apply, and what to call it."""
    if options.model is not None:
        pair = _renamed(ReconciledPair.load(options.model), job.config.hidden.read_json)
        return pair, str(options.model)
    row = job.find(options.run)
    return job.pair_of(row), f"run {row.run_id}"


def _renamed(pair: ReconciledPair, change: Callable[[str], str]) -> ReconciledPair:
    """A model whose names are as the configuration writes them, or as they are."""
    text = json.dumps(pair.to_json())
    changed = change(text)
    return pair if changed == text else ReconciledPair.from_json(json.loads(changed))


def _held(options: argparse.Namespace, outcome: Outcome) -> int:
    """Someone else is at work: that is no failure."""
    if options.json:
        row = outcome.row
        print(json.dumps({"run_id": row.run_id, "status": row.status, "held_by": row.holder}))
    elif not options.quiet:
        print(f"nothing to do: {outcome.held}; --wait waits for it")
    return 0


def _closed(options: argparse.Namespace, job: Job, outcome: Outcome) -> int:
    """Tell how a run ended; what `--fail-on` names is a failure."""
    code = _ended(options, job, outcome)
    row = outcome.row
    if options.log_format == "json" and outcome.pair is not None:
        told = f"{row.status}: {row.patches:,} patches in {row.rounds:,} rounds"
        log_line.info("%s on %s rows", told, f"{row.fit_rows:,}")
    why = alerts(options.fail_on, outcome)
    for line in why:
        _aside(options, f"redcal {options.command}: --fail-on {line}", logging.ERROR)
    return 1 if why else code


def _ended(options: argparse.Namespace, job: Job, outcome: Outcome) -> int:
    row = outcome.row
    if outcome.held is not None:
        return _held(options, outcome)
    page = report_run(job, row)
    told_page = None if page is None else str(page)
    if outcome.unchanged:
        if options.json:
            told = {"run_id": row.run_id, "status": row.status, "unchanged": True}
            print(json.dumps(told | {"report": told_page}))
        elif not options.quiet:
            print(
                f"nothing to do: run {row.run_id} did just this "
                f"({row.finished_at:%Y-%m-%d %H:%M:%S}); --force runs it again"
            )
        return 0
    assert outcome.pair is not None
    if options.json:
        told = {
            "run_id": row.run_id,
            "status": row.status,
            "patches": row.patches,
            "rounds": row.rounds,
            "outputs": json.loads(row.outputs or "{}"),
            "metrics": summary(outcome),
            "certificate": json.loads(row.certificate or "null"),
            "timings": json.loads(row.timings or "{}"),
            "report": told_page,
        }
        print(json.dumps(told))
        return EXIT[row.status]
    if options.quiet:
        return EXIT[row.status]
    print(
        f"{row.status}: {_count(row.patches, 'patch', 'patches')} in "
        f"{_count(row.rounds, 'round', 'rounds')} on {_count(row.fit_rows, 'row', 'rows')} "
        f"(run {row.run_id})"
    )
    if row.status in MEANING:
        print(f"  {MEANING[row.status]}")
    for name, count in (("unlabelled", row.unlabelled_rows), ("unusable", row.bad_rows)):
        if count:
            rows = "row was" if count == 1 else "rows were"
            print(f"  {count:,} {name} {rows} not fitted")
    if outcome.pair.certificate is not None:
        print(f"  {outcome.pair.certificate.lines()[0]}")
        for line in failures(outcome.pair.certificate):
            print(f"  {line}")
    found = {
        split: metrics
        for split in ("fit", "judge")
        if (metrics := outcome.metrics(split)) is not None
    }
    print()
    _console(options).print(_table(job, found))
    print()
    versions = json.loads(row.outputs or "{}")
    for name, table in job.tables._asdict().items():
        if table in versions:
            print(f"  {'rows' if name == 'table' else name:<8} {table}, version {versions[table]}")
    print(f"  {'runs':<8} {job.tables.runs}")
    if told_page is not None:
        print(f"  {'report':<8} {told_page}")
    return EXIT[row.status]


def _count(number: int | None, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _patches(pair: ReconciledPair) -> str:
    return _count(len(pair.log), "patch", "patches")


def _table(job: Job, found: dict[str, tuple[Metrics, Metrics]]) -> Table:
    return before_and_after(found, _models(job), job.reconciler.losses)


def _models(job: Job) -> list[str]:
    """What the models are called: by their column, where that tells them apart."""
    found = [job.config.input.score_columns(model) for model in (1, 2)]
    if any(len(columns) > 1 for columns in found) or found[0] == found[1]:
        return ["model 1", "model 2"]
    return [columns[0] for columns in found]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="redcal",
        description="Reconcile two models that lead to different decisions.",
        epilog="Exit: 0 converged or nothing to do, 1 failed, 2 wrong use, configuration or input, "
        "3 finished but capped, stalled or cut.",
    )
    parser.add_argument("--version", action="version", version=f"redcal {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(
        name: str, do: Callable[[argparse.Namespace], int], text: str, config: bool = True
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if config:
            sub.add_argument("-c", "--config", required=True, metavar="FILE", help="the YAML file")
            sub.add_argument(
                "--set",
                action="append",
                default=[],
                metavar="KEY=VALUE",
                help="override a key, as reconcile.eta=0.02",
            )
            sub.add_argument("--engine", choices=("auto", "local", "spark"), help="what computes")
        sub.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
        sub.add_argument("-v", "--verbose", action="store_true", help="say more, with tracebacks")
        sub.add_argument("--json", action="store_true", help="print for machines")
        sub.add_argument(
            "--log-format", choices=FORMATS, default="text", help="json: one object a line"
        )
        sub.set_defaults(do=do)
        return sub

    def waits(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--wait", action="store_true", help="if another process is doing it, wait for it"
        )

    def alerting(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--fail-on",
            type=conditions,
            default=(),
            metavar="LIST",
            help=f"exit with 1 on any of these: {','.join(CONDITIONS)}",
        )

    sub = command("check", check, "check configuration and schemas; compute nothing")
    sub.add_argument("--ids", action="store_true", help="also look for null and repeated ids")
    command("audit", audit_, "show how much the models disagree and what it costs; write nothing")
    for name, do, text in (
        ("run", run, "fit, apply and judge: the main job"),
        ("fit", fit, "fit and judge; write the log, not the rows"),
    ):
        sub = command(name, do, text)
        sub.add_argument("--force", action="store_true", help="run even if nothing changed")
        waits(sub)
        alerting(sub)
    sub = command("resume", resume, "go on with a run that died, on the input it started with")
    sub.add_argument("--run", metavar="ID", help="default: the last unfinished one")
    waits(sub)
    alerting(sub)
    sub = command("apply", apply, "write the input's rows with the scores of a fitted pair")
    chosen = sub.add_mutually_exclusive_group()
    chosen.add_argument("--run", metavar="ID", help="a run's id, or latest")
    chosen.add_argument("--model", metavar="FILE", help="an exported model")
    sub.add_argument(
        "--incremental",
        action="store_true",
        help="only rows that came since the last time, each once (on Spark, append or merge)",
    )
    sub.add_argument(
        "--follow",
        type=_seconds,
        nargs="?",
        const=10.0,
        metavar="SECONDS",
        help="as --incremental, and keep looking for more this often (default: 10)",
    )
    sub.add_argument(
        "--switch-model",
        action="store_true",
        help="go on from the checkpoint of another model with this one",
    )
    waits(sub)
    command("evaluate", evaluate, "measure and certify the written rows anew, from the rows alone")
    sub = command("compare", compare, "run four procedures on the same rows; write no tables")
    sub.add_argument(
        "--reconcile-alpha",
        type=_share,
        default=RECONCILE_ALPHA,
        metavar="X",
        help="Reconcile's own alpha, in units of probability; default: %(default)s",
    )
    sub.add_argument("-o", "--output", metavar="FILE", help="also draw a chart: .svg or .html")
    sub = command("log", log, "print the patch log of the last run of this configuration")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub = command("explain", explain, "tell which patches touched a row, and why")
    sub.add_argument("--id", required=True, metavar="X", help="the row's value of input.id")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub = command("export", export, "write the model as one JSON file")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    sub = command("report", report, "write a run's report: one HTML file")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub.add_argument("-o", "--output", metavar="FILE", help="default: beside the output table")
    sub = command("runs", runs, "list the runs in the ledger, or tidy up after old ones")
    sub.add_argument("--prune", action="store_true", help="remove what old runs left")
    sub.add_argument("--keep", type=_positive, metavar="N", help="prune all but the newest N")
    sub.add_argument("--older-than", type=age, metavar="AGE", help="prune those, as 30d, 8w, 12h")
    sub.add_argument("--dry-run", action="store_true", help="say what would be pruned")
    sub.add_argument("--compact", action="store_true", help="put small files together")
    sub = command("demo", demo, "write example data and reconcile it into ./out", config=False)
    sub.add_argument("--rows", type=_positive, default=ROWS, help=f"default: {ROWS:,}")
    sub.add_argument("--force", action="store_true", help="run even if nothing changed")
    return parser


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number above 0 and up to 1, got {text!r}")
    return value


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return found


if __name__ == "__main__":
    sys.exit(main())
