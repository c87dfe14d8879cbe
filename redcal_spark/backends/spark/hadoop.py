"""What a local Spark session needs to read and write S3: jars, and where the server is.

A session that is there already, or that a launcher describes, has settings of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pyspark

from redcal_spark.backends.object_stores import Options, resolved
from redcal_spark.config.addresses import scheme_of

PACKAGES = "redcal.packages"  # a setting of ours: jars that Spark's resolver fetches beside Delta's
EXCLUDED = "software.amazon.awssdk:bundle"  # 686 MB, of which S3 needs a few
SDK = {"3.5.0": "2.35.4"}  # of Amazon, by the version of Hadoop
PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client")


def object_store_settings(names: Iterable[str], given: Options) -> dict[str, str]:
    """For a session that must reach these tables; none, if no table is at S3."""
    if not any(scheme_of(name) == "s3" for name in names):
        return {}
    options = resolved("s3://", given)
    endpoint = options.get("AWS_ENDPOINT_URL")
    settings = {
        PACKAGES: ",".join(_packages()),
        "spark.jars.excludes": EXCLUDED if _hadoop() in SDK else "",
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": options.get("AWS_REGION"),
        "fs.s3a.path.style.access": "true" if endpoint else None,
        "fs.s3a.connection.ssl.enabled": "false" if (endpoint or "").startswith("http:") else None,
        # what the environment has, the driver and its workers find themselves
        "fs.s3a.access.key": given.get("AWS_ACCESS_KEY_ID"),
        "fs.s3a.secret.key": given.get("AWS_SECRET_ACCESS_KEY"),
        "fs.s3a.session.token": given.get("AWS_SESSION_TOKEN"),
    }
    if options.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST") == "true":
        settings["fs.s3a.path.style.access"] = "false"
    return {
        f"spark.hadoop.{key}" if key.startswith("fs.") else key: value
        for key, value in settings.items()
        if value
    }


def _hadoop() -> str:
    """The version of Hadoop that came with PySpark; none after `spark-submit`, from a zip file."""
    jars = Path(pyspark.__file__).parent / "jars"
    there = jars.iterdir() if jars.is_dir() else ()
    matches = (re.search(r"hadoop-client-api-([\d.]+)\.jar", jar.name) for jar in there)
    return next((match[1] for match in matches if match), "")


def _packages() -> list[str]:
    hadoop = _hadoop()
    if not hadoop:
        return []  # a Spark without Hadoop of its own
    packages = [f"org.apache.hadoop:hadoop-aws:{hadoop}"]
    if hadoop in SDK:
        packages += [f"software.amazon.awssdk:{part}:{SDK[hadoop]}" for part in PARTS]
    return packages
