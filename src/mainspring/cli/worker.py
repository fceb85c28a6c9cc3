"""``mainspring worker``: run tasks, and nothing else."""

from __future__ import annotations

import click

from mainspring.cli.general import on_database
from mainspring.cli.node import node_options, run_until_stopped, settings_for
from mainspring.domain.errors import InvalidRequest
from mainspring.roles import node_settings
from mainspring.tasks.loading import load


@click.command()
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@click.option("--pool", "pools", multiple=True, help="Work for this pool, one or several.  [default: short, long]")
@click.option("--concurrency", type=click.IntRange(1, 100_000), help="Runs at once, of each pool.  [default: 100]")
@node_options
@on_database
def worker(
    *,
    modules: tuple[str, ...],
    pools: tuple[str, ...],
    concurrency: int | None,
    dsn: str | None,
    log_format: str | None,
) -> None:
    """Run the tasks of MODULE for some pools, until stopped. A scheduler runs elsewhere.

    SIGTERM drains: nothing more is taken, what is at work may finish within worker.grace, the rest is given back.

    \b
    mainspring worker shop.tasks --pool short --concurrency 40
    mainspring worker shop.tasks shop.reports --pool long
    """
    settings = settings_for(
        {
            "database.dsn": dsn,
            "worker.pools": list(pools),
            "worker.concurrency": concurrency,
            "worker.modules": list(modules),
            "log.format": log_format,
        }
    )
    if not settings.worker.modules:
        allowed = "name one, or set worker.modules"
        raise InvalidRequest("there is no module to take tasks from", field="module", value="", allowed=allowed)
    run_until_stopped(
        settings, node_settings(settings, scheduler=False, worker=True), load(list(settings.worker.modules))
    )
