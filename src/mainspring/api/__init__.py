"""The REST API: one front door to the ledger, for programs and pages alike."""
