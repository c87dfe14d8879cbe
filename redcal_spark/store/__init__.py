"""Stores: where tables are read from and written to. What one writes the other reads."""
