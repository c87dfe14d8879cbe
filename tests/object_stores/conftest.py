"""Every test has a folder of its own in the bucket, and commands that know where the server is."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.object_stores import for_delta
from tests.e2e.work import Work, scores
from tests.object_store import ObjectStore


class Lake(Work):
    """The configuration of `Work`, its tables at addresses below `root`."""

    def __init__(
        self, store: ObjectStore, root: str, folder: Path, capsys: pytest.CaptureFixture[str]
    ):
        super().__init__(folder, capsys)
        self.store, self.root = store, root
        self.tree["input"]["table"] = self.at("scores")
        self.tree["output"]["table"] = self.at("out/rows")
        self.tree["storage_options"] = dict(store.options)

    def at(self, name: str, scheme: str = "s3") -> str:
        return self.store.address(f"{self.root}/{name}", scheme)

    def options(self) -> dict[str, str]:
        return for_delta(self.at(""), self.store.options)

    def put_delta(self, table: pa.Table, name: str = "scores") -> None:
        write_deltalake(self.at(name), table, storage_options=self.options())

    def put_parquet(self, table: pa.Table, name: str) -> None:
        data = io.BytesIO()
        pq.write_table(table, data, compression="none", use_dictionary=False)
        self.store.put(f"{self.root}/{name}", data.getvalue())

    def put_csv(self, table: pa.Table, name: str) -> None:
        data = io.BytesIO()
        pyarrow.csv.write_csv(table, data)
        self.store.put(f"{self.root}/{name}", data.getvalue())

    def rows(self, name: str) -> pa.Table:
        """All rows of a Delta table, through pyarrow's file system."""
        opened = DeltaRsStore(self.store.options).open(self.at(name))
        return pa.Table.from_batches(opened.batches(), opened.schema)

    def names(self, below: str = "") -> list[str]:
        """The keys of objects, below the test's own folder."""
        start = f"{self.root}/"
        return [name[len(start) :] for name in self.store.names(f"{start}{below}")]


@pytest.fixture
def lake(
    object_store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Lake:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("redcal_spark.cli.open_job._in_spark", lambda: False)
    made = Lake(object_store, tmp_path.name, tmp_path, capsys)
    made.put_delta(scores())
    return made
