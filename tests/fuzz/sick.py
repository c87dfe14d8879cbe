"""Commands that do what no command may do, to see that the harness sees it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    return DO[arguments[0]]()


def fine() -> int:
    print("redcal: no such thing", file=sys.stderr)
    return 2


def hang() -> int:
    time.sleep(600)
    return 0


def memory() -> int:
    return len(bytearray(b"x") * (2**30 + 2**24)) % 1


def traceback() -> int:
    raise ZeroDivisionError


def silent() -> int:
    return 1


def code() -> int:
    return 7


def beside() -> int:
    Path("config.yaml").write_text("changed")
    return 0


def home() -> int:
    Path.home().joinpath(".profile").write_text("x")
    return 0


def outside() -> int:
    """In a thread, and swallowing the refusal."""

    def write() -> None:
        with contextlib.suppress(OSError):
            Path("../../outside").write_text("x")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    return 0


def native() -> int:
    """As pyarrow and delta-rs would, which no audit hook hears of."""
    import pyarrow as pa

    try:
        with pa.OSFile("../../native", "w") as file:
            file.write(b"x")
    except OSError as err:
        print(err, file=sys.stderr)
        return 2
    return 0


def spawn() -> int:
    subprocess.run([sys.executable, "-c", ""], check=False)
    return 0


def unpickle() -> int:
    pickle.loads(pickle.dumps(Path))
    return 0


def die() -> int:
    os.abort()


def below() -> int:
    """The output, as the configuration names it: that is fine."""
    table = Path(json.loads(Path("c.yaml").read_text())["output"]["table"])
    table.mkdir(parents=True)
    (table / "rows").write_text("x")
    return 0


DO: dict[str, Callable[[], int]] = {
    "fine": fine,
    "hang": hang,
    "memory": memory,
    "traceback": traceback,
    "silent": silent,
    "code": code,
    "beside": beside,
    "home": home,
    "outside": outside,
    "native": native,
    "spawn": spawn,
    "unpickle": unpickle,
    "die": die,
    "run": below,
}
