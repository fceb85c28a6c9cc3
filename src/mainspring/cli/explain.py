"""``mainspring explain``: what became of a job's slot, and why."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.params import Instant
from mainspring.insight.explain import explain_slot
from mainspring.roles import evidence_of
from mainspring.service import run


@click.command()
@click.argument("job")
@click.argument("at", type=Instant())
@database_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def explain(job: str, at: datetime, dsn: str | None, data_dir: Path | None, output: str) -> None:
    """Say for a job (name or id) and an instant what happened and why.

    \b
    mainspring explain heartbeat 2026-11-15T09:30:00Z
    """
    with ledger_at(dsn, data_dir) as where:
        sentences = explain_slot(run(evidence_of(where, job, at)), at)
    if output == "json":
        render.json({"job": job, "at": render.rfc3339(at), "explanation": sentences})
    else:
        click.echo("\n".join(sentences))
