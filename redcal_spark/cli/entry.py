"""The command line: `redcal`."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import get_args

from redcal_spark import __version__
from redcal_spark.certificate.monitor import ALERTS
from redcal_spark.cli import commands
from redcal_spark.cli.completion import SHELLS, completion
from redcal_spark.cli.demo_command import demo
from redcal_spark.cli.fail_on import CONDITIONS, NamesAmong
from redcal_spark.cli.help import Formatter, ending, examples, overview
from redcal_spark.cli.init_command import TABLES, init
from redcal_spark.cli.log_lines import FORMATS, Context, Parser, logging_to_stderr
from redcal_spark.cli.monitor_command import watch
from redcal_spark.cli.results import aside
from redcal_spark.cli.streams import Screen, printable
from redcal_spark.cli.tune_command import tune
from redcal_spark.config.folder import working_in
from redcal_spark.demo import MOST_ROWS, ROWS
from redcal_spark.errors import RedcalError
from redcal_spark.model.sql_dialect import DIALECTS
from redcal_spark.report.write import Format
from redcal_spark.runs.compare import RECONCILE_ALPHA
from redcal_spark.runs.prune import age
from redcal_spark.runs.signals import in_words, sigterm_as_ctrl_c
from redcal_spark.settings import of_a_job

EVALUATED = (
    "Recomputed from the input versions of the run: all columns of the rows, patches and history, "
    "the counts and measures in metrics and ledger, the model, the certificate. Times, passes and "
    "processes cannot be recomputed: metrics and ledger hold them twice or with a digest, and a "
    "change of one copy is reported. Someone who also rewrites the digests is not detected. "
    "Exit: 0 all matches, 1 something differs, 3 something could not be checked."
)

log_line = logging.getLogger("redcal_spark.cli")


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
    with options.screen.on(), logging_to_stderr(*how), of_a_job(), sigterm_as_ctrl_c():
        return _done(options)


def _done(options: argparse.Namespace) -> int:
    try:
        with working_in(getattr(options, "directory", None)):
            return int(options.do(options))
    except RedcalError as err:
        aside(options, f"redcal {options.command}: {printable(str(err))}", logging.ERROR)
        return err.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as err:
        aside(options, f"redcal {options.command}: {in_words(err)}", logging.ERROR)
        return 1
    except Exception as err:
        message = f"redcal {options.command}: unexpected {type(err).__name__}: {err}"
        if not options.verbose:
            message += "\n  (--verbose shows where; please report it)"
            aside(options, message, logging.ERROR)
        elif options.log_format == "json":
            log_line.exception(message)
        elif options.screen.hidden:  # Python would show it all
            traceback.print_exc()
        else:
            raise
        return 1


def _parser() -> argparse.ArgumentParser:
    usage = "redcal [-h] [-C DIR] [--version] COMMAND ..."
    parser = Parser(prog="redcal", usage=usage, formatter_class=Formatter, epilog=ending())
    _folder(parser)
    parser.add_argument("--version", action="version", version=f"redcal {__version__}")
    # the overview lists the commands, in groups
    known = parser.add_subparsers(dest="command", prog="redcal", help=argparse.SUPPRESS)
    texts: dict[str, str] = {}

    def command(
        name: str, do: Callable[[argparse.Namespace], int], text: str, config: bool = True
    ) -> argparse.ArgumentParser:
        texts[name] = text
        sub = known.add_parser(
            name,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=examples(name),
            formatter_class=Formatter,
        )
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
        _folder(sub)
        sub.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
        sub.add_argument(
            "-v", "--verbose", action="store_true", help="more detail, with tracebacks"
        )
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.add_argument(
            "--log-format", choices=FORMATS, default="text", help="json: one object a line"
        )
        sub.set_defaults(do=do)
        return sub

    def waits(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--wait", action="store_true", help="if another process holds the run, wait for it"
        )

    def alerting(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--fail-on",
            type=NamesAmong(tuple(CONDITIONS)),
            default=(),
            metavar="LIST",
            help=f"exit with 1 on any of these: {','.join(CONDITIONS)}",
        )

    sub = command("check", commands.check, "check configuration and schemas; compute nothing")
    sub.add_argument("--ids", action="store_true", help="also look for null and repeated ids")
    command(
        "audit",
        commands.audit_,
        "show how far the models disagree and what it costs; write nothing",
    )
    for name, do, text in (
        ("run", commands.run, "fit, apply and check on holdout rows: the main job"),
        ("fit", commands.fit, "fit and certify; write the log, not the rows"),
    ):
        sub = command(name, do, text)
        sub.add_argument("--force", action="store_true", help="run even if nothing changed")
        waits(sub)
        alerting(sub)
    sub = command(
        "resume", commands.resume, "continue a run that died, on the input versions it began with"
    )
    sub.add_argument("--run", metavar="ID", help="default: the last unfinished run")
    waits(sub)
    alerting(sub)
    sub = command(
        "apply", commands.apply, "write the input's rows with the scores of a fitted pair"
    )
    chosen = sub.add_mutually_exclusive_group()
    chosen.add_argument("--run", metavar="ID", help="a run's id, or latest")
    chosen.add_argument("--model", metavar="FILE", help="an exported model")
    sub.add_argument(
        "--incremental",
        action="store_true",
        help="only rows that are new since the last time, each once (on Spark; append or merge)",
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
        help="continue from the checkpoint offset of another model with this one",
    )
    waits(sub)
    sub = command(
        "evaluate",
        commands.evaluate,
        "repeat a run and compare all that it wrote, cell by cell",
    )
    sub.epilog = examples("evaluate", EVALUATED)
    sub.add_argument(
        "--run", metavar="ID", help="default: the run whose rows the table has, or the last fit"
    )
    sub.add_argument("--model", metavar="FILE", help="the exported model that the run applied")
    sub = command(
        "compare", commands.compare, "run four procedures on the same rows; write no tables"
    )
    sub.add_argument(
        "--reconcile-alpha",
        type=_share,
        default=RECONCILE_ALPHA,
        metavar="X",
        help="Reconcile's own alpha, in units of probability; default: %(default)s",
    )
    sub.add_argument("-o", "--output", metavar="FILE", help="also draw a chart: .svg or .html")
    sub = command("tune", tune, "try values of eta and beta by cross-fitting; write no tables")
    sub.add_argument("-o", "--output", metavar="FILE", help="also draw a chart: .svg or .html")
    sub.add_argument(
        "--write", action="store_true", help="put the best into FILE, whose comments stay"
    )
    sub = command("monitor", watch, "compare the last fit with rows that were labelled since")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest; default: the last fit")
    sub.add_argument(
        "--table", metavar="TABLE", help="new labelled rows; default: those that the input gained"
    )
    sub.add_argument(
        "--fail-on",
        type=NamesAmong(ALERTS),
        default=(),
        metavar="LIST",
        help=f"exit 1 on any of these, comma-separated: {', '.join(ALERTS)}",
    )
    sub.add_argument("--dry-run", action="store_true", help="write nothing to the metrics")
    sub = command("log", commands.log, "print the patch log of the last run of this configuration")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub = command("explain", commands.explain, "show which patches changed a row, and why")
    sub.add_argument("--id", required=True, metavar="X", help="the row's value of input.id")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub = command("export", commands.export, "write the model as one JSON file, or as one SELECT")
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    sub.add_argument(
        "--format",
        choices=("json", "sql"),
        default="json",
        help="sql: one SELECT, for models of up to 100 patches and 20 classes",
    )
    sub.add_argument(
        "--dialect", choices=DIALECTS, help="of the SELECT; default: spark (3.4 and later)"
    )
    sub.add_argument(
        "--table", metavar="NAME", help="what stands behind FROM; default: the input's table"
    )
    sub = command(
        "report", commands.report, "write a run's report: one file of HTML, Markdown or PDF"
    )
    sub.add_argument("--run", metavar="ID", help="a run's id, or latest")
    sub.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=".html, .md or .pdf; default: beside the output table",
    )
    sub.add_argument(
        "--format",
        choices=get_args(Format),
        help="default: by the ending of FILE, else html; pdf needs Chromium",
    )
    sub = command(
        "view", commands.view, "print SQL that puts input and touched rows together, for Spark"
    )
    sub.add_argument("--name", metavar="VIEW", help="CREATE OR REPLACE VIEW; default: a SELECT")
    sub.add_argument("--run", metavar="ID", help="default: the run whose rows the table has")
    sub = command("runs", commands.runs, "list the runs, how they ended and what is certified")
    sub.add_argument("--prune", action="store_true", help="as redcal prune")
    _pruning(sub)
    sub = command(
        "prune", commands.prune_, "delete patches, history, metrics of old runs; compact tables"
    )
    _pruning(sub)
    sub = command(
        "completion",
        lambda options: completion(options, parser),
        "print completion for a shell: bash, zsh or fish",
        config=False,
    )
    sub.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    sub = command("init", init, "look at a table and write a configuration", config=False)
    sub.add_argument("table", nargs="+", metavar="TABLE", help=TABLES)
    sub.add_argument(
        "-o", "--output", default="conf.yaml", metavar="FILE", help="default: %(default)s"
    )
    sub.add_argument("--costs", metavar="FILE", help="CSV: a row an action, a column a class")
    sub.add_argument("--engine", choices=("auto", "local", "spark"), help="what reads the table")
    sub = command("demo", demo, "write example data and reconcile it into ./out", config=False)
    sub.add_argument("--rows", type=_patients, default=ROWS, help=f"default: {ROWS:,}")
    sub.add_argument("--force", action="store_true", help="run even if nothing changed")
    parser.description = overview(texts)
    return parser


def _pruning(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--keep", type=_positive, metavar="N", help="prune all but the newest N")
    sub.add_argument("--older-than", type=age, metavar="AGE", help="prune those, as 30d, 8w, 12h")
    sub.add_argument("--dry-run", action="store_true", help="show what would be deleted")
    sub.add_argument("--compact", action="store_true", help="compact small files (OPTIMIZE)")


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-C",
        "--directory",
        default=argparse.SUPPRESS,  # before the command or after it
        metavar="DIR",
        help="start in this folder: relative paths, also of tables in FILE, start there",
    )


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


def _patients(text: str) -> int:
    if (rows := _positive(text)) > MOST_ROWS:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_ROWS:,}, got {rows:,}")
    return rows


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
