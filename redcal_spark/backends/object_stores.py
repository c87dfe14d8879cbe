"""Object stores: what an address means, and the options that delta-rs and pyarrow need for it.

Options have the names of environment variables, and one that is not given is taken from there. What
is in none of both is left to the libraries: profiles, roles, instance metadata.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import pyarrow.fs

from redcal_spark.config.addresses import OPTIONS, SECRETS, scheme_of
from redcal_spark.errors import UsageError

OF_SCHEME = {"s3": "AWS_", "gs": "GOOGLE_", "abfss": "AZURE_"}
SECONDS = 30.0  # without an answer, after which a request is tried again
ATTEMPTS = 6  # of a request of pyarrow's; delta-rs has more of its own

Options = Mapping[str, str]
Given = tuple[tuple[str, str], ...]


def resolved(name: str, given: Options) -> dict[str, str]:
    """The options for an address: those given, and those in the environment."""
    scheme = scheme_of(name)
    assert scheme is not None
    known = [key for key in OPTIONS if key.startswith(OF_SCHEME[scheme])]
    options = {key: os.environ[key] for key in known if os.environ.get(key)}
    options |= {key: value for key, value in given.items() if key in (*known, "TIMEOUT")}
    if scheme == "s3":
        region = os.environ.get("AWS_DEFAULT_REGION")
        if region:
            options.setdefault("AWS_REGION", region)
        elif "AWS_ENDPOINT_URL" in options:  # a server of one's own has no regions
            options.setdefault("AWS_REGION", "us-east-1")
    return options


def for_delta(name: str, given: Options) -> dict[str, str]:
    """The options as delta-rs takes them."""
    options = resolved(name, given)
    seconds = _seconds(options)
    options.pop("TIMEOUT", None)
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    if scheme_of(name) == "s3":
        # A commit of a version that is there already must fail, whatever the default is.
        options["AWS_CONDITIONAL_PUT"] = "etag"
    return options | {"timeout": f"{seconds:g}s", "connect_timeout": "10s"}


def public(given: Options) -> dict[str, str]:
    """Options that may be sent about: where a store is, and not who asks."""
    return {key: value for key, value in given.items() if key not in SECRETS}


def file_system(name: str, given: Options) -> tuple[pyarrow.fs.FileSystem, str]:
    """What pyarrow opens files of an address through, and its path there."""
    scheme = scheme_of(name)
    rest = name.partition("://")[2].strip("/")
    if not rest or rest.startswith("@"):
        raise UsageError(f"{name}: names no bucket; write SCHEME://BUCKET/PATH")
    options = resolved(name, given)
    if scheme == "s3":
        proxy = proxy_for(options.get("AWS_ENDPOINT_URL"))
        return _s3(tuple(sorted(options.items())), _bucket_of(rest, options), proxy), rest
    if scheme == "gs":
        # by default it would ask for a quarter of an hour
        return pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=2 * SECONDS)), rest
    account, path = _azure_path(name, rest)
    return _azure(account, tuple(sorted(options.items()))), path


def _bucket_of(path: str, options: Options) -> str | None:
    """The bucket, if its region must be asked for."""
    return None if options.get("AWS_REGION") else path.partition("/")[0]


def proxy_for(endpoint: str | None) -> str | None:
    """The proxy that the environment names for a store (http_proxy, https_proxy, no_proxy).

    delta-rs looks there by itself, pyarrow does not.
    """
    url = urlsplit(endpoint or "https://s3.amazonaws.com")
    if proxy_bypass(url.hostname or ""):
        return None
    return getproxies_environment().get(url.scheme)


@lru_cache(maxsize=16)
def _s3(given: Given, bucket: str | None, proxy: str | None) -> pyarrow.fs.S3FileSystem:
    options = dict(given)
    endpoint = options.get("AWS_ENDPOINT_URL")
    region = options.get("AWS_REGION")
    if bucket is not None:
        region = pyarrow.fs.resolve_s3_region(bucket)
    return pyarrow.fs.S3FileSystem(
        access_key=options.get("AWS_ACCESS_KEY_ID"),
        secret_key=options.get("AWS_SECRET_ACCESS_KEY"),
        session_token=options.get("AWS_SESSION_TOKEN"),
        anonymous=_is_true(options.get("AWS_SKIP_SIGNATURE")),
        region=region,
        endpoint_override=endpoint,
        scheme="http" if endpoint and endpoint.startswith("http://") else "https",
        force_virtual_addressing=_is_true(options.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")),
        request_timeout=_seconds(options),
        connect_timeout=10,
        retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        proxy_options=proxy,
        background_writes=False,  # an error of a write is then that write's own
    )


def _azure_path(name: str, rest: str) -> tuple[str, str]:
    """abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH: the account, and CONTAINER/PATH."""
    host, _, path = rest.partition("/")
    container, sign, authority = host.partition("@")
    if not sign or not container or not authority:
        raise UsageError(
            f"{name}: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, with the account"
        )
    return authority.partition(".")[0], f"{container}/{path}"


@lru_cache(maxsize=16)
def _azure(account: str, given: Given) -> pyarrow.fs.AzureFileSystem:
    names = {
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_token",
        "AZURE_STORAGE_TENANT_ID": "tenant_id",
        "AZURE_STORAGE_CLIENT_ID": "client_id",
        "AZURE_STORAGE_CLIENT_SECRET": "client_secret",
    }
    options = {names[key]: value for key, value in given if key in names}
    return pyarrow.fs.AzureFileSystem(account_name=account, **options)


def _is_true(text: str | None) -> bool:
    return (text or "").lower() == "true"


def _seconds(options: Options) -> float:
    return float(options.get("TIMEOUT", SECONDS))
