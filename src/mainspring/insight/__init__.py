"""Questions to schedule and ledger, read-only."""
