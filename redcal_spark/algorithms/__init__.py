"""The algorithms of the paper: short loops over an engine, with no arithmetic over rows."""
