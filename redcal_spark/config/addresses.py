"""Addresses of object stores, and the names of what such a store must be told.

Workers of Spark read this, too: nothing beyond Python's own library is imported.
"""

from __future__ import annotations

import re

# Addresses of object stores by what they are to delta-rs and pyarrow; Hadoop has a name of its own
# for S3.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss"}
ADDRESS = re.compile(r"[A-Za-z][\w+-]*:/")
# Options that may be given, by the names of environment variables. TIMEOUT is none of those.
OPTIONS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_SKIP_SIGNATURE",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "TIMEOUT",
)
SECRETS = frozenset(key for key in OPTIONS if key.startswith("AZURE_")) | {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
}


def scheme_of(name: str) -> str | None:
    """Which object store an address is of; None: it is none that this process knows."""
    head, sign, _ = name.partition("://")
    return SCHEMES.get(head.lower()) if sign else None


def one_scheme(name: str) -> str:
    """An address of S3 under one scheme; other texts as they are."""
    return f"s3://{name[6:]}" if name.startswith("s3a://") else name


def canonical(name: str) -> str:
    """An address in the one way that tells tables apart; other names as they are."""
    return name if scheme_of(name) is None else one_scheme(name).rstrip("/")


def in_hadoop(name: str) -> str:
    """An address as Spark's file systems know it: S3 is s3a:// to all of them."""
    return f"s3a://{name[5:]}" if name.startswith("s3://") else name
