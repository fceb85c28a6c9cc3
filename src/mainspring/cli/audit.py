"""``mainspring audit``: whether every slot was decided, and none twice."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import click

from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.params import Instant
from mainspring.environment import SystemEnvironment
from mainspring.roles import audit_of
from mainspring.service import run


@click.command()
@click.option("--from", "start", type=Instant(), help="The first instant to judge.  [default: a day ago]")
@click.option("--to", "end", type=Instant(), help="The first instant not to judge.  [default: now]")
@click.option("--tenant", help="Judge this tenant's jobs only.")
@database_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def audit(
    *,
    start: datetime | None,
    end: datetime | None,
    tenant: str | None,
    dsn: str | None,
    data_dir: Path | None,
    output: str,
) -> None:
    """Recompute every slot that should have been, and compare with the ledger.

    Exits with 1 if a slot was missed, doubled or invented. It proves decisions, not what runs did outside.

    \b
    mainspring audit
    mainspring audit --from 2026-11-15T00:00:00Z --to 2026-11-16T00:00:00Z -o json
    """
    end = end or SystemEnvironment().now()
    with ledger_at(dsn, data_dir) as where:
        report = run(audit_of(where, start or end - timedelta(days=1), end, tenant))
    if output == "json":
        render.json(report.to_json())
    else:
        render.audit(report)
    sys.exit(report.exit_status)
