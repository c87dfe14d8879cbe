"""Processes of this machine: whether one is alive, and still the same."""

from __future__ import annotations

import os
from pathlib import Path


def start_of(pid: int) -> str | None:
    """When a process of this machine started, in its own units; None if it is gone.

    Numbers of processes are used again.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if Path("/proc/self").exists():
        return None
    try:  # no /proc here: all that can be asked is whether the number is in use
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown time"
