"""Values changed in a YAML file: what stands around them stays."""

from __future__ import annotations

import pytest
import yaml

from redcal_spark.config.edit import with_values
from redcal_spark.errors import UsageError
from tests.helpers import refused

NEW = {"eta": "0.005", "beta": "0.0012"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "reconcile: {alpha: 1, eta: 0.01}  # x\n",
            "reconcile: {alpha: 1, eta: 0.005, beta: 0.0012}  # x\n",
        ),
        ("reconcile: {beta: auto, eta: 0.01}\n", "reconcile: {beta: 0.0012, eta: 0.005}\n"),
        (
            "# a\nreconcile:\n  eta: 0.01  # b\n\n  alpha: 1\n",
            "# a\nreconcile:\n  eta: 0.005  # b\n  beta: 0.0012\n\n  alpha: 1\n",
        ),
        (
            "reconcile:\n    alpha: 1\n    eta: 'auto'",
            "reconcile:\n    alpha: 1\n    eta: 0.005\n    beta: 0.0012\n",
        ),
        (
            "reconcile:\r\n  eta: 1e-2\r\n  alpha: 1\r\n",
            "reconcile:\r\n  eta: 0.005\r\n  beta: 0.0012\r\n  alpha: 1\r\n",
        ),
        (
            "reconcile:\n  eta:\n  alpha: 1\n",
            "reconcile:\n  eta: 0.005\n  beta: 0.0012\n  alpha: 1\n",
        ),
        ('{"reconcile": {"eta": 0.01}}', '{"reconcile": {"eta": 0.005, beta: 0.0012}}'),
        (
            "ä: ö\nreconcile: {eta: 1, beta: 1} # ü",
            "ä: ö\nreconcile: {eta: 0.005, beta: 0.0012} # ü",
        ),
    ],
)
def test_only_the_values_change(old: str, new: str) -> None:
    assert with_values(old, "reconcile", NEW, "f.yaml") == new
    before, after = yaml.safe_load(old), yaml.safe_load(new)
    kept = {k: v for k, v in before["reconcile"].items() if k not in NEW}
    assert after["reconcile"] == kept | {"eta": 0.005, "beta": 0.0012}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("input: {}\n", "no section reconcile"),
        ("reconcile: {alpha: 1}\n", "none of eta, beta"),
        ("reconcile: {eta: [1]}\n", "no plain value"),
        ("a: &x 0.01\nreconcile: {eta: *x}\n", "aliases"),
        ("reconcile: {eta: 1\n", "cannot be read"),
    ],
)
def test_what_is_not_safe_is_refused_with_the_lines_to_write(text: str, why: str) -> None:
    said = refused(UsageError, lambda: with_values(text, "reconcile", NEW, "f.yaml"))
    assert why in said and "f.yaml: is left as it is" in said and "eta: 0.005" in said
