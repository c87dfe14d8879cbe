"""The benchmark: `make bench`, or `python -m tests.bench [--quick] [section or measurement ...]`.

All it tells are ratios of times taken in one run on one machine.
"""
