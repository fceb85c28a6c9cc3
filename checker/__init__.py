"""The independent judge: says what should have run, and imports nothing from ``src/``."""
