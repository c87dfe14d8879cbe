"""What a configuration may say: one frozen pydantic model per section.

`config_file.load_config` reads one from a file. Relative paths start at the working folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, PrivateAttr

from redcal_spark.config.redaction import Redaction
from redcal_spark.config.section import (
    MAX_CLASSES,
    MODELS,
    SIDE_TABLES,
    AnyText,
    AutoOrShare,
    Cell,
    ColumnNames,
    Count,
    Flag,
    Fraction,
    GridBits,
    KeyPath,
    Number,
    Portion,
    Refusal,
    Seconds,
    Section,
    Separator,
    Share,
    Text,
    TextOrList,
    Version,
    Whole,
    as_list,
    as_mapping,
    check_columns,
    place_of,
    problem,
    repeats,
    shared_tables,
    shortest,
    sibling,
    unequal_sizes,
    wrong,
)


class ScoreTable(Section):
    """Scores in a table of their own, joined to the rows on the id."""

    table: Text = Field(description="path or catalog name of the scores")
    version: Version | None = Field(
        default=None, description="version or time of it; null: the newest"
    )
    id: Text | None = Field(default=None, description="its id column; null: as input.id")
    columns: ColumnNames = Field(
        description="one column (an array, or P(class 1)), or one per class"
    )

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        yield from repeats("columns", data.get("columns"))


class SplitByColumn(Section):
    """Fit and holdout rows, by the value of a column."""

    column: Text = Field(description="the column that says which rows to fit and which to hold out")
    fit: Cell = Field(description="its value on rows to fit on")
    holdout: Cell = Field(description="its value on holdout rows")

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        if "fit" in data and "holdout" in data and data["fit"] == data["holdout"]:
            yield ("holdout",), "is the same as fit"


class SplitByHash(Section):
    """A fraction of the rows is held out, chosen by a hash of the id."""

    holdout_fraction: Fraction = Field(description="share of holdout rows, in (0, 1)")
    salt: AnyText = Field(default="", description="change it for another draw")


def _scores(value: object) -> tuple[str, ...] | ScoreTable:
    if isinstance(value, Mapping | ScoreTable):
        return ScoreTable.model_validate(value)
    if not isinstance(value, str | list | tuple):
        raise wrong("must be a column, a list of columns, or a mapping with table and columns")
    return check_columns(value)


def _scores_as_written(scores: tuple[str, ...] | ScoreTable) -> object:
    return scores.model_dump(mode="json") if isinstance(scores, ScoreTable) else shortest(scores)


def _split(value: object) -> SplitByColumn | SplitByHash:
    if isinstance(value, SplitByColumn | SplitByHash):
        return value
    if not isinstance(value, Mapping):
        raise wrong("must be a mapping: column, fit and holdout, or holdout_fraction")
    by_column = not value.keys().isdisjoint(SplitByColumn.model_fields)
    if by_column and "holdout_fraction" in value:
        raise problem("give column, fit and holdout, or holdout_fraction, but not both")
    form = SplitByColumn if by_column else SplitByHash
    return form.model_validate(value)


Scores = Annotated[
    tuple[str, ...] | ScoreTable,
    PlainValidator(_scores, json_schema_input_type=TextOrList | ScoreTable),
    PlainSerializer(_scores_as_written),
]
Split = Annotated[
    SplitByColumn | SplitByHash,
    PlainValidator(_split, json_schema_input_type=SplitByColumn | SplitByHash),
    PlainSerializer(lambda split: split.model_dump(mode="json")),
]


class Input(Section):
    """The labelled rows and the scores of both models."""

    table: Text = Field(description="path (Delta, Parquet or CSV) or catalog name of the rows")
    version: Version | None = Field(
        default=None, description="Delta version or time, UTC by default; null: the newest"
    )
    id: Text | None = Field(
        default=None, description="column that identifies a row; needed to join and hash"
    )
    label: Text = Field(description="the outcome: class index, class name, 0/1, or an array")
    model_1: Scores = Field(
        description="scores of the first model: a column, one per class, or a table"
    )
    model_2: Scores = Field(description="scores of the second model, in any of the same forms")
    join: Literal["error", "inner"] = Field(
        default="error",
        description="ids missing on one side or given twice: error, or inner to drop them",
    )
    classes: Annotated[tuple[Text, ...], Field(min_length=2, max_length=MAX_CLASSES)] | None = (
        Field(default=None, description="names of the classes, in order; labels may then be names")
    )
    on_bad_rows: Literal["error", "skip"] = Field(
        default="error", description="rows that cannot be used: error, or skip to pass them through"
    )
    separator: Separator = Field(
        default=",", description="what separates the columns of a CSV file"
    )
    split: Split | None = Field(
        default=None, description="rows to fit on and holdout rows; null: the same"
    )

    def score_columns(self, model: int) -> tuple[str, ...]:
        """The score columns of model 1 or 2: one (an array, or P(class 1)), or one per class."""
        scores = self._scores(model)
        return scores.columns if isinstance(scores, ScoreTable) else scores

    def score_table(self, model: int) -> ScoreTable | None:
        """The table to join for model 1 or 2, or None when its scores are in `table` itself."""
        scores = self._scores(model)
        return scores if isinstance(scores, ScoreTable) else None

    def _scores(self, model: int) -> tuple[str, ...] | ScoreTable:
        return {1: self.model_1, 2: self.model_2}[model]

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        reasons = [f"to join {key}" for key in MODELS if as_mapping(data.get(key))]
        if "holdout_fraction" in as_mapping(data.get("split")):
            reasons.append("to split by holdout_fraction")
        if reasons and data.get("id") is None:
            yield ("id",), f"is required {' and '.join(reasons)}"
        yield from repeats("classes", data.get("classes"))
        found = []
        for key in MODELS:
            scores = data.get(key)
            yield from repeats(key, scores)
            if isinstance(scores, Mapping):
                source, columns = scores, scores.get("columns")
            else:
                source, columns = data, scores
                if data.get("label") is not None and data["label"] in (columns, *as_list(columns)):
                    yield ("label",), f"is a score column of {key}"
            found.append(
                (place_of(source.get("table")), source.get("version"), as_list(columns) or columns)
            )
        if data.get("model_1") is not None and found[0] == found[1]:
            yield ("model_2",), "is the same as model_1; two different models are needed"


class LossSection(Section):
    """What each action (row) costs under each class (column)."""

    actions: tuple[Text, ...] | None = Field(
        default=None, description="names of the actions, in order"
    )
    costs: Annotated[
        tuple[Annotated[tuple[Number, ...], Field(min_length=2, max_length=MAX_CLASSES)], ...],
        Field(min_length=2),
    ] = Field(description="a row per action, a number per class")

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        rows = as_list(data.get("costs"))
        lengths = [len(row) if isinstance(row, list | tuple) else None for row in rows]
        for index, length in enumerate(lengths):
            if length is not None and lengths[0] is not None and length != lengths[0]:
                text = f"must have {lengths[0]} numbers, as the first row, has {length}"
                yield ("costs", index), text
        actions = data.get("actions")
        if rows and isinstance(actions, list | tuple) and len(actions) != len(rows):
            text = f"must have {len(rows)} names, one per row of costs, has {len(actions)}"
            yield ("actions",), text
        yield from repeats("actions", actions)


class LossFile(Section):
    """A loss kept in a file of its own; loading replaces it by the `LossSection` in the file."""

    file: Text = Field(
        description="a .yaml or .csv file; relative to the working folder, as all paths"
    )
    actions: tuple[Text, ...] | None = Field(
        default=None, description="names of the actions, in order"
    )


class Reconcile(Section):
    """The algorithm and its parameters; they mean exactly the decimals written."""

    algorithm: Literal["redcal", "decision_calibration", "reconcile", "dc_then_redcal"] = Field(
        default="redcal", description="redcal, decision_calibration, reconcile or dc_then_redcal"
    )
    alpha: Share | None = Field(
        default=None, description="smallest difference in loss that matters, in (0, 1]"
    )
    eta: Share | None = Field(
        default=None, description="smallest share of rows that matters, in (0, 1]"
    )
    beta: AutoOrShare = Field(
        default="auto", description="calibration tolerance: auto, or in (0, 1]"
    )
    adaptive_beta: Flag = Field(
        default=False, description="loosen beta with the gain of each round"
    )
    grid_bits: GridBits | None = Field(
        default=None, description="patch grid 2^-bits, 1 to 26; null: by theory"
    )
    max_rounds: Whole = Field(default=10_000, description="stop after this many rounds")
    max_steps: Whole = Field(default=1_000_000, description="stop after this many patches")
    guard: Literal["off", "report", "best_prefix"] = Field(
        default="report",
        description="if holdout loss rises: off, report it, or best_prefix to keep what did good",
    )

    delta: Portion = Field(
        default=0.05,
        description="probability that any statement about holdout rows is false, in (0, 1)",
    )

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        algorithm = data.get("algorithm", "redcal")
        if algorithm in ("redcal", "reconcile", "dc_then_redcal"):
            for key in ("alpha", "eta"):
                if data.get(key) is None:
                    yield (key,), f"is required for {algorithm}"


class OutputTables(NamedTuple):
    """Where everything is written."""

    table: str
    patches: str
    history: str
    metrics: str
    runs: str


class Output(Section):
    """Where the results go."""

    table: Text = Field(description="path or catalog name of the reconciled rows")
    patches: Text | None = Field(default=None, description="the patch log; null: <table>_patches")
    history: Text | None = Field(
        default=None, description="metrics by round; null: <table>_history"
    )
    metrics: Text | None = Field(
        default=None, description="numbers for dashboards; null: <table>_metrics"
    )
    runs: Text | None = Field(
        default=None, description="the ledger, a row per run; null: <table>_runs"
    )
    report: Text | None = Field(
        default="auto",
        description="HTML file that `run` writes; auto: <table>_report.html by a path; null: none",
    )
    checkpoint: Text | None = Field(
        default=None, description="path: how far a stream is; null: <table>_checkpoint, for paths"
    )
    suffix: Text = Field(
        default="_reconciled", description="added to the names of new score columns"
    )
    normalise: Flag = Field(
        default=False, description="add scores divided by their sum, which need not be 1"
    )
    mode: Literal["overwrite", "merge", "append"] = Field(
        default="overwrite",
        description="rows as a new version, merge on input.id, or append with a run_id",
    )
    partition_by: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="columns that part a new table into folders; null: none"
    )
    cluster_by: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="columns that a new table is clustered by, on Spark; null: none"
    )
    # Pydantic's own models have a `schema`; users and records know the alias only.
    schema_: Literal["error", "evolve"] = Field(
        default="error",
        alias="schema",
        description="a table with other columns or types: error, or evolve to change it",
    )

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        report = data.get("report")
        if isinstance(report, str) and "://" in report:
            yield ("report",), "must be a file on this machine, not an address"
        yield from repeats("partition_by", data.get("partition_by"))
        yield from repeats("cluster_by", data.get("cluster_by"))
        if data.get("cluster_by") is not None:
            if data.get("partition_by") is not None:
                yield ("cluster_by",), "a table is partitioned or clustered, not both"
            elif data.get("mode") == "append":
                text = "mode: append partitions by run_id; a table is partitioned or clustered"
                yield ("cluster_by",), f"{text}, not both"

    @property
    def tables(self) -> OutputTables:
        """The tables' names, defaults filled in."""
        given = (self.patches, self.history, self.metrics, self.runs)
        sides = (
            name or sibling(self.table, kind) for name, kind in zip(given, SIDE_TABLES, strict=True)
        )
        return OutputTables(self.table, *sides)


class EngineSection(Section):
    """What computes."""

    name: Literal["auto", "local", "spark"] = Field(
        default="auto", description="auto, local or spark"
    )
    threads: Count | None = Field(
        default=None, description="threads of the local engine; null: all cores"
    )
    scratch: Text | None = Field(
        default=None,
        description="path or schema that every Spark worker sees; null: a local session's own",
    )
    lease: Seconds = Field(
        default=600, description="seconds after which a silent run is taken for dead"
    )
    driver_budget: Whole = Field(
        default=2**28, description="bytes of active rows that Spark's driver takes over; 0: never"
    )


class Config(Section):
    """A whole configuration."""

    # The fields hold resolved values, perhaps secrets: log and store `recorded()`, not them.

    input: Input
    losses: Annotated[
        dict[Text, LossSection],
        # The schema knows the forms that exist in a file only; loading has replaced them.
        BeforeValidator(
            lambda losses: {} if losses is None else losses,
            json_schema_input_type=Text | dict[str, LossSection | LossFile] | None,
        ),
    ] = Field(
        default={}, description="what decisions cost: a loss by name, in the order that breaks ties"
    )
    reconcile: Reconcile
    output: Output
    engine: EngineSection = EngineSection()
    _written: dict[KeyPath, str] = PrivateAttr(default_factory=dict)
    _hidden: Redaction = PrivateAttr(default_factory=Redaction)

    def model_post_init(self, context: Any, /) -> None:
        """Keep, from the validation context, the texts as written that had variables in them."""
        self._written.update(context or {})

    @property
    def hidden(self) -> Redaction:
        """What must not be shown or stored: the values that `${NAME}` stood for."""
        return self._hidden

    def recorded(self) -> dict[str, Any]:
        """The configuration as plain data for the ledger: defaults filled in, `${NAME}` unresolved.

        Losses from files are included. `config_file.config_from_tree` makes a config of it again.
        """
        tree: dict[str, Any] = self.model_dump(mode="json")
        for path, text in self._written.items():
            place: Any = tree
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = text
        output = tree["output"]
        for kind in SIDE_TABLES:
            # `${ROOT}` may end in a slash: then `${ROOT}_runs` would name another table.
            if output[kind] is None and not output["table"].endswith("}"):
                output[kind] = sibling(output["table"], kind)
        return tree

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from self.recorded().items()

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        algorithm = as_mapping(data.get("reconcile")).get("algorithm", "redcal")
        needed = algorithm in ("redcal", "decision_calibration", "dc_then_redcal")
        if needed and not data.get("losses"):
            yield ("losses",), f"is required for {algorithm}"
        merges = as_mapping(data.get("output")).get("mode") == "merge"
        if merges and as_mapping(data.get("input")).get("id") is None:
            yield ("input", "id"), "is required for output.mode: merge"
        guard = as_mapping(data.get("reconcile")).get("guard")
        if guard == "best_prefix" and as_mapping(data.get("input")).get("split") is None:
            yield ("reconcile", "guard"), "best_prefix needs holdout rows: set input.split"
        yield from unequal_sizes(data)
        yield from shared_tables(data)


def json_schema() -> str:
    """The text of conf/schema.json, by which editors complete and check config files."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
    }
    return json.dumps(schema, indent=2) + "\n"
