"""Tasks that run in child processes, for tests that need the whole way there and back."""

import os
from typing import Any

import psycopg

from mainspring import Context, task


@task
def pay(ctx: Context, dsn: str, order: int) -> Any:
    """Write a row and complete the run in one transaction, from a warm child process."""
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO orders VALUES (%s)", (order,))
        ctx.complete_sync(connection, {"paid": order})


@task(last_success=True)
def since(ctx: Context) -> tuple[int | None, int]:
    """Return what the last run returned, and where this one runs."""
    last = ctx.last_success
    return None if last is None else last.result[1], os.getpid()
