"""Writes docs/reference/tables.md anew: python -m tests.shapes"""

from __future__ import annotations

from tests.shapes.page import PAGE, text

PAGE.parent.mkdir(parents=True, exist_ok=True)
PAGE.write_text(text(), encoding="utf-8")
