"""What ``serve`` and ``worker`` share: a node on a database, until it is told to stop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from mainspring import embedded
from mainspring.cli.database import config_option, loaded
from mainspring.config import Settings, settings_or_raise
from mainspring.domain.errors import InvalidRequest
from mainspring.environment import SystemEnvironment
from mainspring.roles import NodeSettings, declare_tasks, open_ledger, run_node
from mainspring.service import Stop, run, signals
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events
from mainspring.telemetry.log import log_to

_Command = TypeVar("_Command", bound=Callable[..., None])


def node_options(command: _Command) -> _Command:
    """Add ``--dsn``, ``--log`` and ``--config``."""
    command = config_option(command)
    command = click.option(
        "--log", "log_format", type=click.Choice(["plain", "json"]), help="How events are written.  [default: plain]"
    )(command)
    return click.option("--dsn", help="The database.  [default: MAINSPRING_DSN, else database.dsn of the settings]")(
        command
    )


def settings_for(flags: Mapping[str, object]) -> Settings:
    """Return the settings of this process; flags that were not given do not count.

    Raises:
        InvalidRequest: some cannot be read.
    """
    return settings_or_raise(loaded({name: value for name, value in flags.items() if value not in (None, (), [])}))


def run_until_stopped(settings: Settings, node: NodeSettings, registry: Registry) -> None:
    """Run a node; what happens is written to standard output, a line for each event."""
    run(_run(_dsn(settings), settings, node, registry))


async def _run(dsn: str, settings: Settings, node: NodeSettings, registry: Registry) -> None:
    env = SystemEnvironment()
    events = Events(log_to(sys.stdout, now=env.now, as_json=settings.log.format == "json"))
    stop = Stop(env)
    async with open_ledger(dsn, connections=settings.database.connections) as db:
        if node.pools:
            await declare_tasks(db, env, registry)
        with signals(stop):
            await run_node(node, stop, db=db, env=env, events=events, registry=registry)


def _dsn(settings: Settings) -> str:
    if settings.database.dsn is not None:
        return settings.database.dsn.value
    running = embedded.dsn_of_running(embedded.default_data_dir(Path(".mainspring")))
    if running is None:
        reason = "no database is named, and no `mainspring dev` runs in this directory"
        allowed = "pass --dsn, or set MAINSPRING_DSN or database.dsn"
        raise InvalidRequest(reason, field="database.dsn", value="", allowed=allowed)
    return running
