"""The section `input`: labelled rows, the scores of the models, and which rows are held out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from redcal_spark.config.rules import MODELS, repeats, scores_in
from redcal_spark.config.section import Refusal, Section, as_list, as_mapping, dotted
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
from redcal_spark.settings import MAX_CLASSES, MAX_MODELS


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
    """The labelled rows and the scores of the models."""

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
    segments: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="columns whose values split the rows for measuring only"
    )
    model_1: Scores | None = Field(
        default=None, description="scores of the first model: a column, one per class, or a table"
    )
    model_2: Scores | None = Field(
        default=None, description="scores of the second model, in any of the same forms"
    )
    models: dict[Text, Scores] | None = Field(
        default=None,
        description="instead of both: 2 to 16 models by name, scores in any of the same forms",
    )
    missing_model: Literal["error", "skip_row"] = Field(
        default="error",
        description="rows without a model's scores: error, or skip_row to pass them through",
    )
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

    @property
    def n_models(self) -> int:
        return len(MODELS) if self.models is None else len(self.models)

    @property
    def model_names(self) -> tuple[str, ...] | None:
        """What users call the models, if they gave them names."""
        return None if self.models is None else tuple(self.models)

    def score_columns(self, model: int) -> tuple[str, ...]:
        """The score columns of a model: one (an array, or P(class 1)), or one per class."""
        scores = self._scores(model)
        return scores.columns if isinstance(scores, ScoreTable) else scores

    def score_table(self, model: int) -> ScoreTable | None:
        """The table to join for a model, or None when its scores are in `table` itself."""
        scores = self._scores(model)
        return scores if isinstance(scores, ScoreTable) else None

    def _scores(self, model: int) -> tuple[str, ...] | ScoreTable:
        given = (self.model_1, self.model_2) if self.models is None else (*self.models.values(),)
        scores = given[model - 1]
        assert scores is not None  # by the rules below
        return scores

    def with_scores(self, model: int, scores: ScoreTable) -> dict[str, Any]:
        """The change that gives a model other scores, for `model_copy`."""
        if self.models is None:
            return {MODELS[model - 1]: scores}
        names = list(self.models)
        return {"models": self.models | {names[model - 1]: scores}}

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Refusal]:
        given = scores_in(data)
        yield from _which_models(data)
        reasons = [f"to join {dotted(path)}" for path, scores in given if as_mapping(scores)]
        if "holdout_fraction" in as_mapping(data.get("split")):
            reasons.append("to split by holdout_fraction")
        if reasons and data.get("id") is None:
            yield ("id",), f"is required {' and '.join(reasons)}"
        yield from repeats("classes", data.get("classes"))
        yield from _weights(data)
        yield from repeats("segments", data.get("segments"))
        sources: list[Any] = []
        for path, scores in given:
            *within, key = path
            yield from repeats(str(key), scores, tuple(within))
            if isinstance(scores, Mapping):
                source, columns = scores, scores.get("columns")
            else:
                source, columns = data, scores
                if data.get("label") is not None and data["label"] in (columns, *as_list(columns)):
                    yield ("label",), f"is a score column of {dotted(path)}"
            known = as_list(columns) or columns
            own = (place_of(source.get("table")), source.get("version"), known)
            if scores is not None and own in sources:
                first = given[sources.index(own)][0]
                needed = "two different models are needed" if len(given) == 2 else "leave one out"
                yield path, f"is the same as {first[-1]}; {needed}"
            sources.append(own)


def _which_models(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """Two models by their keys, or any number by their names."""
    named = data.get("models")
    if named is None:
        for key in MODELS:
            if data.get(key) is None:
                yield (key,), "is required, or input.models with every model by its name"
        return
    for key in MODELS:
        if data.get(key) is not None:
            yield (key,), "input.models has every model by its name; leave this out"
    if isinstance(named, Mapping) and not 2 <= len(named) <= MAX_MODELS:
        yield ("models",), f"must have 2 to {MAX_MODELS} models, has {len(named)}"


def _weights(data: Mapping[str, Any]) -> Iterator[Refusal]:
    if data.get("weight") is None and data.get("weight_unit", 1) != 1:
        yield ("weight_unit",), "says nothing without weight"
    if data.get("weight") is not None and data["weight"] == data.get("label"):
        yield ("weight",), "is the same column as label"
