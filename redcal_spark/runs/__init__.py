"""What a scheduled job needs: fingerprint, ledger, claims, resume, evaluate."""
