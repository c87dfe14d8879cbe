"""How pairs are shown in notebooks: by whoever stands above this package and has said so here.

The report knows how to draw a pair and imports it; a pair must not import the report. The package's
own `__init__` names the module, which is loaded when something is shown for the first time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol


class Views(Protocol):
    """What can be shown of a pair, or of what was measured of it on new rows."""

    def html(self, shown: Any) -> str | None:
        """A small piece of HTML for a cell; None where what makes it is not installed."""

    def write_report(self, pair: Any, path: str | os.PathLike[str]) -> None:
        """The whole report, as one file."""

    def steps(self, pair: Any, **options: Any) -> Any: ...

    def disagreement(self, pair: Any, **options: Any) -> Any: ...

    def costs(self, pair: Any, **options: Any) -> Any: ...

    def patches(self, pair: Any, **options: Any) -> Any: ...


_makers: list[Callable[[], Views]] = []


def shown_by(make: Callable[[], Views]) -> None:
    """Name who shows pairs."""
    _makers[:] = [make]


def views() -> Views:
    return _makers[0]()
