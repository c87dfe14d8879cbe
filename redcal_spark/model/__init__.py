"""The public objects: Reconciler and ReconciledPair, and what they tell."""
