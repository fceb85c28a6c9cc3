"""``mainspring explain``: what became of a job's slot, and why."""

from __future__ import annotations

from datetime import datetime

import click

from mainspring.cli import render
from mainspring.cli.client import output_option, with_client
from mainspring.cli.params import Instant
from mainspring.cli.render import JSON, TABLE, Rendered
from mainspring.sdk.client import Client


@click.command()
@click.argument("job")
@click.argument("at", type=Instant())
@with_client
@output_option(TABLE, JSON)
async def explain(client: Client, job: str, *, at: datetime) -> Rendered:
    """Say for a job (name or id) and an instant what happened and why.

    \b
    mainspring explain heartbeat 2026-11-15T09:30:00Z
    """
    sentences = await (await client.jobs.get(job)).explain_slot(at)
    item = {"job": job, "at": render.rfc3339(at), "explanation": list(sentences)}
    return render.one(item, lambda: click.echo("\n".join(sentences)), key="job")
