"""The report: one self-contained HTML page of a run."""
