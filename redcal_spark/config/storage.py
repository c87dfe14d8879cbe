"""The section `storage_options`: what an object store must be told, and which of it is secret.

Its keys are the names of environment variables, which are asked where nothing is given here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from redcal_spark.config.addresses import SECRETS
from redcal_spark.config.section import Refusal, Section
from redcal_spark.config.values import Flag, Seconds, Text


class StorageOptions(Section):
    """How an object store is reached. Not recorded anywhere; write secrets as ${NAME}."""

    AWS_ACCESS_KEY_ID: Text | None = Field(default=None, description="S3: who asks")
    AWS_SECRET_ACCESS_KEY: Text | None = Field(default=None, description="S3: its secret")
    AWS_SESSION_TOKEN: Text | None = Field(default=None, description="S3: of temporary credentials")
    AWS_REGION: Text | None = Field(default=None, description="S3: null: the bucket is asked")
    AWS_ENDPOINT_URL: Text | None = Field(
        default=None, description="S3: another server than Amazon's, http://HOST:PORT"
    )
    AWS_VIRTUAL_HOSTED_STYLE_REQUEST: Flag | None = Field(
        default=None, description="S3: true: the bucket is part of the host's name"
    )
    AWS_SKIP_SIGNATURE: Flag | None = Field(
        default=None, description="S3: true: a public bucket, without credentials"
    )
    AZURE_STORAGE_ACCOUNT_KEY: Text | None = Field(
        default=None, description="ADLS: of the account in the address"
    )
    AZURE_STORAGE_SAS_TOKEN: Text | None = Field(
        default=None, description="ADLS: in place of the key"
    )
    AZURE_STORAGE_TENANT_ID: Text | None = Field(
        default=None, description="ADLS: of a service principal"
    )
    AZURE_STORAGE_CLIENT_ID: Text | None = Field(
        default=None, description="ADLS: of a service principal"
    )
    AZURE_STORAGE_CLIENT_SECRET: Text | None = Field(
        default=None, description="ADLS: of a service principal"
    )
    TIMEOUT: Seconds | None = Field(
        default=None, description="seconds until a silent request is tried again; null: 30"
    )

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        endpoint = data.get("AWS_ENDPOINT_URL")
        if isinstance(endpoint, str) and not endpoint.startswith(("http://", "https://")):
            yield ("AWS_ENDPOINT_URL",), "must begin with http:// or https://"

    @property
    def given(self) -> dict[str, str]:
        """What is set, in the words of the environment."""
        known = self.model_dump(exclude_none=True)
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in known.items()}


def secret_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """What must not be shown or stored, and what to say instead: of the section, the environment.

    The environment counts where an object store is used, or is about to be.
    """
    values = [(key, os.environ.get(key)) for key in SECRETS]
    values += [(key, given.get(key)) for key in SECRETS]
    return {str(value): f"${{{key}}}" for key, value in values if value}
