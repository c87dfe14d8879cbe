"""What the pages tell is so: made parts are as made now, tables as in the code."""

from __future__ import annotations

import html
import json
import re
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from redcal_spark import __version__
from redcal_spark.cli.fail_on import CONDITIONS
from redcal_spark.runs.ledger import SCHEMA
from redcal_spark.runs.tables import HISTORY, METRICS, PATCHES
from tests.bench.results import FOLDER, Part, Results, parts_of
from tests.docs.made import make, results
from tests.docs.pages import DOCS, MADE, ROOT, name_of, pages, remade

README = ROOT / "README.md"


@pytest.mark.parametrize(
    "page", [page for page in pages() if MADE.search(page.read_text(encoding="utf-8"))], ids=name_of
)
def test_made_parts_are_as_made_now(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert remade(text, make) == text, "make pages"


def test_the_readme_is_short() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert README.read_text(encoding="utf-8").count("```python") == 1


@pytest.mark.parametrize("page", [README, DOCS / "guide/getting-started.md"], ids=name_of)
def test_what_is_said_of_the_demo_is_what_it_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    def holdout(line: str) -> tuple[float, float]:
        (numbers,) = re.findall(rf"^triage: {line} +(.*)$", text, re.MULTILINE)
        *_, before, after = (float(x) for x in re.findall(r"[\d.]+", numbers))
        return before, after

    apart, now = holdout("rows that disagree")
    costs = [holdout(f"cost of model_{name}") for name in ("notes", "vitals")]
    less, more = (round(100 * (1 - after / before)) for before, after in costs)
    said = " ".join(text.split())
    assert f"{apart:.0f} % of the patients different ways" in said and f"{now:.1f} %" in said
    assert f"cost {less} to {more} % less" in said


def test_the_picture_is_small() -> None:
    picture = DOCS / "images" / "report.png"
    assert 20_000 < picture.stat().st_size < 300_000


def rows_below(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (below,) = re.findall(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.M | re.S)
    table = next(part for part in parts_of(below) if part.heads is not None)
    return [list(row) for row in table.rows]


def shown(kind: pa.DataType) -> str:
    text = str(kind).replace("decimal128", "decimal").replace("tz=", "").replace("item: ", "")
    return {"double": "float64"}.get(text, text).replace("element: ", "")


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("Patch log: `<table>_patches`", PATCHES),
        ("History: `<table>_history`", HISTORY),
        ("Metrics: `<table>_metrics`", METRICS),
        ("Ledger: `<table>_runs`", SCHEMA),
    ],
)
def test_tables_are_as_described(heading: str, schema: pa.Schema) -> None:
    described = [
        (name.strip("`"), html.unescape(kind))
        for name, kind, _ in rows_below("reference/outputs.md", heading)
    ]
    assert described == [(field.name, shown(field.type)) for field in schema]


def test_the_conditions_of_fail_on() -> None:
    rows = rows_below("guide/scheduled-runs.md", "Failing on more than errors")
    assert [name.strip("`") for name, _ in rows] == list(CONDITIONS)


def test_ci_runs_what_people_run() -> None:
    run = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    targets = {word for line in run if line.startswith("make ") for word in line.split()[1:]}
    assert targets >= {"lint", "types", "docs", "test-oldest", "test"}
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]


def test_the_version_has_one_source() -> None:
    assert metadata.version("redcal-spark") == __version__
    assert __version__ not in (ROOT / "setup.py").read_text(encoding="utf-8")
    for page in pages():
        wheels = re.findall(r"redcal_spark-(\S+?)-py3", page.read_text(encoding="utf-8"))
        assert {*wheels} <= {__version__}, name_of(page)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_files_that_are_named_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:redcal_spark|tests|conf|jobs|notebooks|docs)/[\w./-]+)`", text)
    own = {"conf/my.yaml", "conf/stream.yaml", "conf/job.yaml"}  # a reader's
    assert [name for name in named if name not in own and not (ROOT / name).exists()] == []


def test_the_glossary_has_at_most_15_terms() -> None:
    rows = rows_below("reference/glossary.md", "Glossary")
    assert 8 <= len(rows) <= 15
    assert "first eight" in (DOCS / "reference/glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_result_files_say_where_they_come_from(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["machine"] and re.match(r"20\d\d-\d\d-\d\d", data["date"])
    commits = [data["commit"]]
    if data["commit"] == "see the table":
        commits = [row[-1] for part in data["parts"] if "rows" in part for row in part["rows"]]
    assert all(re.fullmatch(r"[0-9a-f]{7,40}\+?", commit) for commit in commits)
    texts = [page.read_text(encoding="utf-8") for page in pages()]
    made = " ".join(what for text in texts for what in MADE.findall(text))
    assert f" {path.stem}" in made or any(path.name in text for text in texts), "on no page"


def test_text_beside_figures_was_written_for_them() -> None:
    text = (DOCS / "results/paper.md").read_text(encoding="utf-8")
    (commit,) = re.findall(r"written for the figures of commit (\w+)", text)
    assert results("paper").commit == commit, "read the text again, and name the new commit"


def test_a_result_file_is_read_as_it_was_saved(tmp_path: Path) -> None:
    printed = "a title\n\n| what | s |\n|---|---|\n| one | 1.5 |\n\n- a note\n- another"
    found = Results("make x", "2026-01-02", "abcdef1", "a machine", list(parts_of(printed)))
    found.save(tmp_path / "x.json")
    again = Results.load(tmp_path / "x.json")
    assert again.part("what").markdown() == "| what | s |\n| --- | --- |\n| one | 1.5 |"
    assert again.part("a note").markdown() == "- a note\n- another"
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["commit"] == "abcdef1"
    with pytest.raises(LookupError, match="in 0 parts"):
        again.part("nothing")


def test_a_part_that_changed_is_noticed() -> None:
    page = "<!-- made: x -->\n\n| 1 |\n\n<!-- end -->"
    assert remade(page, lambda what: "| 1 |") == page
    assert remade(page, lambda what: "| 2 |") != page
    assert Part([["1"]], ["a"]).markdown() == "| a |\n| --- |\n| 1 |"
