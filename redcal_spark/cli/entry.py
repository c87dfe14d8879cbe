"""The command line: `redcal`."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence

from redcal_spark.cli.log_lines import Context, Parser, log_line, logging_to_stderr
from redcal_spark.cli.parser import command_line
from redcal_spark.cli.results import aside
from redcal_spark.cli.streams import Screen, printable
from redcal_spark.config.folder import working_in
from redcal_spark.errors import RedcalError
from redcal_spark.runs.signals import in_words, sigterm_as_ctrl_c
from redcal_spark.settings import of_a_job


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. A user's mistake never shows a traceback."""
    parser = command_line()
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
        if options.command in ("run", "fit", "resume"):
            aside(options, "  (the same command goes on where it was)", logging.ERROR)
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
