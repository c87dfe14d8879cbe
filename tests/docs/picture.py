"""`python -m tests.docs.picture`: docs/images/report.png, the first screen of the demo's report."""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from PIL import Image

from redcal_spark import cli
from tests.browser import Browser, find_chromium
from tests.docs.made import inside
from tests.docs.pages import DOCS

WIDTH, HEIGHT, SHARPER = 1040, 672, 1.5
COLOURS = 128


def main() -> int:
    chromium, why = find_chromium()
    if chromium is None:
        print(why, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, Browser(chromium) as browser:
        with inside(folder), redirect_stdout(io.StringIO()):
            assert cli.main(["demo", "--quiet"]) == 0
        page = browser.page(Path(folder, "out/demo/triage_report.html"), WIDTH, HEIGHT)
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=WIDTH,
            height=HEIGHT,
            deviceScaleFactor=SHARPER,
            mobile=False,
        )
        shot = Path(folder, "report.png")
        page.screenshot(shot)
        picture = Image.open(shot).convert("RGB")
        picture = picture.crop((0, 0, picture.width, round(HEIGHT * SHARPER)))
        picture.quantize(COLOURS).save(DOCS / "images" / "report.png", optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
