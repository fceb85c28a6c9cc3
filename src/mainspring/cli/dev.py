"""``mainspring dev``: everything in one process, on an embedded Postgres."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import click

from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.general import on_database
from mainspring.cli.node import settings_for
from mainspring.cli.params import Duration
from mainspring.cli.reload import reloading
from mainspring.domain.durations import rough_duration
from mainspring.environment import SystemEnvironment
from mainspring.insight.audit import run_audit
from mainspring.roles import EngineName, NodeSettings, declare_tasks, node_settings, open_ledger, run_node
from mainspring.service import Stop, run, signals
from mainspring.tasks.loading import Registry, load
from mainspring.telemetry.events import (
    AnyEvent,
    Events,
    Fired,
    JobQuarantined,
    Listening,
    Recovered,
    ServiceInterrupted,
    Settled,
    Started,
)

_EXAMPLES = ("mainspring.demo",)


@click.command()
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@database_options
@click.option("--for", "lasting", type=Duration(), help="Stop by itself after this long, such as 20s.")
@click.option("--engine", type=click.Choice(["peers", "poll"]), help="How due jobs are found.  [default: peers]")
@click.option("--pool", "pools", multiple=True, help="Work for this pool, one or several.  [default: short, long]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Of the API.  [default: 8080, or any that is free]")
@click.option("--reload", is_flag=True, help="Start again when a Python file of the modules changes.")
@on_database
def dev(
    *,
    modules: tuple[str, ...],
    data_dir: Path | None,
    dsn: str | None,
    lasting: timedelta | None,
    engine: EngineName | None,
    pools: tuple[str, ...],
    port: int | None,
    reload: bool,
) -> None:
    """Run API, scheduler and worker in one process, with the tasks of MODULE or with examples, and show what starts.

    MODULE is a dotted name or a .py file. Its tasks become jobs: by their schedule, or for when somebody asks.

    \b
    mainspring dev
    mainspring dev shop.tasks --reload
    mainspring dev tasks.py --for 20s --data-dir /tmp/try
    """
    with ledger_at(dsn, data_dir, starting=True) as where:
        if reload:
            options = [
                *(["--engine", engine] if engine else []),
                *(word for pool in pools for word in ("--pool", pool)),
                *(["--port", str(port)] if port is not None else []),
            ]
            sys.exit(reloading(modules or _EXAMPLES, ["--dsn", where, *options]))
        registry = load(modules or _EXAMPLES)
        settings = settings_for({"scheduler.engine": engine, "worker.pools": list(pools), "api.port": port})
        node = node_settings(settings, scheduler=True, worker=True, api=True)
        node = replace(node, pulse=False, any_port=port is None)
        run(_run(where, lasting, node, registry))


async def _run(dsn: str, lasting: timedelta | None, settings: NodeSettings, registry: Registry) -> None:
    env = SystemEnvironment()
    screen, began = Screen(registry), env.now()
    async with open_ledger(dsn) as db:
        jobs = await declare_tasks(db, env, registry)
        click.echo(f"{len(jobs)} jobs: {', '.join(jobs)}")
        click.echo("Ctrl-C stops\n")
        stop = Stop(env)
        with signals(stop):
            asked = asyncio.create_task(_when_asked(stop, env, lasting))
            try:
                await run_node(settings, stop, db=db, env=env, events=Events(screen), registry=registry)
            finally:
                stop.request()
                until = await asked
        screen.close()
        render.audit(await run_audit(db, start=began, end=until))


async def _when_asked(stop: Stop, env: SystemEnvironment, lasting: timedelta | None) -> datetime:
    """Ask for the stop when the time is up; return when it was asked for, which is as far as the audit may judge."""
    await stop.wait(lasting)
    stop.request()
    return env.now()


class Screen:
    """A subscriber that writes a line per start, and adds up what it has seen."""

    def __init__(self, registry: Registry) -> None:
        self._names = max((len(name) for name in registry.names), default=0)
        self._late: list[timedelta] = []
        self._fired = self._skipped = self._succeeded = self._failed = self._dead = 0

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case Listening(url=url, authenticated=authenticated):
                key = "" if authenticated else "; no key is asked for, and only this machine can reach it"
                click.echo(f"API on {url}/api/v1, described at {url}/docs{key}\n")
            case Started():
                self._started(event)
            case Fired():
                self._fired += event.runs
                self._skipped += event.skips
            case Settled():
                self._succeeded += event.succeeded
                self._failed += event.failed
                self._dead += event.dead
                if event.failed:
                    click.secho(f"{'':10}{event.failed} failed, to be tried again", fg="yellow")
                if event.dead:
                    click.secho(f"{'':10}{event.dead} dead: see mainspring dead-letters list", fg="red")
            case Recovered(kind=kind, count=count):
                click.secho(f"{'':10}recovered {count} {kind}", fg="cyan")
            case ServiceInterrupted(service=service, error=error):
                click.secho(f"{service} interrupted: {error}", fg="yellow", err=True)
            case JobQuarantined(job=job):
                click.secho(f"job {job} is quarantined", fg="red", err=True)
            case _:
                pass

    def _started(self, event: Started) -> None:
        slot = f"{event.slot:%H:%M:%S}" if event.slot else "by hand"
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        if event.attempt == 1:
            self._late.append(event.late)
        late = rough_duration(max(event.late, timedelta(0)))
        click.echo(f"{slot}  {event.task:{self._names}}  started {late} after its slot{again}")

    def close(self) -> None:
        """Say what happened in all."""
        click.echo()
        click.echo(f"{self._fired} runs fired, {self._skipped} slots skipped with a reason")
        click.echo(f"{self._succeeded} succeeded, {self._failed} attempts failed, {self._dead} dead")
        if self._late:
            late = sorted(self._late)
            p50, p99, most = (rough_duration(late[at]) for at in (len(late) // 2, len(late) * 99 // 100, -1))
            click.echo(f"starts after their slot: p50 {p50}, p99 {p99}, max {most}")
