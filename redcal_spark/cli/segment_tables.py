"""Segments of an audit, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from redcal_spark.core.number_text import cost_texts, share_text

LARGEST = 8  # segments of a column that are listed


def segment_tables(audit: Mapping[str, Any], models: Sequence[str]) -> Iterator[Table | str]:
    """Per segment column and loss: the segments with most rows."""
    lines = audit.get("segments", ())
    for column in dict.fromkeys(line["segment"] for line in lines):
        own = [line for line in lines if line["segment"] == column]
        for place, loss in enumerate(audit["losses"]):
            head = column if len(audit["losses"]) == 1 else f"{column}, {loss['loss']}"
            table = Table(box=None, pad_edge=False, header_style="bold")
            table.add_column(head, overflow="fold")
            for title in ("rows", "disagree", *(f"cost of {m}" for m in models)):
                table.add_column(title, justify="right", no_wrap=True)
            first = own[:LARGEST]
            costs = iter(
                cost_texts([c for line in first for c in line["losses"][place]["decision_loss"]])
            )
            for line in first:
                value = {"null": "(null)", "other": "(other)"}.get(line["kind"], line["value"])
                apart = share_text(line["losses"][place]["disagreement"])
                table.add_row(value, f"{line['rows']:,}", apart, *(next(costs) for _ in models))
            yield ""
            yield table
            if len(own) > LARGEST:
                yield f"... and {len(own) - LARGEST} more segments"
