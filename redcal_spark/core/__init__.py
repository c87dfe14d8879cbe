"""What may run on a Spark worker: the arithmetic over rows. numpy and pyarrow only."""
