"""Named queries, one file of SQL beside each module of the store."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def queries(stem: str) -> dict[str, str]:
    """Return the queries of ``sql/<stem>.sql`` by name. Each begins with ``-- name: <name>``."""
    text = resources.files("mainspring.store").joinpath("sql", f"{stem}.sql").read_text("utf-8")
    found: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        assert name not in found, f"{stem}.sql names {name} twice"
        found[name.strip()] = body.strip()
    return found
