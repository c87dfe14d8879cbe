"""The checkpoint of a stream: where it keeps how far it is, and what it belongs to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from redcal_spark.backends.names import Place
from redcal_spark.backends.spark.errors import message_of
from redcal_spark.backends.spark.tables import explained, unwritten
from redcal_spark.errors import RunError, UsageError


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What a checkpoint belongs to: one source, one model, one target. A line of JSON beside it.

    number: of the last one who took it over. feed: whether the source's change data feed is read; a
    stream cannot change that on its way.
    """

    stream: str  # its name
    source: str  # as in the configuration: what variables stand for is not kept
    source_id: str
    target: str
    target_id: str
    mode: str
    model: str
    model_name: str
    feed: bool
    begun_at: str
    number: int = 0


OWNER = ", ".join(
    f"{field.name} { {'bool': 'boolean', 'int': 'int'}.get(str(field.type), 'string') }"
    for field in fields(Owner)
)


class Checkpoint:
    """The folder of a checkpoint. owner: what it says of itself; None if it is new."""

    def __init__(self, spark: SparkSession, path: str):
        self.path = Place(path).absolute.name.rstrip("/")
        self._place = f"{self.path}/stream"
        self._spark = spark
        self.look()

    @property
    def state(self) -> str:
        """Where Spark keeps how far the stream is."""
        return f"{self.path}/state"

    def look(self) -> None:
        """Who owns it now."""
        self.owner: Owner | None = None
        try:
            rows = self._spark.read.schema(OWNER).json(self._place).collect()
        except PySparkException as err:
            if "PATH_NOT_FOUND" not in str(err):
                raise RunError(f"{self.path}: cannot be read: {message_of(err)}") from err
            return
        owners = [Owner(**row.asDict()) for row in rows]
        # of two that were new at the same time, both see the same one as the owner
        self.owner = max(owners, key=lambda owner: (owner.number, owner.stream), default=None)

    def put(self, owner: Owner) -> None:
        with explained(partial(unwritten, self._place)):
            line = self._spark.createDataFrame([asdict(owner)], OWNER).coalesce(1)
            line.write.mode("append").json(self._place)
        self.look()

    def check(self, ours: Owner) -> None:
        """Refuse a checkpoint of another source, target or mode; a model may be switched."""
        owner = self.owner
        if owner is None:
            return
        for what, theirs, wanted, same in (
            ("source", owner.source, ours.source, owner.source_id == ours.source_id),
            ("target", owner.target, ours.target, owner.target_id == ours.target_id),
            ("output.mode", owner.mode, ours.mode, owner.mode == ours.mode),
        ):
            if not same:
                raise UsageError(
                    f"output.checkpoint: {self.path} belongs to another {what}: {theirs}"
                    f"{' as it was then' if theirs == wanted else f', not {wanted}'} (begun "
                    f"{owner.begun_at}); name another checkpoint to start again"
                )
