"""The embedded backend: this machine, delta-rs and pyarrow, no JVM."""
