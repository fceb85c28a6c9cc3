"""What happened, as typed events: logs, metrics and tests subscribe to the same ones."""
