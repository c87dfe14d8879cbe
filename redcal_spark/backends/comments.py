"""Comments: what tables and their columns are, for those who find them in a catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from redcal_spark.backends.target import RUN_ID
from redcal_spark.core.output_columns import OutputNames

KEY = b"redcal_comments"  # of an Arrow schema; no table stores it


@dataclass(frozen=True)
class Comments:
    """Of a table and of its columns, by name."""

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    def on(self, schema: pa.Schema) -> pa.Schema:
        """The schema, with these comments for whoever makes a table of it."""
        return schema.with_metadata({KEY: json.dumps([self.table, dict(self.columns)]).encode()})

    @classmethod
    def of(cls, schema: pa.Schema) -> Comments:
        """What `on` left in a schema."""
        said = (schema.metadata or {}).get(KEY)
        return cls() if said is None else cls(*json.loads(said))


UNSAID = Comments()


def schema_of(table: str, columns: Sequence[tuple[str, pa.DataType, str]]) -> pa.Schema:
    """A schema from names, types and comments, which whoever makes a table of it may show."""
    said = Comments(table, {name: comment for name, _, comment in columns})
    return said.on(pa.schema([(name, kind) for name, kind, _ in columns]))


def of_rows(names: OutputNames) -> Comments:
    """Of the table of reconciled rows: the new columns; the input's speak for themselves."""
    columns = {RUN_ID: "the run that added the row"}
    models = dict(enumerate(names.columns.shown, 1))
    for model, called in models.items():
        for name in names.of_model(model):
            columns[name] = f"scores of {called}, reconciled"
        for name in names.normalised(model):
            columns[name] = f"reconciled scores of {called}, divided by their sum"
    for loss in names.losses.losses:
        for model, called in models.items():
            for when in ("before", "after"):
                columns[names.action(loss.name, model, when)] = (
                    f"action of {called} {when} reconciliation, under the loss {loss.name}"
                )
        columns[names.agree(loss.name)] = (
            f"whether all models now lead to the same action, under the loss {loss.name}"
        )
    columns[names.touched] = "whether a patch changed the scores of this row"
    columns[names.split] = "what the row was used for: fit, holdout or none; null: not known"
    columns[names.valid] = "false: scores that cannot be used, the row was passed through"
    return Comments("Rows with scores of several models, reconciled by redcal", columns)
