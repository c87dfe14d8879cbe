"""The command line from end to end: tables in, tables out, no JVM."""
