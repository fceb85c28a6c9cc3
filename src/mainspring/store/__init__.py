"""Postgres: the only package that knows SQL or the driver."""
