"""Landlock: a process that may write below one folder and nowhere else, whoever's code it runs.

Python's own calls are seen by an audit hook. What delta-rs and pyarrow do is not: the kernel
refuses it. Linux has this since 5.13; see landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH, VERSION, NO_NEW_PRIVILEGES = 1, 1, 38
FILE = 1 << 1 | 1 << 14  # write, truncate
REFER, TRUNCATE = 1 << 13, 1 << 14
ALL = FILE | REFER | sum(1 << bit for bit in range(4, 13))  # remove, make anything, move
SINCE = {2: REFER, 3: TRUNCATE}


def confine(folder: Path, *files: str) -> bool:
    """From now on, this thread and those it starts write below the folder and to the files only.

    False if the kernel cannot do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, 0, VERSION)
    if version < 1:
        return False
    known = ALL
    for since, right in SINCE.items():
        known &= ~right if version < since else -1
    handled = struct.pack("=Q", known)
    rules = libc.syscall(CREATE_RULESET, handled, len(handled), 0)
    if rules < 0:
        return False
    for path, rights in [(str(folder), known), *((file, known & FILE) for file in files)]:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        done = libc.syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
        os.close(place)
        if done:
            return False
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return bool(libc.syscall(RESTRICT_SELF, rules, 0) == 0)
