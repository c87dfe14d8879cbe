"""What an address means, which options it gets, and what of them may be sent about."""

from __future__ import annotations

from typing import Any

import pytest

from redcal_spark.backends.location import Location, error_line, failed
from redcal_spark.backends.object_stores import file_system, for_delta, proxy_for, public, resolved
from redcal_spark.config.addresses import OPTIONS, SECRETS, canonical, in_hadoop, scheme_of
from redcal_spark.config.load import config_from_tree
from redcal_spark.config.storage import StorageOptions
from redcal_spark.config.tables import place_of
from redcal_spark.errors import InputError, UsageError

SECRET = "an-untold-Secret+/1"


def test_schemes() -> None:
    assert [scheme_of(name) for name in ("s3://b/t", "s3a://b/t", "gs://b", "abfss://c@a/t")] == [
        "s3",
        "s3",
        "gs",
        "abfss",
    ]
    for name in ("out/t", "/t", "main.gold.t", "hdfs://h/t", "dbfs:/t", "file:///t", "s3:/b/t"):
        assert scheme_of(name) is None and canonical(name) == name and in_hadoop(name) == name
    assert canonical("s3a://b/t/") == canonical("s3://b/t") == place_of("s3a://b/t") == "s3://b/t"
    assert in_hadoop("s3://b/t") == "s3a://b/t"


def test_options_have_one_list() -> None:
    assert tuple(StorageOptions.model_fields) == OPTIONS
    assert set(OPTIONS) > SECRETS


def test_what_is_given_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("TIMEOUT", "1")  # not ours
    given = {"AWS_REGION": "eu-west-1", "AZURE_STORAGE_SAS_TOKEN": "x", "TIMEOUT": "7"}
    found = resolved("s3://b/t", given)
    assert found == {
        "AWS_REGION": "eu-west-1",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "TIMEOUT": "7",
    }
    assert for_delta("s3://b/t", given)["timeout"] == "7s"
    assert for_delta("s3://b/t", {})["timeout"] == "30s"
    assert public(found) == {"AWS_REGION": "eu-west-1", "TIMEOUT": "7"}
    plain = for_delta("s3://b/t", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    assert plain["AWS_ALLOW_HTTP"] == "true" and plain["AWS_CONDITIONAL_PUT"] == "etag"


def test_paths_of_addresses() -> None:
    azure = Location("abfss://data@acme.dfs.core.windows.net/lake/t")
    assert azure.path == "data/lake/t" and azure.shown(azure.path) == azure.name
    s3 = Location("s3://b/lake/t", {"AWS_REGION": "eu-west-1"})
    assert s3.path == "b/lake/t" and s3.shown("b/x") == "s3://b/x"
    assert s3.bucket.name == "s3://b" and s3.below("x").name == "s3://b/lake/t/x"
    for name, part in (("s3://", "names no bucket"), ("abfss://data/t", "CONTAINER@ACCOUNT")):
        with pytest.raises(UsageError, match=part):
            file_system(name, {"AWS_REGION": "eu-west-1"})


def test_errors_in_one_line() -> None:
    text = (
        "Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing GET http://h/b in 9ms\n"
        "    \x1b[31m↳\x1b[0m 403 Forbidden\n      ↳ <?xml version='1'?>\n<Error><Key>k</Key>"
    )
    assert error_line(OSError(text)) == (
        "Generic S3 error: Error performing GET http://h/b in 9ms: 403 Forbidden"
        "; are the key, its secret and its rights right?"
    )
    assert error_line(OSError("one\ntwo")) == "one"
    assert error_line(ValueError()) == "ValueError"


def test_a_proxy_is_named_where_a_store_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "AWS Error NETWORK_CONNECTION during HeadObject operation"
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert error_line(OSError(text)).endswith(
        "; is AWS_ENDPOINT_URL right? If it is, the store is down: try again"
    )
    assert proxy_for("http://store.example:9000") is proxy_for(None) is None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert "; are AWS_ENDPOINT_URL and http_proxy right? If they are" in error_line(OSError(text))
    assert proxy_for("http://store.example:9000") == "http://127.0.0.1:9"
    assert proxy_for("https://store.example") is proxy_for(None) is None  # that is https_proxy's
    monkeypatch.setenv("no_proxy", "localhost,.example")
    assert proxy_for("http://store.example:9000") is None


DOWN = "is AWS_ENDPOINT_URL right? If it is, the store is down: try again"
S3 = "Generic S3 error\n ↳ Error performing GET http://h/b in 2s, after 10 retries\n ↳ "


@pytest.mark.parametrize(
    ("said", "way_out"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", DOWN),
        (S3 + "HTTP error\n ↳ error sending request\n ↳ Connection refused (os error 111)", DOWN),
        (S3 + "HTTP error\n ↳ operation timed out", DOWN),
        (
            "AWS Error UNKNOWN (HTTP status 503) during HeadObject",
            "the store is down or busy: try again",
        ),
        ("AWS Error SLOW_DOWN during HeadObject", "the store is down or busy: try again"),
        (S3 + "500 Internal Server Error", "the store is down or busy: try again"),
    ],
)
def test_a_store_that_is_down_is_worth_another_try(said: str, way_out: str) -> None:
    told = failed(InputError, "s3://b/t: cannot be read", OSError(said))
    assert told.exit_code == 1 and str(told).endswith(f"; {way_out}")


@pytest.mark.parametrize(
    ("said", "way_out"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject", "its rights right?"),
        ("AWS Error UNKNOWN (HTTP status 400) during HeadObject", "is AWS_REGION right?"),
        (S3 + "404 Not Found\n ↳ <?xml?>\n<Code>XAdminUserNotFound</Code>", "its rights right?"),
        (S3 + "404 Not Found", "404 Not Found"),
        ("Path does not exist 'lake/t'", "'lake/t'"),
    ],
)
def test_what_another_try_does_not_mend(said: str, way_out: str) -> None:
    told = failed(InputError, "s3://b/t: cannot be read", OSError(said))
    assert type(told) is InputError and str(told).endswith(way_out)


def test_options_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    tree = {
        "input": {"table": "s3a://b/t", "label": "y", "model_1": "a", "model_2": "b"},
        "losses": {"l": {"costs": [[0, 1], [1, 0]]}},
        "reconcile": {"alpha": 0.1, "eta": 0.1},
        "output": {"table": "s3://b/out"},
        "storage_options": {
            "AWS_SECRET_ACCESS_KEY": "${LAKE_SECRET}",
            "AWS_SESSION_TOKEN": "written-out-0123",
            "TIMEOUT": 5,
        },
    }
    config = config_from_tree(tree)
    assert config.storage_options.given == {
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "written-out-0123",
        "TIMEOUT": "5",
    }
    assert "storage_options" not in config.recorded()
    for text in (repr(config), str(config), str(config.recorded())):
        assert SECRET not in text and "written-out-0123" not in text
    shown = config.hidden.text(f"key {SECRET}, token written-out-0123, at s3a://b")
    assert shown == "key ${LAKE_SECRET}, token ${AWS_SESSION_TOKEN}, at s3a://b"
    assert config.input.table == "s3://b/t"
    again = config_from_tree(config.recorded())
    assert again.storage_options.given == {}


def test_where_a_store_is_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks there is not, and neither is an address that is also something else's."""
    monkeypatch.setenv("LAKE_URL", "http://lake.acme:9000")
    monkeypatch.setenv("LAKE_REGION", "eu-acme-1")
    monkeypatch.setenv("LAKE_KEY", "an-id-of-acme")
    tree: dict[str, dict[str, Any]] = {
        "input": {"table": "s3://b/t", "label": "y", "model_1": "a", "model_2": "b"},
        "losses": {"l": {"costs": [[0, 1], [1, 0]]}},
        "reconcile": {"alpha": 0.1, "eta": 0.1},
        "output": {"table": "s3://b/out"},
        "storage_options": {
            "AWS_ENDPOINT_URL": "${LAKE_URL}",
            "AWS_REGION": "${LAKE_REGION}",
            "AWS_ACCESS_KEY_ID": "${LAKE_KEY}",
        },
    }
    said = "GET http://lake.acme:9000/b in eu-acme-1 by an-id-of-acme"
    shown = "GET http://lake.acme:9000/b in eu-acme-1 by ${LAKE_KEY}"
    assert config_from_tree(tree).hidden.text(said) == shown
    tree["output"]["table"] = "s3://b/${LAKE_REGION}/out"
    hidden = "GET http://lake.acme:9000/b in ${LAKE_REGION} by ${LAKE_KEY}"
    assert config_from_tree(tree).hidden.text(said) == hidden
    monkeypatch.setenv("LAKE_URL", "http://me:secret@lake.acme:9000")
    assert "secret" not in config_from_tree(tree).hidden.text("http://me:secret@lake.acme:9000")
