"""What the commits of a Delta table say of themselves, from the files of its log.

Not by delta-rs, which stops at a commit of a shallow clone (`readVersion` -1).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def commits(table: str, limit: int | None = None) -> list[dict[str, Any]]:
    """One entry a version, newest first; those whose files were cleaned up are not there."""
    files = sorted(Path(table, "_delta_log").glob("[0-9]*.json"), reverse=True)
    files = [file for file in files if file.stem.isdigit()]
    return [{**_said(file), "version": int(file.stem)} for file in files[:limit]]


def _said(file: Path) -> dict[str, Any]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if '"commitInfo"' in line:
                said = json.loads(line).get("commitInfo")
                if isinstance(said, dict):
                    return dict(said)
    return {}
