"""``mainspring migrate``: bring the schema of a database up to date."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from mainspring.cli import render
from mainspring.cli.client import output_option
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.general import on_database
from mainspring.cli.render import Rendered
from mainspring.insight.doctor import pending_at
from mainspring.roles import open_ledger
from mainspring.service import run


@click.command()
@click.option("--plan", is_flag=True, help="List what would be applied, and apply nothing.")
@database_options
@output_option()
@on_database
def migrate(*, plan: bool, dsn: str | None, data_dir: Path | None, output: str) -> None:
    """Apply the migrations that a database lacks, each in a transaction of its own. Nodes do so when they start.

    \b
    mainspring migrate --plan
    mainspring migrate --dsn postgresql://jobs@db/jobs
    """
    with ledger_at(dsn, data_dir) as where:
        missing = run(pending_at(where))
        if not plan:
            run(_apply(where))  # also if none is missing: it makes the partitions of the coming days
    done = "would be applied" if plan else "applied"
    lines = [f"{name} {done}" for name in missing] or ["the schema is up to date"]
    items = [{"name": name, "applied": not plan} for name in missing]
    render.write(Rendered(items=items, draw=partial(click.echo, "\n".join(lines)), key="name"), output)


async def _apply(dsn: str) -> None:
    async with open_ledger(dsn):
        pass
