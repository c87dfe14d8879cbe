"""Engines: where blocks live. The algorithm and the kernel are the same on all of them."""
