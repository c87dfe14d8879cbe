"""What can be had as a table: Arrow always, pandas where it is installed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from redcal_spark.errors import UsageError


class Tabular:
    """Something with rows and columns. polars, DuckDB and others read it through Arrow."""

    __slots__ = ()

    def to_arrow(self) -> pa.Table:
        """As an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """As a data frame of pandas."""
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as err:
            raise UsageError(
                "to_pandas needs pandas, which is not installed: pip install pandas; to_arrow() "
                "needs nothing more"
            ) from err

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
