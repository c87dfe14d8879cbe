"""Where tables are and where rows are computed: an engine and a store make a backend."""
