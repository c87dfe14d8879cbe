"""The Spark backend: classic, Connect and serverless alike. Only here is pyspark imported."""
