"""What keeps the ledger in motion: heartbeats, the guardian, partitions."""
