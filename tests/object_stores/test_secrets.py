"""What opens a store is nowhere to be found: not in tables, reports, logs, models or errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.object_store import KEY, SECRET
from tests.object_stores.conftest import Lake

TOKEN = "redcal-test-token-0123456789"


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    ["variables", *(pytest.param(s, marks=pytest.mark.slow) for s in ("environment", "literal"))],
)
def test_credentials_are_not_recorded(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    options = lake.tree["storage_options"]
    if source == "environment":
        for key, value in options.items():
            monkeypatch.setenv(key, value)
        del lake.tree["storage_options"]
    elif source == "variables":
        monkeypatch.setenv("MY_KEY", KEY)
        monkeypatch.setenv("MY_SECRET", SECRET)
        options |= {"AWS_ACCESS_KEY_ID": "${MY_KEY}", "AWS_SECRET_ACCESS_KEY": "${MY_SECRET}"}
    with caplog.at_level("DEBUG"):
        told = [
            lake.redcal("run", "--verbose"),
            lake.redcal("export", "-o", "model.json"),
            lake.redcal("apply", "--model", "model.json", "--log-format", "json"),
            lake.redcal("report", "-o", "page.html"),
            lake.redcal("evaluate", "--json"),
            lake.redcal("runs", "--json"),
        ]
        assert [each.code for each in told] == [0] * len(told), [each.err for each in told]
        # and where something goes wrong
        told.append(lake.redcal("run", "--set", f"input.table={lake.at('nothing')}"))
        told.append(lake.redcal("run", "--set", "storage_options.AWS_ENDPOINT_URL=http://[::1"))
        told.append(lake.redcal("run", "--set", f"storage_options.AWS_REGION={SECRET}"))
        told.append(lake.redcal("run", "--set", "output.table=s3://no-such-bucket/rows"))
    assert [each.code for each in told[6:]] == [2, 2, 2, 2], [each.err for each in told[6:]]
    said = "".join(each.out + each.err for each in told) + caplog.text
    kept = [Path(name).read_bytes() for name in ("model.json", "page.html")]
    root = lake.store.folder / "lake" / lake.root
    kept += [file.read_bytes() for file in root.rglob("*") if file.is_file()]
    assert len(kept) > 20
    for secret in (SECRET, KEY):
        assert secret not in said
        assert not any(secret.encode() in data for data in kept)
