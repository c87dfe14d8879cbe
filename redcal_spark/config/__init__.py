"""The configuration file: what may stand in it, and how it is read."""
