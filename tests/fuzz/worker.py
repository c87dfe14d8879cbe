"""The process that runs cases: one JSON line in, one out.

Python tells an audit hook of every file that it opens or makes: what lies outside the case's folder
is refused there and then, as by a system without permission. What delta-rs and pyarrow do by
themselves is seen by comparing the folder before and after; outside of it the kernel refuses it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from tests.fuzz.confined import confine

ADDRESSES = 6 * 2**30  # a stop for what runs away; what counts is the peak of resident memory
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "os.utime",
}
FORBIDDEN = {
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.find_class",
    "socket.connect",
    "subprocess.Popen",
}


class Watch:
    """What a case does to files beyond its folder, and what no case may do at all."""

    def __init__(self, inside: Path):
        self.inside = str(inside)
        self.on = False
        self.attempts: list[str] = []
        self.forbidden: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FORBIDDEN:
            self.forbidden.append(f"{event} {arguments!r:.200}")
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            self._check(arguments[0])
        elif event in CHANGES:
            both = event in ("os.rename", "os.link")
            made = slice(1, 2) if event == "os.symlink" else slice(2 if both else 1)
            for path in arguments[made]:  # a link may lead anywhere
                self._check(path)

    def _check(self, path: Any) -> None:
        if isinstance(path, int):
            return
        real = os.path.realpath(os.fsdecode(path))
        if real != self.inside and not real.startswith(self.inside + os.sep) and real != os.devnull:
            self.attempts.append(real)
            raise PermissionError(13, "Permission denied", os.fsdecode(path))


def main(folder: Path, command: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    captured = open(folder / "captured", "wb+")  # noqa: SIM115 - open as long as the process is
    os.dup2(captured.fileno(), 1)
    os.dup2(captured.fileno(), 2)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    place = folder / "case"
    place.mkdir(exist_ok=True)
    # before anything is imported: threads that run already would be free
    confined = confine(place, os.devnull, "/proc/self/clear_refs")
    module, name = command.split(":")
    run = getattr(import_module(module), name)
    import_module("redcal_spark.backends.spark.backend")  # seconds that no case shall be charged

    watch = Watch(place)
    _answer(answers, {"confined": confined})
    for line in sys.stdin.buffer:
        given = json.loads(line)
        _answer(answers, _run(run, given, place, watch, captured))


def _answer(answers: BinaryIO, found: dict[str, Any]) -> None:
    answers.write(json.dumps(found).encode() + b"\n")
    answers.flush()


def _run(
    command: Any, given: dict[str, Any], place: Path, watch: Watch, captured: BinaryIO
) -> dict[str, Any]:
    for old in place.iterdir():  # the folder itself is what the kernel knows
        shutil.rmtree(old, ignore_errors=True)
    for name in ("home", "tmp", "work"):
        (place / name).mkdir(parents=True)
    os.environ |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    os.chdir(place / "work")
    for name, data in given["files"].items():
        path = place / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
    before = _tree(place)
    captured.seek(0)
    captured.truncate()
    watch.attempts, watch.forbidden = [], []
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts afresh
    start = time.perf_counter()
    watch.on = True
    try:
        code = command(given["arguments"])
    except SystemExit as err:  # argparse
        code = err.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        watch.on = False
    seconds = time.perf_counter() - start
    sys.stdout.flush()
    sys.stderr.flush()
    captured.seek(0)
    text = captured.read().decode(errors="replace")
    changed = [str(place / name) for name in _changes(before, _tree(place))]
    return {
        "code": code,
        "seconds": seconds,
        "peak": _peak(),
        "err": text,
        "touched": _beyond(changed + watch.attempts, given["arguments"]),
        "forbidden": watch.forbidden,
    }


def _tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every path below a folder: its kind, size and time of change."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            stat = os.lstat(path)
            # the time and size of a folder tell only that something was made in it
            content = (0, 0) if name in folders else (stat.st_size, stat.st_mtime_ns)
            found[os.path.relpath(path, folder)] = (stat.st_mode, *content)
    return found


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name


def _beyond(paths: list[str], arguments: list[str]) -> list[str]:
    """Of some paths those that are no output of the command, nor a folder above one."""
    if not paths:
        return []
    outputs = [os.path.realpath(table) for table in _outputs(arguments)]
    return [
        path
        for path in dict.fromkeys(paths)
        if not any(
            path == out
            or path.startswith((out + os.sep, _beside(out)))
            or out.startswith(path + os.sep)
            for out in outputs
        )
    ]


def _beside(table: str) -> str:
    """What a new table is called until it is whole."""
    return os.path.join(os.path.dirname(table), f".{os.path.basename(table)}.")


def _outputs(arguments: list[str]) -> list[str]:
    """The tables that the command may write: none if its configuration is refused."""
    from redcal_spark.config.load import load_config
    from redcal_spark.errors import RedcalError
    from redcal_spark.report.write import place_on_demand

    if arguments[:1] == ["init"]:
        return ["conf.yaml"]
    if arguments[:1] and arguments[0] not in ("run", "fit", "apply", "resume", "report"):
        return []
    given = dict(pairwise(arguments))
    changes = [new for key, new in pairwise(arguments) if key == "--set"]
    try:
        config = load_config(given.get("-c", ""), changes)
        return [*config.output.tables, place_on_demand(config).name]
    except RedcalError:
        return []


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
