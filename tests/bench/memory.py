"""The most memory that processes took, as the kernel remembers it."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

EVERY = 0.5  # seconds; the kernel keeps the peak of a process while it lives


def peak_bytes() -> int:
    """Of this process so far."""
    try:  # getrusage would count what the parent held before it became this process
        return _peak(Path("/proc/self"))
    except OSError:
        return 1_024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _peak(process: Path) -> int:
    status = (process / "status").read_text(encoding="ascii", errors="replace")
    return 1_024 * int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else 0


@contextlib.contextmanager
def peaks_below() -> Iterator[dict[str, int]]:
    """Peaks in bytes of a Spark driver's processes: this one, its JVM, the largest worker.

    Of this process from here on: what it held before, to make tables for instance, is not counted.
    """
    found: dict[str, int] = {"driver": 0}
    stop = threading.Event()
    with contextlib.suppress(OSError):  # where the kernel can't forget it, the peak is too high
        Path("/proc/self/clear_refs").write_text("5")

    def look() -> None:
        for process in descendants(os.getpid()):
            with contextlib.suppress(OSError, IndexError):
                line = (process / "cmdline").read_bytes()
                java = b"java" in line.split(b"\0", 1)[0]
                name = "jvm" if java else "worker" if b"pyspark" in line else None
                if name is not None:
                    found[name] = max(found.get(name, 0), _peak(process))
        found["driver"] = peak_bytes()

    def watch() -> None:
        while not stop.wait(EVERY):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        look()


def descendants(parent: int) -> list[Path]:
    """The processes below one, wherever /proc tells of them."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # what stands after the name, which may hold anything: state, then the parent
            told = (process / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            children.setdefault(int(told[1]), []).append(int(process.name))
    found, waiting = [], [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += [Path("/proc", str(pid)) for pid in below]
        waiting += below
    return found
