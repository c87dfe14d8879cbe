"""Hostile input: configurations, models and tables that nobody would write on purpose.

`python -m tests.fuzz --cases 20000 --seed 1` runs them; test_fuzz.py runs a few of them in CI.
"""
