"""What may be said of a fitted pair, with bounds, measurements and verdicts."""
