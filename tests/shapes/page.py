"""The page that shows the outcomes: docs/reference/tables.md, made of the shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.shapes.shape import NOT_TRIED, OK, Shape
from tests.shapes.shapes import GROUPS, SHAPES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
INTRO = """\
# Supported tables

<!-- Made of tests/shapes by: python -m tests.shapes -->

redcal reads a Delta table right, or refuses it before it computes anything. It never guesses. The
page lists {shapes} kinds of tables. Spark writes each of them in the tests, and both engines then
use it:

- **Read**: the table is the input. `ok` means that both engines give the same rows and the same
  patch log as the same rows in memory.
- **Merge**, **overwrite**: the table is there as `output.table`, and rows go into it with this
  `output.mode`. `ok` means that the table then holds the right rows and still has its properties,
  features, partitions and clusters.
- `no: x`: `redcal check` refuses the table with exit code 2. The message names x and the way out.
  Nothing is computed and nothing is written.
- `-`: not tried.

The local engine lists the table features that it knows. It refuses every other one by name, also
those of the future. Where it refuses a table, use `--engine spark`.
"""


def text() -> str:
    """The whole page."""
    return "\n".join([INTRO.format(shapes=len(SHAPES)), *_tables()])


def _tables() -> Iterator[str]:
    for title, shapes in GROUPS.items():
        yield f"## {title}\n"
        yield "| Table | Read: local | Spark | Merge: local | Spark | Overwrite: local | Spark |"
        yield "|---|---|---|---|---|---|---|"
        for shape in shapes:
            yield f"| {' | '.join([shape.says, *_cells(shape)])} |"
        yield ""


def _cells(shape: Shape) -> Iterator[str]:
    for cell in (shape.read, shape.merge, shape.overwrite):
        for outcome in (cell.local, cell.spark):
            yield {OK: OK, NOT_TRIED: "-"}.get(outcome, f"no: {outcome}")
