"""All shapes: the one table of outcomes. Tests read it, docs/reference/tables.md shows it."""

from __future__ import annotations

from tests.shapes.features import FEATURES
from tests.shapes.kinds import KINDS
from tests.shapes.mapped import MAPPED
from tests.shapes.stored import STORED

GROUPS = {
    "How rows are stored": STORED,
    "Column mapping and nested columns": MAPPED,
    "Types": KINDS,
    "Table features": FEATURES,
}
SHAPES = tuple(shape for group in GROUPS.values() for shape in group)
