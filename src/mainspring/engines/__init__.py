"""Trigger engines: each is a candidate source and a rhythm. None holds a transaction, computes cron or writes a row."""
