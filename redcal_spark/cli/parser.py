"""What the command line knows: commands, their options, and the values that these take."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import get_args

from redcal_spark import __version__
from redcal_spark.certificate.monitor import ALERTS
from redcal_spark.cli import commands
from redcal_spark.cli.completion import SHELLS, completion
from redcal_spark.cli.demo_command import demo
from redcal_spark.cli.fail_on import CONDITIONS, NamesAmong
from redcal_spark.cli.help import Formatter, ending, examples, overview
from redcal_spark.cli.init_command import TABLES, init
from redcal_spark.cli.log_lines import FORMATS, Parser
from redcal_spark.cli.monitor_command import watch
from redcal_spark.cli.tune_command import tune
from redcal_spark.demo import MOST_ROWS, ROWS
from redcal_spark.model.sql_dialect import DIALECTS
from redcal_spark.report.write import Format
from redcal_spark.runs.compare import RECONCILE_ALPHA
from redcal_spark.runs.prune import age

EVALUATED = (
    "Recomputed from the input versions of the run: all columns of the rows, patches and history, "
    "the counts and measures in metrics and ledger, the model, the certificate. Times, passes and "
    "processes cannot be recomputed: metrics and ledger hold them twice or with a digest, and a "
    "change of one copy is reported. Someone who also rewrites the digests is not detected. "
    "Exit: 0 all matches, 1 something differs, 3 something could not be checked."
)
RUN_ID = "a run's id, or latest"


def command_line() -> argparse.ArgumentParser:
    """The parser of `redcal`."""
    usage = "redcal [-h] [-C DIR] [--version] COMMAND ..."
    parser = Parser(prog="redcal", usage=usage, formatter_class=Formatter, epilog=ending())
    _folder(parser)
    parser.add_argument("--version", action="version", version=f"redcal {__version__}")
    known = Commands(parser)
    for add in (_before, _runs, _judged, _shown, _kept, _first):
        add(known)
    parser.description = overview(known.texts)
    return parser


class Commands:
    """The commands of a parser, with what each does in a few words."""

    def __init__(self, parser: argparse.ArgumentParser):
        self.parser = parser
        self.texts: dict[str, str] = {}
        # the overview lists the commands, in groups
        self._known = parser.add_subparsers(dest="command", prog="redcal", help=argparse.SUPPRESS)

    def add(
        self, name: str, do: Callable[[argparse.Namespace], int], text: str, config: bool = True
    ) -> argparse.ArgumentParser:
        self.texts[name] = text
        sub = self._known.add_parser(
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
        sub.add_argument("-q", "--quiet", action="store_true", help="warnings and problems alone")
        sub.add_argument(
            "-v", "--verbose", action="store_true", help="more detail, with tracebacks"
        )
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.add_argument(
            "--log-format", choices=FORMATS, default="text", help="json: one object a line"
        )
        sub.set_defaults(do=do)
        return sub


# --- the commands ---------------------------------------------------------------------------------


def _before(known: Commands) -> None:
    """What to do before a run."""
    sub = known.add("check", commands.check, "check configuration and schemas; compute nothing")
    sub.add_argument("--ids", action="store_true", help="also look for null and repeated ids")
    known.add(
        "audit",
        commands.audit_,
        "show how far the models disagree and what it costs; write nothing",
    )


def _runs(known: Commands) -> None:
    """Runs, and what a run's model does to other rows."""
    for name, do, text in (
        ("run", commands.run, "fit, apply and check on holdout rows: the main job"),
        ("fit", commands.fit, "fit and certify; write the log, not the rows"),
    ):
        sub = known.add(name, do, text)
        _force(sub)
        _wait(sub)
        _fail_on(sub)
    sub = known.add(
        "resume", commands.resume, "continue a run that died, on the input versions it began with"
    )
    _run_id(sub, "default: the last unfinished run")
    _wait(sub)
    _fail_on(sub)
    sub = known.add(
        "apply", commands.apply, "write the input's rows with the scores of a fitted pair"
    )
    chosen = sub.add_mutually_exclusive_group()
    _run_id(chosen)
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
    sub.add_argument("--force", action="store_true", help="append rows that were appended before")
    _wait(sub)


def _judged(known: Commands) -> None:
    """Runs and settings judged by numbers."""
    sub = known.add(
        "evaluate",
        commands.evaluate,
        "repeat a run and compare all that it wrote, cell by cell",
    )
    sub.epilog = examples("evaluate", EVALUATED)
    _run_id(sub, "default: the run whose rows the table has, or the last fit")
    sub.add_argument("--model", metavar="FILE", help="the exported model that the run applied")
    sub = known.add(
        "compare", commands.compare, "run four procedures on the same rows; write no tables"
    )
    sub.add_argument(
        "--reconcile-alpha",
        type=_share,
        default=RECONCILE_ALPHA,
        metavar="X",
        help="Reconcile's own alpha, in units of probability; default: %(default)s",
    )
    _chart(sub)
    sub = known.add("tune", tune, "try values of eta and beta by cross-fitting; write no tables")
    _chart(sub)
    sub.add_argument(
        "--write", action="store_true", help="put the best into FILE, whose comments stay"
    )
    sub = known.add("monitor", watch, "compare the last fit with rows that were labelled since")
    _run_id(sub, f"{RUN_ID}; default: the last fit")
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


def _shown(known: Commands) -> None:
    """What a run did, as text, tables and files."""
    sub = known.add(
        "log", commands.log, "print the patch log of the last run of this configuration"
    )
    _run_id(sub)
    sub = known.add("explain", commands.explain, "show which patches changed a row, and why")
    sub.add_argument("--id", required=True, metavar="X", help="the row's value of input.id")
    _run_id(sub)
    sub = known.add("export", commands.export, "write the model as one JSON file, or as one SELECT")
    _run_id(sub)
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
    sub = known.add(
        "report", commands.report, "write a run's report: one file of HTML, Markdown or PDF"
    )
    _run_id(sub)
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
    sub = known.add(
        "view", commands.view, "print SQL that puts input and touched rows together, for Spark"
    )
    sub.add_argument("--name", metavar="VIEW", help="CREATE OR REPLACE VIEW; default: a SELECT")
    _run_id(sub, "default: the run whose rows the table has")


def _kept(known: Commands) -> None:
    """The runs that are kept."""
    sub = known.add("runs", commands.runs, "list the runs, how they ended and what is certified")
    sub.add_argument("--prune", action="store_true", help="as redcal prune")
    _pruning(sub)
    sub = known.add(
        "prune", commands.prune_, "delete patches, history, metrics of old runs; compact tables"
    )
    _pruning(sub)


def _first(known: Commands) -> None:
    """The first steps."""
    sub = known.add(
        "completion",
        lambda options: completion(options, known.parser),
        "print completion for a shell: bash, zsh or fish",
        config=False,
    )
    sub.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    sub = known.add("init", init, "look at a table and write a configuration", config=False)
    sub.add_argument("table", nargs="+", metavar="TABLE", help=TABLES)
    sub.add_argument(
        "-o", "--output", default="conf.yaml", metavar="FILE", help="default: %(default)s"
    )
    sub.add_argument("--costs", metavar="FILE", help="CSV: a row an action, a column a class")
    sub.add_argument("--engine", choices=("auto", "local", "spark"), help="what reads the table")
    sub = known.add("demo", demo, "write example data and reconcile it into ./out", config=False)
    sub.add_argument("--rows", type=_patients, default=ROWS, help=f"default: {ROWS:,}")
    _force(sub)


# --- options of several commands ------------------------------------------------------------------


def _run_id(sub: argparse._ActionsContainer, text: str = RUN_ID) -> None:
    sub.add_argument("--run", metavar="ID", help=text)


def _force(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--force", action="store_true", help="run even if nothing changed")


def _wait(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--wait", action="store_true", help="if another process holds the run, wait for it"
    )


def _fail_on(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--fail-on",
        type=NamesAmong(tuple(CONDITIONS)),
        default=(),
        metavar="LIST",
        help=f"exit with 1 on any of these: {','.join(CONDITIONS)}",
    )


def _chart(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-o", "--output", metavar="FILE", help="also draw a chart: .svg or .html")


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


# --- values ---------------------------------------------------------------------------------------


def _number(text: str, most: float, which: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"must be a number {which}, got {text!r}")
    return value


_share = partial(_number, most=1, which="above 0 and up to 1")
_seconds = partial(_number, most=sys.float_info.max, which="of seconds above 0")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _patients(text: str) -> int:
    if (rows := _positive(text)) > MOST_ROWS:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_ROWS:,}, got {rows:,}")
    return rows
