"""Decisions as pure functions: stdlib only, no clock, no I/O, no logging."""
