"""``mainspring serve``: roles over a database."""

from __future__ import annotations

from typing import Final

import click

from mainspring.cli.general import on_database
from mainspring.cli.node import node_options, run_until_stopped, settings_for
from mainspring.domain.errors import InvalidRequest
from mainspring.roles import node_settings
from mainspring.tasks.loading import Registry, load

_ROLES: Final = ("api", "scheduler", "worker")


@click.command()
@click.option("--roles", default="scheduler", show_default=True, help="What to run here, with commas between.")
@click.option("--engine", type=click.Choice(["peers", "poll"]), help="How due jobs are found.  [default: peers]")
@click.option("--host", help="Where the API listens; off loopback only with authentication.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Of the API; 0: any that is free.  [default: 8080]")
@node_options
@on_database
def serve(
    *,
    roles: str,
    engine: str | None,
    host: str | None,
    port: int | None,
    dsn: str | None,
    log_format: str | None,
) -> None:
    """Run roles over a database, until stopped; any number of processes may run the same.

    api answers over HTTP. scheduler fires what is due. worker runs the tasks of worker.modules; `mainspring worker`
    does the same with flags.

    \b
    mainspring serve --roles scheduler --dsn postgresql://jobs@db/jobs
    mainspring serve --roles api,scheduler --port 9000
    mainspring serve --roles scheduler,worker --config mainspring.toml
    """
    wanted = _wanted(roles)
    flags = {"database.dsn": dsn, "scheduler.engine": engine, "log.format": log_format}
    settings = settings_for({**flags, "api.host": host, "api.port": port})
    node = node_settings(settings, scheduler="scheduler" in wanted, worker="worker" in wanted, api="api" in wanted)
    run_until_stopped(settings, node, load(list(settings.worker.modules)) if node.pools else Registry())


def _wanted(roles: str) -> set[str]:
    wanted = {role.strip() for role in roles.split(",")}
    if unknown := sorted(wanted - set(_ROLES)):
        allowed = f"use {', '.join(_ROLES)}, or several of them"
        raise InvalidRequest(f'there is no role "{unknown[0]}"', field="roles", value=roles, allowed=allowed)
    return wanted
