"""`redcal export --format sql`: a model as one SELECT from the configuration's own table."""

from __future__ import annotations

from redcal_spark.backends.names import is_catalog_name
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.errors import UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.sql import to_sql
from redcal_spark.runs.job import Job

SPARK = {"delta": "delta.`{}`", "parquet": "parquet.`{}`"}
DUCKDB = {"delta": "delta_scan('{}')", "parquet": "read_parquet('{}')"}


def select_of(job: Job, pair: ReconciledPair, dialect: str | None, table: str | None) -> str:
    """The SELECT; it carries the columns that the job's own rows would have."""
    dialect = dialect or "spark"
    existing = job.input.schema.names
    output = job.config.output
    carried = tuple(name for name in existing if output.columns is None or name in output.columns)
    names = OutputNames(pair.columns, pair.losses, output.suffix, carried=carried)
    names.check(existing, True, job.input.name)
    return to_sql(pair, table or _source(job, dialect), dialect, names)


def _source(job: Job, dialect: str) -> str:
    """The input's table as a dialect writes it, by its name in the configuration."""
    name = str(job.config.recorded()["input"]["table"])
    kind = str(job.input.identity().get("kind"))
    if kind != "join" and is_catalog_name(name):
        return name
    forms = {"spark": SPARK, "duckdb": DUCKDB}.get(dialect, {})
    mark = "`" if dialect == "spark" else "'"
    if kind not in forms:
        what = "joined of several tables" if kind == "join" else f"{name} ({kind})"
        raise UsageError(
            f"export --format sql: the input is {what}, which {dialect} cannot name as a table; "
            "say with --table what stands behind FROM: a table with the columns "
            f"{', '.join(job.problem.columns.names(label=False))}"
        )
    return forms[kind].format(name.replace(mark, 2 * mark))
