"""``mainspring dev``: everything in one process, on an embedded Postgres."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import click

from mainspring import demo
from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.params import Duration
from mainspring.domain.durations import rough_duration
from mainspring.environment import SystemEnvironment
from mainspring.insight.audit import run_audit
from mainspring.roles import EngineName, NodeSettings, open_ledger, put_jobs, run_node
from mainspring.service import Stop, run, signals
from mainspring.telemetry.events import (
    AnyEvent,
    Events,
    Fired,
    JobQuarantined,
    Recovered,
    ServiceInterrupted,
    Settled,
    Started,
)


@click.command()
@database_options
@click.option("--for", "lasting", type=Duration(), help="Stop by itself after this long, such as 20s.")
@click.option("--engine", type=click.Choice(["peers", "poll"]), default="peers", show_default=True)
def dev(data_dir: Path | None, dsn: str | None, lasting: timedelta | None, engine: EngineName) -> None:
    """Run scheduler and worker in one process, with example jobs, and show what fires.

    \b
    mainspring dev
    mainspring dev --for 20s --data-dir /tmp/try
    """
    with ledger_at(dsn, data_dir) as where:
        run(_run(where, lasting, NodeSettings(engine=engine)))


async def _run(dsn: str, lasting: timedelta | None, settings: NodeSettings) -> None:
    env = SystemEnvironment()
    screen, began = Screen(), env.now()
    async with open_ledger(dsn) as db:
        registry = demo.registry()
        new = await put_jobs(db, env, demo.JOBS, tasks=registry.names)
        click.echo(f"{new} example jobs written" if new else "continuing with the jobs that are there")
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

    def __init__(self) -> None:
        self._late: list[timedelta] = []
        self._fired = self._skipped = self._succeeded = self._failed = self._dead = 0

    def __call__(self, event: AnyEvent) -> None:
        match event:
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
                    click.secho(f"{'':13}{event.failed} failed, to be tried again", fg="yellow")
                if event.dead:
                    click.secho(f"{'':13}{event.dead} dead", fg="red")
            case Recovered(kind=kind, count=count):
                click.secho(f"{'':13}recovered {count} {kind}", fg="cyan")
            case ServiceInterrupted(service=service, error=error):
                click.secho(f"{service} interrupted: {error}", fg="yellow", err=True)
            case JobQuarantined(job=job):
                click.secho(f"job {job} is quarantined", fg="red", err=True)
            case _:
                pass

    def _started(self, event: Started) -> None:
        slot = f"{event.slot:%H:%M:%S}" if event.slot else "by hand"
        again = f"  attempt {event.attempt}" if event.attempt > 1 else ""
        if event.attempt == 1:
            self._late.append(event.late)
        click.echo(f"{slot}  {event.task:12} {rough_duration(event.late):>9} late{again}")

    def close(self) -> None:
        """Say what happened in all."""
        click.echo()
        click.echo(f"{self._fired} runs fired, {self._skipped} slots skipped with a reason")
        click.echo(f"{self._succeeded} succeeded, {self._failed} attempts failed, {self._dead} dead")
        if self._late:
            late = sorted(self._late)
            p50, p99, most = (rough_duration(late[at]) for at in (len(late) // 2, len(late) * 99 // 100, -1))
            click.echo(f"starts after their slot: p50 {p50}, p99 {p99}, max {most}")
