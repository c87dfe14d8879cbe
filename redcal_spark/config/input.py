"""The section `input`: labelled rows, the scores of both models, and which rows are held out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from redcal_spark.config.rules import MODELS, repeats
from redcal_spark.config.section import Refusal, Section, as_list, as_mapping
from redcal_spark.config.tables import place_of
from redcal_spark.config.values import (
    AnyText,
    Cell,
    ColumnNames,
    Fraction,
    Positive,
    Separator,
    Text,
    TextOrList,
    Version,
    check_columns,
    problem,
    shortest,
    wrong,
)
from redcal_spark.settings import MAX_CLASSES


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
    weight: Text | None = Field(
        default=None, description="column of weights: a row of weight w counts as w rows"
    )
    weight_unit: Positive = Field(
        default=1.0, description="weights are whole multiples of it: 0.1 for 0.3 and 2.5"
    )
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
        if data.get("weight") is None and data.get("weight_unit", 1) != 1:
            yield ("weight_unit",), "says nothing without weight"
        if data.get("weight") is not None and data["weight"] == data.get("label"):
            yield ("weight",), "is the same column as label"
        sources = []
        for key in MODELS:
            scores = data.get(key)
            yield from repeats(key, scores)
            if isinstance(scores, Mapping):
                source, columns = scores, scores.get("columns")
            else:
                source, columns = data, scores
                if data.get("label") is not None and data["label"] in (columns, *as_list(columns)):
                    yield ("label",), f"is a score column of {key}"
            sources.append(
                (place_of(source.get("table")), source.get("version"), as_list(columns) or columns)
            )
        if data.get("model_1") is not None and sources[0] == sources[1]:
            yield ("model_2",), "is the same as model_1; two different models are needed"
