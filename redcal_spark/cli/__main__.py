"""`python -m redcal_spark.cli` is `redcal`."""

import sys

from redcal_spark.cli.entry import main

sys.exit(main())
