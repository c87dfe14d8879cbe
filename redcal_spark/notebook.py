"""`display` for notebooks that run where nobody has one: as a plain script."""

from __future__ import annotations

import re
from typing import Any


def display(shown: Any) -> None:
    """Tables are printed; a chart is saved in the working folder, and its name is printed."""
    if hasattr(shown, "savefig"):
        name = re.sub(r"\W+", "_", shown.get_suptitle() or "chart").strip("_").lower()
        shown.savefig(f"{name}.png", dpi=100, bbox_inches="tight")
        print(f"[{name}.png]")
    elif hasattr(shown, "sparkSession"):
        shown.show(truncate=40)
    elif hasattr(shown, "to_string"):
        print(shown.to_string(), end="\n\n")
    else:
        print(shown)
