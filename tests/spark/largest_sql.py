"""The largest model as SQL, in a session whose driver has the memory that it takes."""

from __future__ import annotations

import sys

from redcal_spark.backends.spark.session import local_session
from tests import sql_cases
from tests.helpers import quietly
from tests.spark.test_sql_export import queried

MEMORY = "8g"  # Spark's analyzer runs out of the 1 GB that a driver has by default


def main(columns: bool) -> None:
    with quietly():
        pair, rows = sql_cases.largest_case(columns)
    spark = local_session(**{"master": "local[1]", "spark.driver.memory": MEMORY})
    try:
        sql_cases.same(queried(spark, pair, rows), pair, rows)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] == "columns")
