"""What a configuration may say: one frozen pydantic model per section.

`config.load` reads one from a file. Relative paths start at the working folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from redcal_spark.config.addresses import SCHEMES, scheme_of
from redcal_spark.config.input import Input
from redcal_spark.config.redaction import Redaction
from redcal_spark.config.rules import (
    missing_keys,
    mixed_up_classes,
    repeats,
    shared_tables,
    single_files,
    unequal_sizes,
    unknown_tie,
)
from redcal_spark.config.section import KeyPath, Refusal, Section, as_list, as_mapping
from redcal_spark.config.storage import StorageOptions
from redcal_spark.config.tables import SIDE_TABLES, OutputTables, sibling
from redcal_spark.config.values import (
    AutoOrShare,
    AutoOrWhole,
    Count,
    Flag,
    Fraction,
    GridBits,
    Number,
    Seconds,
    Share,
    Text,
    Whole,
)
from redcal_spark.settings import MAX_CLASSES, TUNE_ROWS, only_redcal_tunes


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
    eta: AutoOrShare | None = Field(
        default=None,
        description="smallest share of rows that matters: in (0, 1], or auto to choose it",
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
    tune_rows: Count = Field(
        default=TUNE_ROWS, description="active rows that `eta: auto` looks at, at most"
    )
    guard: Literal["off", "report", "best_prefix"] = Field(
        default="report",
        description="if holdout loss rises: off, report, or best_prefix to drop what raised it",
    )

    delta: Fraction = Field(
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
        if data.get("eta") == "auto" and algorithm in ("reconcile", "decision_calibration"):
            yield ("eta",), f"auto is {only_redcal_tunes(algorithm)}"


class Mlflow(Section):
    """Where `run` logs to MLflow; the server is MLFLOW_TRACKING_URI's, as MLflow has it."""

    experiment: Text = Field(description="name of the experiment; it is made if need be")
    registered_model: Text | None = Field(
        default=None,
        description="register the model by this name (three parts: Unity Catalog); null: do not",
    )


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
        description="HTML file that `run` writes; auto: <table>_report.html for a path; null: none",
    )
    mlflow: Mlflow | None = Field(
        default=None, description="log runs and register models in MLflow; null: do not"
    )
    checkpoint: Text | None = Field(
        default=None,
        description="path of the offset of a stream; null: <table>_checkpoint, for paths",
    )
    suffix: Text = Field(
        default="_reconciled", description="added to the names of new score columns"
    )
    normalise: Flag = Field(
        default=False, description="add scores divided by their sum, so that they sum to 1"
    )
    tie: Text | None = Field(
        default="off",
        description="add <loss>_decision: the agreed action, else that of a model (model_1 or its "
        "name), the cheaper one, or null; off: none",
    )
    mode: Literal["overwrite", "merge", "append"] = Field(
        default="overwrite",
        description="rows as a new version, merge on input.id, or append with a run_id",
    )
    columns: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="input columns that are carried into the table; null: all"
    )
    rows: Literal["all", "touched"] = Field(
        default="all", description="all rows, or touched: only those that a patch acted on"
    )
    writer: Literal["spark", "direct"] = Field(
        default="spark",
        description="on Spark: spark, or direct for tasks that write Parquet files themselves",
    )
    partition_by: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="columns that partition a new table; null: none"
    )
    cluster_by: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="columns that cluster a new table, on Spark; null: none"
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
        if isinstance(report, str) and "://" in report and scheme_of(report) is None:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            yield ("report",), f"must be a file of this machine, or at {known}"
        yield from repeats("columns", data.get("columns"))
        yield from repeats("partition_by", data.get("partition_by"))
        yield from repeats("cluster_by", data.get("cluster_by"))
        if data.get("cluster_by") is not None:
            if data.get("partition_by") is not None:
                yield ("cluster_by",), "a table is partitioned or clustered, not both"
            elif data.get("mode") == "append":
                text = "mode: append partitions by run_id; a table is partitioned or clustered"
                yield ("cluster_by",), f"{text}, not both"
        if data.get("writer") == "direct":
            if data.get("mode") == "merge":
                yield ("writer",), "direct writes in mode overwrite or append; Spark alone merges"
            if data.get("cluster_by") is not None:
                yield ("writer",), "direct writes no clustered tables; leave out cluster_by"

    @property
    def tables(self) -> OutputTables:
        """The tables' names, defaults filled in."""
        given = (self.patches, self.history, self.metrics, self.runs)
        sides = (
            name or sibling(self.table, kind) for name, kind in zip(given, SIDE_TABLES, strict=True)
        )
        return OutputTables(self.table, *sides)


Read = Literal["auto", "direct", "spark"]


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
        description="path or schema that every Spark worker can reach; null: local sessions only",
    )
    lease: Seconds = Field(
        default=600, description="seconds without a heartbeat after which a lease expires"
    )
    driver_budget: AutoOrWhole = Field(
        default="auto",
        description="bytes of active rows that Spark's driver takes over; "
        "auto: a quarter of its free memory; 0: none",
    )
    read: Read = Field(
        default="auto",
        description="who reads files on Spark: direct (tasks), spark, or auto: tasks if they can",
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
    storage_options: StorageOptions = StorageOptions()
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

        Losses from files are included, storage options are not. `config.load.config_from_tree`
        makes a config of it again.
        """
        tree: dict[str, Any] = self.model_dump(mode="json", exclude={"storage_options"})
        for path, text in self._written.items():
            if path[0] == "storage_options":
                continue
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
        yield from missing_keys(data)
        yield from unknown_tie(data)
        yield from unequal_sizes(data)
        given = as_mapping(data.get("input"))
        yield from mixed_up_classes(given, given.get("classes"), "input.classes")
        yield from shared_tables(data)
        yield from single_files(data)


def json_schema() -> str:
    """The text of conf/schema.json, by which editors complete and check config files."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
    }
    return json.dumps(schema, indent=2) + "\n"
