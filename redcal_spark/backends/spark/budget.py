"""How many bytes of rows the driver takes over: what its memory allows."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from redcal_spark.settings import DRIVER_BUDGET, DriverBudget

log = logging.getLogger(__name__)

SHARE = 4  # one part in so many of what is free: rows take more room while they are worked on
SERVERLESS = "IS_SERVERLESS"  # set in the driver of Databricks' serverless compute
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60


def budget_of(given: DriverBudget) -> int:
    """The budget in bytes. `auto` is a quarter of the memory that this process may still use."""
    if given != "auto":
        return given
    budget, why = automatic()
    log.info("driver_budget: auto is %s bytes: %s", f"{budget:,}", why)
    return budget


def automatic() -> tuple[int, str]:
    """The number, and the reason for it."""
    if os.environ.get(SERVERLESS, "").lower() in ("1", "true"):
        return DRIVER_BUDGET, "a fixed number on serverless compute, whose drivers are small"
    free = min(free_memory(), default=None)
    if free is None:
        return DRIVER_BUDGET, "a fixed number, for this system does not tell how much is free"
    return free // SHARE, f"a quarter of the {free:,} bytes that the driver's process may still use"


def free_memory() -> Iterator[int]:
    """What each limit leaves: of the machine, and of the control groups that we are in."""
    try:
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
    except OSError:
        return
    for folder, limit, used in _groups():
        try:
            most, now = int((folder / limit).read_text()), int((folder / used).read_text())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        if most < UNLIMITED:
            yield max(0, most - now + _reclaimable(folder))


def _groups() -> Iterator[tuple[Path, str, str]]:
    """Control groups of this process, from its own to the root; versions 2 and 1."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, names = CGROUPS, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder == root or root in folder.parents:
                yield folder, *names


def _reclaimable(folder: Path) -> int:
    """Pages of files, which the system gives back when memory is wanted."""
    try:
        pairs = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        known = {name: int(number) for name, number in pairs}
    except (OSError, ValueError):
        return 0
    return known.get("total_inactive_file", known.get("inactive_file", 0))
