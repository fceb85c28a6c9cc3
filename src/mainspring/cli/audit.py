"""``mainspring audit``: whether every slot was decided, and none twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

import click

from mainspring.cli import render
from mainspring.cli.administration import server_at
from mainspring.cli.client import Where, asking, output_option
from mainspring.cli.params import Instant
from mainspring.cli.render import JSON, TABLE, Rendered
from mainspring.environment import SystemEnvironment
from mainspring.insight.report import AuditReport
from mainspring.roles import audit_of

_Judge: TypeAlias = Callable[[datetime, datetime], Awaitable[AuditReport]]


@asynccontextmanager
async def _judge_at(where: Where) -> AsyncIterator[_Judge]:
    if where.place.served:
        async with server_at(where) as server:
            yield server.audit
    else:
        yield partial(audit_of, where.place.address, tenant=where.tenant)


@click.command()
@click.option("--from", "start", type=Instant(), help="The first instant to judge.  [default: a day ago]")
@click.option("--to", "end", type=Instant(), help="The first instant not to judge.  [default: now]")
@asking(_judge_at, tenant="Judge this tenant's jobs only.  [default: all; of a server, those of the key's tenant]")
@output_option(TABLE, JSON)
async def audit(judge: _Judge, *, start: datetime | None, end: datetime | None) -> Rendered:
    """Recompute every slot that should have been, and compare with the ledger.

    Exits with 1 if a slot was missed, doubled or invented. It proves decisions, not what runs did outside. A server
    judges the jobs of one tenant, at most 31 days of them, and names a hundred findings.

    \b
    mainspring audit
    mainspring audit --from 2026-11-15T00:00:00Z --to 2026-11-16T00:00:00Z -o json
    """
    end = end or SystemEnvironment().now()
    report = await judge(start or end - timedelta(days=1), end)
    return render.one(report.to_json(), partial(render.audit, report), exit_status=report.exit_status)
