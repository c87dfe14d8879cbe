"""Redaction: values of variables are found however they are spelt, and stored texts come back."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from redcal_spark.cli.streams import Screen
from redcal_spark.config.redaction import Redaction

KNOWN = Redaction(
    {"ROOT": "s3://acme é'1/x", "ENV": "dev", "N": "7"}, {"out/rows7": "out/rows${N}"}
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://acme é'1/x/rows: gone", "${ROOT}/rows: gone"),
        ("file 's3%3A//acme' and s3%3A//acme%20%C3%A9%271/x", "file 's3%3A//acme' and ${ROOT}"),
        (json.dumps({"t": "s3://acme é'1/x"}), '{"t": "${ROOT}"}'),
        (repr("s3://acme é'1/x\""), "'${ROOT}\"'"),
        ("dev/rows, a device, dev", "${ENV}/rows, a device, ${ENV}"),  # short: whole words
        ("7", "${N}"),  # very short: whole texts
        ("7 of 77 rows", "7 of 77 rows"),
        ("out/rows7_patches", "out/rows${N}_patches"),  # but texts of the configuration
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert KNOWN.text(text) == shown


def test_data_keeps_its_numbers_and_its_form() -> None:
    found = KNOWN.plain({"dev": [7, "7", None, {"x": ("out/rows7", 1.5)}]})
    assert found == {"${ENV}": [7, "${N}", None, {"x": ["out/rows${N}", 1.5]}]}


def test_nothing_hidden_is_nothing_changed() -> None:
    assert not Redaction() and not Redaction({"EMPTY": ""})
    assert Redaction().text("${X} costs $${5}") == "${X} costs $${5}"
    assert Redaction().stored_json('{"a":1}') == '{"a":1}'


def test_names_of_another_configuration_stay() -> None:
    assert KNOWN.read("${OTHER}/${ENV}") == "${OTHER}/dev"


words = st.text(st.sampled_from("ab$ {}é/'"), max_size=12)


@given(words, st.lists(words, min_size=1, max_size=3), words)
def test_stored_texts_come_back(text: str, values: list[str], tail: str) -> None:
    known = {f"V{i}": value for i, value in enumerate(values)}
    resolved = "${a}" + values[0]
    hidden = Redaction(known, {resolved: "$${a}${V0}"})
    for whole in (text, text + values[0] + tail, values[-1], text + resolved + tail):
        assert hidden.read(hidden.stored(whole)) == whole
        plain = json.dumps({whole: [whole, 1]})
        assert json.loads(hidden.read_json(hidden.stored_json(plain))) == json.loads(plain)
        for name, value in enumerate(values):
            if len(value) >= 8:
                assert value not in hidden.stored(whole).replace(f"${{V{name}}}", "")


def test_tables_and_long_lines_hide_values_before_they_are_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, out = Screen(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    value = "a-very-long-secret-that-does-not-fit-on-one-line-of-forty"
    screen.hidden = Redaction({"KEY": value})
    table = Table(box=None)
    table.add_column(f"of {value}", overflow="fold")
    table.add_row(f"x {value} y")
    with screen.on():
        console = screen.console(width=40, highlight=False, markup=False)
        console.print(table)
        console.print(f"note: something about {value} in a long line")
        print(json.dumps({value: 1, "n": [value]}))
        print(f"plain {value}", file=sys.stdout)
    told = out.getvalue()
    assert told.count("${KEY}") == 6
    assert not any(part in told for part in ("very", "secret", "forty"))
