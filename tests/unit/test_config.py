"""The configuration: what is accepted, and the exact words for everything that is not."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from redcal_spark.config import schema as models
from redcal_spark.config.input import Input
from redcal_spark.config.load import config_from_tree, load_config
from redcal_spark.config.schema import Config, EngineSection, Output, json_schema
from redcal_spark.config.section import Section
from redcal_spark.errors import UsageError

CONF = Path(__file__).parents[2] / "conf"

GOOD = """\
input: {table: data/scores, id: case_id, label: outcome, model_1: scores_a, model_2: scores_b}
losses:
  triage: {actions: [discharge, treat], costs: [[0, 5, 9], [1, 0, 0]]}
reconcile: {algorithm: redcal, alpha: 0.01, eta: 0.01}
output: {table: out/scores}
"""

Load = Callable[..., Config]
Refuse = Callable[..., str]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a text as x.yaml, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str, text: str | bytes = GOOD) -> Config:
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "x.yaml").write_bytes(data)
        return load_config("x.yaml", overrides)

    return run


@pytest.fixture
def refuse(load: Load) -> Refuse:
    """The message with which it is refused."""

    def run(*overrides: str, text: str | bytes = GOOD) -> str:
        with pytest.raises(UsageError) as refused:
            load(*overrides, text=text)
        return str(refused.value)

    return run


# --- what is accepted -----------------------------------------------------------------------------


def test_the_example_of_the_design(load: Load) -> None:
    config = load()
    assert config.input.score_columns(1) == ("scores_a",)
    assert config.input.score_columns(2) == ("scores_b",)
    assert config.input.score_table(1) is None
    assert config.losses["triage"].costs == ((0.0, 5.0, 9.0), (1.0, 0.0, 0.0))
    assert config.losses["triage"].actions == ("discharge", "treat")
    assert config.reconcile.beta == "auto"
    assert config.engine == EngineSection(name="auto")
    assert config.output.tables == (
        "out/scores",
        "out/scores_patches",
        "out/scores_history",
        "out/scores_metrics",
        "out/scores_runs",
    )


@pytest.mark.parametrize(
    ("table", "patches"),
    [
        ("out/scores/", "out/scores_patches"),
        ("main.risk.scores", "main.risk.scores_patches"),
        ("main.risk.`my scores`", "main.risk.`my scores_patches`"),
        ("abfss://c@a.net/out", "abfss://c@a.net/out_patches"),
    ],
)
def test_side_tables_are_siblings(table: str, patches: str) -> None:
    assert Output(table=table).tables.patches == patches


def test_side_tables_can_be_named() -> None:
    tables = Output(table="out/a", runs="ledger").tables
    assert (tables.runs, tables.history) == ("ledger", "out/a_history")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("reconcile.eta=1e-5", 1e-5),
        ("reconcile.eta=1E-3", 1e-3),
        ("reconcile.eta=1e+0", 1.0),
        ("reconcile.eta=.5", 0.5),
        ("reconcile.eta=1", 1.0),
        ("reconcile.eta=0.30000000000000004", 0.30000000000000004),
    ],
)
def test_numbers(load: Load, override: str, value: float) -> None:
    eta = load(override).reconcile.eta
    assert eta == value
    assert repr(eta) == repr(value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["reconcile.algorithm=reconcile", "losses="],
        ["reconcile={algorithm: decision_calibration}"],
        ["reconcile.algorithm=dc_then_redcal", "reconcile.beta=1"],
        ["reconcile.max_rounds=0"],
        ["reconcile.max_steps=1e6", "reconcile.grid_bits=26", "reconcile.adaptive_beta=true"],
        ["engine="],
        ["input.version=3"],
        ["input.version=2026-01-31"],
        ["input.version=2026-01-31T12:00:00Z"],
        ["input.split={column: fold, fit: 0, holdout: 1}"],
        ["input.split={holdout_fraction: 0.2, salt: again}"],
        ["input.classes=[no, yes, on]"],
        ['input.separator="\\t"'],
    ],
)
def test_accepted(load: Load, overrides: list[str]) -> None:
    load(*overrides)


def test_scores_in_other_tables(load: Load) -> None:
    given = load(
        "input.model_1={table: a, version: 3, columns: [p0, p1, p2]}",
        "input.model_2={table: b, id: case, columns: [p0, p1, p2]}",
    ).input
    assert given.score_columns(1) == given.score_columns(2) == ("p0", "p1", "p2")
    first, second = given.score_table(1), given.score_table(2)
    assert first is not None
    assert second is not None
    assert (first.table, first.version, first.id) == ("a", 3, None)
    assert (second.table, second.version, second.id) == ("b", None, "case")


def test_the_same_columns_in_another_version_are_another_model(load: Load) -> None:
    load("input.model_2={table: data/scores, version: 3, columns: scores_a}")


def test_sections_are_frozen(load: Load) -> None:
    config = load()
    with pytest.raises(ValidationError, match="frozen"):
        config.reconcile.eta = 0.5


def test_built_in_python() -> None:
    given = Input(table="t", label="y", model_1=("a", "b"), model_2=("c", "d"))
    output = Output(table="o")
    with pytest.raises(ValidationError, match=r"is for 3 classes, but input\.model_1 is for 2"):
        Config.model_validate(
            {
                "input": given,
                "losses": {"l": {"costs": [[0, 1, 2], [1, 0, 0]]}},
                "reconcile": {"alpha": 0.1, "eta": 0.1},
                "output": output,
            }
        )


# --- what is refused, and how ---------------------------------------------------------------------

NO_FILE = "output.table: results are Delta tables, not {} files: name a folder"
ONE_PROBLEM = [
    # keys
    ("reconcile.eat=1", "reconcile.eat: unknown key; did you mean 'eta'?"),
    ("inputs=1", "inputs: unknown key; did you mean 'input'?"),
    (
        "engine.colour=red",
        "engine.colour: unknown key; known here: name, threads, scratch, lease, driver_budget, "
        "read",
    ),
    ("input.label=", "input.label: must be text, got nothing"),
    # numbers
    ("reconcile.eta=1.5", "reconcile.eta: must be in (0, 1], got 1.5"),
    ("reconcile.eta=0", "reconcile.eta: must be in (0, 1], got 0"),
    ("reconcile.alpha=-0.1", "reconcile.alpha: must be in (0, 1], got -0.1"),
    ("reconcile.alpha=.nan", "reconcile.alpha: must be a finite number, got nan"),
    ("reconcile.alpha=true", "reconcile.alpha: must be a number, got true"),
    ("reconcile.alpha='1'", "reconcile.alpha: must be a number, got '1'; write it without quotes"),
    ("reconcile.alpha=a lot", "reconcile.alpha: must be a number, got 'a lot'"),
    ("reconcile.alpha=[0.1]", "reconcile.alpha: must be a number, got a list"),
    ("reconcile.eta=a lot", "reconcile.eta: must be auto or a number in (0, 1], got 'a lot'"),
    ("reconcile.tune_rows=0", "reconcile.tune_rows: must be at least 1, got 0"),
    (
        "reconcile={algorithm: reconcile, alpha: 1, eta: auto}",
        "reconcile.eta: auto is for redcal and dc_then_redcal, whose losses it compares; "
        "reconcile needs a number",
    ),
    (
        "reconcile={algorithm: decision_calibration, eta: auto}",
        "reconcile.eta: auto is for redcal and dc_then_redcal; decision_calibration has no use for "
        "eta: leave it out",
    ),
    ("reconcile.beta=2", "reconcile.beta: must be in (0, 1], got 2"),
    ("reconcile.delta=1", "reconcile.delta: must be in (0, 1), got 1"),
    ("reconcile.delta=0", "reconcile.delta: must be in (0, 1), got 0"),
    ("reconcile.beta=often", "reconcile.beta: must be auto or a number in (0, 1], got 'often'"),
    ("reconcile.beta=true", "reconcile.beta: must be auto or a number in (0, 1], got true"),
    ("reconcile.grid_bits=27", "reconcile.grid_bits: must be from 1 to 26, got 27"),
    ("reconcile.max_rounds=-1", "reconcile.max_rounds: must be at least 0, got -1"),
    ("reconcile.max_steps=1.5", "reconcile.max_steps: must be a whole number, got 1.5"),
    ("reconcile.adaptive_beta=yes", "reconcile.adaptive_beta: must be true or false, got 'yes'"),
    ("engine.threads=true", "engine.threads: must be a whole number, got true"),
    # choices
    (
        "reconcile.algorithm=redcl",
        "reconcile.algorithm: must be 'redcal', 'decision_calibration', 'reconcile' or "
        "'dc_then_redcal', got 'redcl'",
    ),
    ("engine.name=ray", "engine.name: must be 'auto', 'local' or 'spark', got 'ray'"),
    ("input.join=outer", "input.join: must be 'error' or 'inner', got 'outer'"),
    ("input.on_bad_rows=drop", "input.on_bad_rows: must be 'error' or 'skip', got 'drop'"),
    # what an algorithm needs
    ("reconcile.alpha=", "reconcile.alpha: is required for redcal"),
    ("reconcile={algorithm: reconcile, alpha: 1}", "reconcile.eta: is required for reconcile"),
    (
        "reconcile={algorithm: dc_then_redcal, eta: 1}",
        "reconcile.alpha: is required for dc_then_redcal",
    ),
    ("losses=", "losses: is required for redcal"),
    ("losses={}", "losses: is required for redcal"),
    # losses
    ("losses=[1]", "losses: must be a mapping, got a list"),
    ("losses.b=7", "losses.b: must be a mapping, got 7"),
    ("losses.b=", "losses.b.costs: is required"),
    ("losses.b={cost: [[1, 2, 3]]}", "losses.b.cost: unknown key; did you mean 'costs'?"),
    ("losses.b={costs: [[1, 2, 3]]}", "losses.b.costs: needs at least 2 entries, has 1"),
    (
        "losses.b={costs: [[1, 2, 3], [1, 2]]}",
        "losses.b.costs[1]: must have 3 numbers, as the first row, has 2",
    ),
    (
        "losses.b={costs: [[1, 2, 3], [4, 5, '6']]}",
        "losses.b.costs[1][2]: must be a number, got '6'; write it without quotes",
    ),
    (
        "losses.b={costs: [[1, 2, .inf], [4, 5, 6]]}",
        "losses.b.costs[0][2]: must be a finite number, got inf",
    ),
    (
        "losses.b={costs: [[1, 2, true], [4, 5, 6]]}",
        "losses.b.costs[0][2]: must be a number, got true",
    ),
    (
        "losses.triage.actions=[a, b, c]",
        "losses.triage.actions: must have 2 names, one per row of costs, has 3",
    ),
    (
        "losses.triage.actions=[]",
        "losses.triage.actions: must have 2 names, one per row of costs, has 0",
    ),
    ("losses.triage.actions=[a, a]", "losses.triage.actions[1]: is the same as actions[0]"),
    (
        "losses.triage.actions=[1, two]",
        "losses.triage.actions[0]: must be text, got 1; put it in quotes",
    ),
    (
        "losses.b={costs: [[1, 2], [3, 4]]}",
        "losses.b.costs: is for 2 classes, but losses.triage.costs is for 3",
    ),
    (
        "input.classes=[a, b]",
        "losses.triage.costs: is for 3 classes, but input.classes is for 2",
    ),
    ("input.classes=[a, b, a]", "input.classes[2]: is the same as classes[0]"),
    ("input.classes=[a]", "input.classes: needs at least 2 entries, has 1"),
    ("input.classes=abc", "input.classes: must be a list, got 'abc'"),
    # scores
    (
        "input.model_1=5",
        "input.model_1: must be a column, a list of columns, or a mapping with table and columns, "
        "got 5",
    ),
    (
        "input.model_1=[p]",
        "input.model_1: a list needs a column per class; write a single column without brackets",
    ),
    ("input.model_1=[p, 3, r]", "input.model_1[1]: must be text, got 3; put it in quotes"),
    ("input.model_1=[p, q, p]", "input.model_1[2]: is the same as model_1[0]"),
    (
        "input.model_1=[p, q]",
        "losses.triage.costs: is for 3 classes, but input.model_1 is for 2",
    ),
    ("input.model_1={table: t}", "input.model_1.columns: is required"),
    ("input.model_1={columns: p}", "input.model_1.table: is required"),
    (
        "input.model_1={table: t, columns: 7}",
        "input.model_1.columns: must be a column or a list of columns, got 7",
    ),
    (
        "input.model_1={table: t, columns: p, verson: 3}",
        "input.model_1.verson: unknown key; did you mean 'version'?",
    ),
    (
        "input.model_1=scores_b",
        "input.model_2: is the same as model_1; two different models are needed",
    ),
    (
        "input.model_2={table: data/./scores, columns: scores_a}",
        "input.model_2: is the same as model_1; two different models are needed",
    ),
    ("input.label=scores_a", "input.label: is a score column of model_1"),
    # the other keys of input
    ("input.table=' '", "input.table: must not be empty, got ' '"),
    ('input.table="a\\0"', r"input.table: must be printable text, got 'a\x00'"),
    ("input.separator=ab", "input.separator: must be a single character, got 'ab'"),
    (
        "input.version=yesterday",
        "input.version: must be a version number or a time such as 2026-01-31T12:00:00, "
        "got 'yesterday'",
    ),
    (
        "input.split=fold",
        "input.split: must be a mapping: column, fit and holdout, or holdout_fraction, got 'fold'",
    ),
    ("input.split={holdout_fraction: 1}", "input.split.holdout_fraction: must be in (0, 1), got 1"),
    (
        "input.split={holdout_fracton: 0.5}",
        "input.split.holdout_fracton: unknown key; did you mean 'holdout_fraction'?",
    ),
    (
        "input.split={holdout_fraction: 0.5, column: fold}",
        "input.split: give column, fit and holdout, or holdout_fraction, but not both",
    ),
    ("input.split={column: fold, fit: 1}", "input.split.holdout: is required"),
    ("input.split={column: fold, fit: 1, holdout: 1}", "input.split.holdout: is the same as fit"),
    (
        "input.split={column: fold, fit: 1, holdout: 0.5}",
        "input.split.holdout: must be text, a whole number, true or false, got 0.5",
    ),
    # output
    ("output.table=out.csv", f"{NO_FILE.format('csv')}, as out/scores"),
    ("output.table=out/x.XLSX", f"{NO_FILE.format('xlsx')}, as out/scores"),
    ("output.table=data//scores/", "output.table: is the same table as input.table"),
    ("output.patches=./out/scores", "output.patches: is the same table as output.table"),
    ("output.history=out/scores_runs", "output.runs: is the same table as output.history"),
    ("input.table=out/scores_runs", "output.runs: is the same table as input.table"),
    ("output.checkpoint=out/scores_runs", "output.checkpoint: is the same table as output.runs"),
    ("output.checkpoint=out/scores/c", "output.checkpoint: is inside the folder of output.table"),
    ("engine=5", "engine: must be a mapping, got 5"),
]


@pytest.mark.parametrize(("override", "problem"), ONE_PROBLEM, ids=[o for o, _ in ONE_PROBLEM])
def test_one_problem(refuse: Refuse, override: str, problem: str) -> None:
    assert refuse(override) == f"x.yaml: 1 problem\n  {problem}"


def test_an_output_must_not_be_a_joined_table(refuse: Refuse) -> None:
    message = refuse("input.model_1={table: a, columns: p}", "output.runs=a")
    assert message == "x.yaml: 1 problem\n  output.runs: is the same table as input.model_1.table"


def test_what_needs_an_id(refuse: Refuse) -> None:
    message = refuse(
        "input.id=",
        "input.model_2={table: b, columns: p}",
        "input.split={holdout_fraction: 0.5}",
    )
    assert message.splitlines()[1:] == [
        "  input.id: is required to join model_2 and to split by holdout_fraction"
    ]


def test_every_problem_at_once(refuse: Refuse) -> None:
    text = """\
input: {table: t, model_1: a, model_2: [b, 1], classes: [x, y], on_bad_rows: drop}
losses: {l: {costs: [[0, 1, x], [1, 0]], actions: [a, a, b]}, m: {costs: [[0, 1], [1, 0]]}}
reconcile: {alhpa: 0.1, eta: 1.5}
output: {table: t}
"""
    assert refuse(text=text).splitlines() == [
        "x.yaml: 11 problems",
        "  input.label: is required",
        "  input.model_2[1]: must be text, got 1; put it in quotes",
        "  input.on_bad_rows: must be 'error' or 'skip', got 'drop'",
        "  losses.l.costs[0][2]: must be a number, got 'x'",
        "  losses.l.costs[1]: must have 3 numbers, as the first row, has 2",
        "  losses.l.actions: must have 2 names, one per row of costs, has 3",
        "  losses.l.actions[1]: is the same as actions[0]",
        "  reconcile.eta: must be in (0, 1], got 1.5",
        "  reconcile.alhpa: unknown key; did you mean 'alpha'?",
        "  losses.l.costs: is for 3 classes, but input.classes is for 2",
        "  output.table: is the same table as input.table",
    ]


def test_missing_sections(refuse: Refuse) -> None:
    assert refuse(text="{}").splitlines() == [
        "x.yaml: 4 problems",
        "  input: is required",
        "  reconcile: is required",
        "  output: is required",
        "  losses: is required for redcal",
    ]


def test_a_long_list_of_problems_is_cut(refuse: Refuse) -> None:
    lines = refuse(f"losses.triage.costs=[{'[x, y, z], ' * 50}]").splitlines()
    assert lines[0] == "x.yaml: 151 problems"
    assert lines[-1] == "  ... and 51 more"
    assert len(lines) == 102


# --- YAML -----------------------------------------------------------------------------------------

BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
YAML_PROBLEMS: list[tuple[str | bytes, str]] = [
    ("", "x.yaml: is empty"),
    ("# nothing but this\n", "x.yaml: is empty"),
    (
        "- a\n",
        "x.yaml: must be a mapping (input, losses, reconcile, output, engine, storage_options), "
        "not a list",
    ),
    (b"a: \xff\n", "x.yaml, line 1: is not UTF-8 text"),
    (b"#" * (2**20 + 1), "x.yaml: is larger than 1 MiB"),
    ("a: \x07\n", r"x.yaml, line 1: the character '\x07' is not allowed"),
    (
        "a:\n\tb: 1\n",
        r"x.yaml, line 2, column 1: found character '\t' that cannot start any token "
        r"(indent with spaces, not tabs): '\tb: 1'",
    ),
    ("a: b: c\n", "x.yaml, line 1, column 5: mapping values are not allowed here: 'a: b: c'"),
    (
        "a: [1,\n  2\n",
        "x.yaml, line 3, column 1: while parsing a flow sequence from line 1: "
        "expected ',' or ']', but got '<stream end>': 'a: [1,'",
    ),
    (
        "a:\n  b: 1\n  c: 2\n  b: 3\n",
        "x.yaml, line 4, column 3: the key 'b' is given twice, first in line 2: '  b: 3'",
    ),
    ("1: a\n", "x.yaml, line 1, column 1: a key must be text; put it in quotes: '1: a'"),
    (
        "a: !!python/object/apply:os.system [ls]\n",
        "x.yaml, line 1, column 4: the tag !!python/object/apply:os.system is not allowed; "
        "write a plain value: 'a: !!python/object/apply:os.system [ls]'",
    ),
    (
        "a: !mine 3\n",
        "x.yaml, line 1, column 4: the tag !mine is not allowed; write a plain value: 'a: !mine 3'",
    ),
    (
        "a: !!int three\n",
        "x.yaml, line 1, column 4: the tag !!int is not allowed; write a plain value: "
        "'a: !!int three'",
    ),
    (
        "a: &a [*a]\n",
        "x.yaml, line 1, column 4: this refers to itself by an alias: 'a: &a [*a]'",
    ),
    ("a: *b\n", "x.yaml, line 1, column 4: found undefined alias 'b': 'a: *b'"),
    (
        BOMB,
        "x.yaml, line 6, column 5: aliases expand this to too many values: "
        "'a5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]'",
    ),
    ("[" * 5000, "x.yaml: is nested too deeply"),
    (
        f"a: {'9' * 5000}\n",
        f"x.yaml, line 1, column 4: this number has too many digits: 'a: {'9' * 94}...'",
    ),
    (
        "a: 1\n---\nb: 2\n",
        "x.yaml, line 2, column 1: expected a single document in the stream from line 1: "
        "but found another document: '---'",
    ),
]


@pytest.mark.parametrize(("text", "message"), YAML_PROBLEMS, ids=[m for _, m in YAML_PROBLEMS])
def test_yaml_problems(refuse: Refuse, text: str | bytes, message: str) -> None:
    assert refuse(text=text) == message


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^conf/x.yaml: no such file; looked for /"):
        load_config("conf/x.yaml")
    (tmp_path / "conf").mkdir()
    with pytest.raises(UsageError, match=r"^conf: is a directory; name a file in it$"):
        load_config(Path("conf"))
    (tmp_path / "secret.yaml").write_text(GOOD)
    (tmp_path / "secret.yaml").chmod(stat.S_IWUSR)
    if not os.access("secret.yaml", os.R_OK):  # root may read everything
        with pytest.raises(UsageError, match=r"^secret.yaml: cannot be read: Permission denied$"):
            load_config("secret.yaml")


def test_a_byte_order_mark_is_no_character(load: Load) -> None:
    load(text=b"\xef\xbb\xbf" + GOOD.encode())


def test_aliases_and_merges(load: Load) -> None:
    text = GOOD.replace("{actions:", "&triage {actions:").replace(
        "reconcile:", "  again: {<<: *triage, actions: [a, b]}\nreconcile:"
    )
    config = load("losses.triage.actions=[x, y]", text=text)
    assert config.losses["triage"].actions == ("x", "y")
    assert config.losses["again"].actions == ("a", "b")
    assert config.losses["again"].costs == config.losses["triage"].costs


def test_an_override_does_not_reach_through_an_alias(load: Load) -> None:
    text = GOOD.replace("{actions:", "&triage {actions:").replace(
        "reconcile:", "  again: *triage\nreconcile:"
    )
    config = load("losses.again.actions=[x, y]", text=text)
    assert config.losses["triage"].actions == ("discharge", "treat")


# --- overrides ------------------------------------------------------------------------------------


def test_overrides_make_what_is_missing(load: Load) -> None:
    config = load("engine.threads=2", "engine.name=local", "engine.threads=3")
    assert (config.engine.name, config.engine.threads) == ("local", 3)


@pytest.mark.parametrize("override", ["reconcile.eta", "=1", ".eta=1", "reconcile..eta=1", ""])
def test_overrides_of_the_wrong_form(refuse: Refuse, override: str) -> None:
    example = "write KEY=VALUE, for example --set reconcile.eta=0.02"
    assert refuse(override) == f"--set {override}: {example}"


def test_overrides_through_a_value(refuse: Refuse) -> None:
    assert refuse("input.table.version=3") == (
        "--set input.table.version=3: input.table is 'data/scores', it has no keys to set"
    )


def test_overrides_that_are_no_yaml(refuse: Refuse) -> None:
    assert refuse("input.classes=[a") == (
        "--set input.classes=[a, line 1, column 3: "
        "expected ',' or ']', but got '<stream end>': '[a'"
    )


# --- the environment and the record ---------------------------------------------------------------


def test_variables_are_resolved_but_not_recorded(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDCAL_ROOT", "/secret")
    config = load(
        "input.table=${REDCAL_ROOT}/scores",
        "input.model_1={table: '${REDCAL_ROOT}/a', columns: ['${REDCAL_ROOT}', b, c]}",
        "input.label=$${REDCAL_ROOT}",
        "output.table=${REDCAL_ROOT}/out",
        "losses.triage.actions=['${REDCAL_ROOT}', b]",
    )
    assert config.input.table == "/secret/scores"
    assert config.input.score_columns(1) == ("/secret", "b", "c")
    assert config.input.label == "${REDCAL_ROOT}"
    assert config.output.tables.runs == "/secret/out_runs"
    recorded = config.recorded()
    assert recorded["input"]["table"] == "${REDCAL_ROOT}/scores"
    assert recorded["input"]["label"] == "$${REDCAL_ROOT}"
    assert recorded["output"]["runs"] == "${REDCAL_ROOT}/out_runs"
    assert "secret" not in json.dumps(recorded)
    assert "secret" not in repr(config)
    assert "secret" not in str(config)
    again = config_from_tree(json.loads(json.dumps(recorded)))
    assert again.recorded() == recorded
    assert again.input == config.input
    assert again.output.tables == config.output.tables


def test_a_variable_that_ends_in_a_slash(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDCAL_OUT", "out/")
    config = load("output.table=${REDCAL_OUT}")
    assert config.output.tables.runs == "out_runs"
    assert config_from_tree(config.recorded()).output.tables == config.output.tables


def test_the_environment_is_not_resolved_twice(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDCAL_A", "${REDCAL_B}")
    monkeypatch.setenv("REDCAL_B", "b")
    assert load("input.label=${REDCAL_A}").input.label == "${REDCAL_B}"
    assert load("input.label=$REDCAL_B").input.label == "$REDCAL_B"


def test_variables_that_cannot_be_resolved(refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDCAL_NONE", raising=False)
    message = refuse(
        "input.table=${REDCAL_NONE}/a",
        "output.table=${OUT",
        "losses.b={file: '${REDCAL_NONE}.csv'}",
    )
    assert message.splitlines() == [
        "x.yaml: 3 problems",
        "  input.table: environment variable REDCAL_NONE is not set",
        "  losses.b.file: environment variable REDCAL_NONE is not set",
        "  output.table: '${' without a name and '}'; write ${NAME} for an environment variable, "
        "$${ for the characters themselves",
    ]


def test_problems_do_not_show_what_the_environment_holds(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDCAL_SECRET", "0.125")
    message = refuse("engine.name=${REDCAL_SECRET}", "reconcile.eta=${REDCAL_SECRET}")
    assert message.splitlines()[1:] == [
        "  reconcile.eta: must be auto or a number in (0, 1], got '${REDCAL_SECRET}'; the "
        "environment gives text only, so set numbers with --set",
        "  engine.name: must be 'auto', 'local' or 'spark', got '${REDCAL_SECRET}'",
    ]


def test_no_secret_in_the_chain_of_errors(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDCAL_SECRET", "hush")
    with pytest.raises(UsageError) as refused:
        load("engine.name=${REDCAL_SECRET}")
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_the_record_has_every_default(load: Load) -> None:
    assert load().recorded() == {
        "input": {
            "table": "data/scores",
            "version": None,
            "id": "case_id",
            "label": "outcome",
            "weight": None,
            "weight_unit": 1.0,
            "segments": None,
            "model_1": "scores_a",
            "model_2": "scores_b",
            "models": None,
            "missing_model": "error",
            "join": "error",
            "classes": None,
            "on_bad_rows": "error",
            "separator": ",",
            "split": None,
        },
        "losses": {
            "triage": {
                "actions": ["discharge", "treat"],
                "costs": [[0.0, 5.0, 9.0], [1.0, 0.0, 0.0]],
            }
        },
        "reconcile": {
            "algorithm": "redcal",
            "alpha": 0.01,
            "eta": 0.01,
            "beta": "auto",
            "adaptive_beta": False,
            "grid_bits": None,
            "max_rounds": 10000,
            "max_steps": 1000000,
            "tune_rows": 1000000,
            "guard": "report",
            "delta": 0.05,
        },
        "output": {
            "table": "out/scores",
            "patches": "out/scores_patches",
            "history": "out/scores_history",
            "metrics": "out/scores_metrics",
            "runs": "out/scores_runs",
            "report": "auto",
            "mlflow": None,
            "checkpoint": None,
            "suffix": "_reconciled",
            "normalise": False,
            "tie": "off",
            "mode": "overwrite",
            "columns": None,
            "rows": "all",
            "writer": "spark",
            "partition_by": None,
            "cluster_by": None,
            "schema": "error",
        },
        "engine": {
            "name": "auto",
            "threads": None,
            "scratch": None,
            "lease": 600,
            "driver_budget": "auto",
            "read": "auto",
        },
    }


@pytest.mark.parametrize(
    "override",
    [
        "input.model_1=[p, q, r]",
        "input.model_1={table: t, version: 2026-01-31, columns: p}",
        "input.split={column: fold, fit: true, holdout: false}",
        "input.split={holdout_fraction: 0.25}",
        "reconcile.beta=0.001",
        "input.classes=[a, b, c]",
    ],
)
def test_the_record_makes_the_config_again(load: Load, override: str) -> None:
    config = load(override)
    recorded = json.loads(json.dumps(config.recorded()))
    again = config_from_tree(recorded)
    assert again.recorded() == recorded == config.recorded()
    assert again.input == config.input
    assert again.reconcile == config.reconcile


# --- loss files -----------------------------------------------------------------------------------


@pytest.fixture
def in_file(load: Load, tmp_path: Path) -> Load:
    """Load a config in conf/ whose loss `l` is in the given file beside it."""

    def run(file: str, text: str, *overrides: str, entry: str = "") -> Config:
        (tmp_path / "conf").mkdir(exist_ok=True)
        (tmp_path / "conf" / file).write_text(text)
        (tmp_path / "conf" / "x.yaml").write_text(GOOD)
        losses = f"losses={{l: {{file: conf/{file}{entry}}}}}"
        return load_config("conf/x.yaml", [losses, *overrides])

    return run


LOSS_FILES = [
    ("l.yaml", "{actions: [a, b], costs: [[0, 1], [1e0, 0]]}", ""),
    ("l.csv", "action,healthy,sick\na,0,1\nb,1e0,0\n", ""),
    ("l.csv", "\ufeff,0,1\r\na,0,1\r\n\r\nb, 1.0 ,0\r\n", ""),
    ("l.CSV", "0,1\n1,0\n", ", actions: [a, b]"),
]


@pytest.mark.parametrize(("file", "text", "entry"), LOSS_FILES)
def test_loss_files(in_file: Load, file: str, text: str, entry: str) -> None:
    config = in_file(file, text, entry=entry)
    assert config.losses["l"].actions == ("a", "b")
    assert config.losses["l"].costs == ((0.0, 1.0), (1.0, 0.0))
    assert config.recorded()["losses"] == {
        "l": {"actions": ["a", "b"], "costs": [[0.0, 1.0], [1.0, 0.0]]}
    }


def test_a_file_of_losses(load: Load, tmp_path: Path) -> None:
    (tmp_path / "losses.yaml").write_text(
        "b: {costs: [[0, 1], [1, 0]]}\na: {costs: [[0, 2], [1, 0]]}"
    )
    config = load("losses=losses.yaml")
    assert list(config.losses) == ["b", "a"]
    assert config.losses["b"].actions is None


def test_variables_in_the_names_of_loss_files(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDCAL_LOSS", str(tmp_path / "l"))
    (tmp_path / "l.csv").write_text("0,1\n1,0\n")
    (tmp_path / "l.yaml").write_text("m: {costs: [[0, 1], [1, 0]]}")
    one = load("losses={l: {file: '${REDCAL_LOSS}.csv', actions: ['${REDCAL_LOSS}', b]}}")
    assert one.recorded()["losses"]["l"]["actions"] == ["${REDCAL_LOSS}", "b"]
    assert list(load("losses=${REDCAL_LOSS}.yaml").recorded()["losses"]) == ["m"]


LOSS_FILE_PROBLEMS = [
    ("l.txt", "", "", "losses.l: conf/l.txt: must be a .yaml or .yml or .csv file"),
    ("l.yaml", "", "", "losses.l.costs: conf/l.yaml: is required"),
    ("l.yaml", "[1]", "", "losses.l: conf/l.yaml: must be a mapping, got a list"),
    (
        "l.yaml",
        "costs: [[0, 1], [1, x]]",
        "",
        "losses.l.costs[1][1]: conf/l.yaml: must be a number, got 'x'",
    ),
    (
        "l.yaml",
        "costs: [[0, 1], [1, 0]\n",
        "",
        "losses.l: conf/l.yaml, line 2, column 1: while parsing a flow sequence from line 1: "
        "expected ',' or ']', but got '<stream end>': 'costs: [[0, 1], [1, 0]'",
    ),
    (
        "l.csv",
        "action,x,y\na,0,1\nb,1,\n",
        "",
        "losses.l.costs[1][1]: conf/l.csv: must be a number, got ''",
    ),
    (
        "l.csv",
        "a,0,1\nb,1,0\nc,1,1\n",
        "",
        "losses.l: conf/l.csv: the first line must have 'action' and the classes, "
        "or every cell must be a number",
    ),
    (
        "l.csv",
        "action,x,y\na,0,1\nb,1\n",
        "",
        "losses.l: conf/l.csv: not as many cells as the first line: b",
    ),
    (
        *("l.csv", "action;x;y\na;0;1\n", ""),
        "losses.l: conf/l.csv: has no commas between its cells, but ';': write commas there, and "
        "2.5 for '2,5'",
    ),
    ("l.csv", "action\na\n", "", "losses.l: conf/l.csv: has no commas between its cells"),
    ("l.csv", "", "", "losses.l.costs: conf/l.csv: needs at least 2 entries, has 0"),
    (
        "l.csv",
        "action,x,y\na,0,1\nb,1,0\n",
        ", actions: [b, a]",
        "losses.l.actions: differ from those in conf/l.csv; leave them out here",
    ),
    (
        "l.csv",
        "0,1\n1,0\n",
        ", action: [b]",
        "losses.l.action: unknown key; did you mean 'actions'?",
    ),
]


@pytest.mark.parametrize(("file", "text", "entry", "problem"), LOSS_FILE_PROBLEMS)
def test_loss_file_problems(in_file: Load, file: str, text: str, entry: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        in_file(file, text, entry=entry)
    assert str(refused.value) == f"conf/x.yaml: 1 problem\n  {problem}"


def test_headers_must_agree_with_the_classes(in_file: Load) -> None:
    with pytest.raises(UsageError) as refused:
        in_file("l.csv", "action,sick,well\na,0,1\nb,1,0\n", "input.classes=[well, sick]")
    assert str(refused.value).splitlines()[1:] == [
        "  losses.l: conf/l.csv: has the classes sick, well, but input.classes has well, sick"
    ]


SWAPPED = (
    "the columns are p_low, p_high, but {} has the classes high, low: put them in the same order"
)


def test_columns_named_after_classes_must_be_in_their_order() -> None:
    tree: dict[str, Any] = {
        "input": {
            "table": "t",
            "id": "i",
            "label": "y",
            "model_1": ["p_low", "p_high"],
            "model_2": {"table": "u", "columns": ["low", "HIGH"]},
        },
        "losses": {"l": {"costs": [[0, 1], [1, 0]]}},
        "reconcile": {"alpha": 0.1, "eta": 0.1},
        "output": {"table": "o"},
    }
    for classes in (["low", "high"], ["no", "yes"]):
        tree["input"]["classes"] = classes
        config_from_tree(tree)
    tree["input"]["classes"] = ["high", "low"]
    with pytest.raises(UsageError) as refused:
        config_from_tree(tree)
    assert f"input.model_1: {SWAPPED.format('input.classes')}" in str(refused.value)
    assert "input.model_2: the columns are low, HIGH, but" in str(refused.value)


def test_columns_named_after_the_classes_of_the_costs(tmp_path: Path) -> None:
    (costs := tmp_path / "l.csv").write_text("action,high,low\na,0,1\nb,1,0\n", encoding="utf-8")
    tree = {
        "input": {
            "table": "t",
            "label": "y",
            "model_1": ["p_low", "p_high"],
            "model_2": ["q1", "q2"],
        },
        "losses": {"l": {"file": str(costs)}},
        "reconcile": {"alpha": 0.1, "eta": 0.1},
        "output": {"table": "o"},
    }
    with pytest.raises(UsageError) as refused:
        config_from_tree(tree)
    assert f"1 problem\n  input.model_1: {SWAPPED.format(costs)}" in str(refused.value)


def test_headers_must_agree_with_each_other(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("action,sick,well\na,0,1\nb,1,0\n")
    (tmp_path / "b.csv").write_text("action,well,sick\na,0,1\nb,1,0\n")
    message = refuse("losses={a: {file: a.csv}, b: {file: b.csv}}")
    assert message.splitlines()[1:] == [
        "  losses.b: b.csv: has the classes well, sick, but a.csv has sick, well"
    ]


def test_a_missing_loss_file(refuse: Refuse, tmp_path: Path) -> None:
    where = f"looked for {tmp_path}/{{}} (-C DIR starts in another folder)"
    assert refuse("losses={b: {file: b.csv}}") == (
        f"x.yaml: 1 problem\n  losses.b: b.csv: no such file; {where.format('b.csv')}"
    )
    assert refuse("losses=all.yaml") == (
        f"x.yaml: 1 problem\n  losses: all.yaml: no such file; {where.format('all.yaml')}"
    )
    absolute = tmp_path / "b.csv"
    assert refuse(f"losses={{b: {{file: {absolute}}}}}") == (
        f"x.yaml: 1 problem\n  losses.b: {absolute}: no such file"
    )
    assert refuse("losses=all.csv") == (
        "x.yaml: 1 problem\n  losses: all.csv: must be a .yaml or .yml file"
    )


def test_a_loss_file_beside_the_config_file(load: Load, tmp_path: Path) -> None:
    """It was meant once. Now all paths start at the working folder, and no one is taken for it."""
    load()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "l.csv").write_text("0,1\n1,0\n")
    (tmp_path / "conf" / "x.yaml").write_text(GOOD)

    def of(file: str) -> Config:
        return load_config("conf/x.yaml", [f"losses={{l: {{file: {file}}}}}"])

    with pytest.raises(UsageError) as refused:
        of("l.csv")
    assert str(refused.value) == (
        f"conf/x.yaml: 1 problem\n  losses.l: l.csv: no such file; looked for {tmp_path}/l.csv "
        "(-C DIR starts in another folder); it is beside the config file: write conf/l.csv"
    )
    assert of("conf/l.csv").losses["l"].costs == ((0.0, 1.0), (1.0, 0.0))
    (tmp_path / "l.csv").write_text("0,2\n1,0\n")
    with pytest.raises(UsageError) as refused:
        of("l.csv")
    assert str(refused.value) == (
        "conf/x.yaml: 1 problem\n  losses.l: l.csv: two files have this name and differ: write "
        "./l.csv for the one in the working folder, or conf/l.csv for the one beside the config "
        "file"
    )
    assert of("./l.csv").losses["l"].costs == ((0.0, 2.0), (1.0, 0.0))
    assert of("conf/l.csv").losses["l"].costs == ((0.0, 1.0), (1.0, 0.0))
    (tmp_path / "conf" / "l.csv").write_text("0,2\n1,0\n")
    assert of("l.csv").losses["l"].costs == ((0.0, 2.0), (1.0, 0.0))


# --- conf/ ----------------------------------------------------------------------------------------

SECTIONS = {
    name: part
    for name, part in vars(models).items()
    if isinstance(part, type) and issubclass(part, Section) and part.__module__ == models.__name__
}


def test_the_reference_loads() -> None:
    load_config(CONF / "reference.yaml")


def test_the_reference_has_every_key_with_its_comment() -> None:
    text = (CONF / "reference.yaml").read_text()
    for name, section in SECTIONS.items():
        for key, field in zip(section.keys(), section.model_fields.values(), strict=True):
            described = f".*# .*{re.escape(field.description or '')}" if name != "Config" else ""
            assert re.search(rf"^[# ]*{key}:{described}", text, re.MULTILINE), f"{name}.{key}"


def test_the_reference_shows_the_defaults() -> None:
    tree = yaml.safe_load((CONF / "reference.yaml").read_text())
    examples = {
        "id",
        "model_1",
        "model_2",
        "classes",
        "split",
        "alpha",
        "eta",
    }  # marked as such in the file
    for name in SECTIONS["Config"].model_fields.keys() - {"losses"}:
        section: Any = Config.model_fields[name].annotation
        assert issubclass(section, Section)
        fields = dict(zip(section.keys(), section.model_fields.values(), strict=True))
        assert list(tree[name]) == list(fields), name
        for key, field in fields.items():
            if not field.is_required() and key not in examples:
                assert tree[name][key] == field.default, f"{name}.{key}"


def test_the_schema_is_up_to_date() -> None:
    command = (
        "python -c 'from redcal_spark.config.schema import json_schema; "
        'print(json_schema(), end="")\''
        " > conf/schema.json"
    )
    assert (CONF / "schema.json").read_text() == json_schema(), f"run: {command}"


def test_the_schema_has_every_key() -> None:
    schema = json.loads((CONF / "schema.json").read_text())
    for name, section in SECTIONS.items():
        part = schema if name == "Config" else schema["$defs"][name]
        assert list(part["properties"]) == section.keys()
        assert part["additionalProperties"] is False


def test_config_files_name_the_schema() -> None:
    for file in CONF.glob("*.yaml"):
        text = file.read_text()
        if "\nreconcile:" in text:  # else it is a file of losses
            assert "# yaml-language-server: $schema=schema.json\n" in text, file.name


def test_the_schema_takes_and_refuses_what_we_do(load: Load) -> None:
    schema = json.loads((CONF / "schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    validator.validate(yaml.safe_load((CONF / "reference.yaml").read_text()))
    validator.validate(load().recorded())
    wrong = yaml.safe_load(GOOD)
    wrong["reconcile"]["eat"] = 0.1
    assert not validator.is_valid(wrong)
