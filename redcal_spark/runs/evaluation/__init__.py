"""`redcal evaluate`: everything that a run wrote, recomputed and compared."""
