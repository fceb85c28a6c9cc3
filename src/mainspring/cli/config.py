"""``mainspring config``: what is set, from where, and what is wrong with it."""

from __future__ import annotations

import sys
from functools import partial

import click

from mainspring.cli import render
from mainspring.cli.client import output_option
from mainspring.cli.database import config_option, loaded
from mainspring.cli.general import offline
from mainspring.cli.render import Rendered
from mainspring.config import Problem

_INVALID = 2


@click.group()
def config() -> None:
    """Check and show settings: a file, then MAINSPRING_<SECTION>__<NAME>, then flags. Needs no server.

    \b
    mainspring config check
    """


@config.command()
@config_option
@output_option()
@offline
def check(*, output: str) -> None:
    """List everything that is wrong with the settings, at once, with what to do about it. Exits with 2 on errors.

    \b
    mainspring config check --config /etc/mainspring.toml
    """
    read = loaded()
    items = render.plain(read.problems)
    render.write(Rendered(items=items, draw=partial(_draw_problems, read.problems), key="field"), output)
    if read.errors:
        sys.exit(_INVALID)


def _draw_problems(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        render.styled(f"{problem.severity}: {problem.field}: {problem.reason}", fg=render.COLOURS[problem.severity])
        value = f" {problem.value}" if problem.value else ""
        click.echo(f"    from {problem.source}:{value}\n    {problem.remedy}")
    if not problems:
        click.echo("nothing is wrong")


@config.command()
@config_option
@click.option("--sources", is_flag=True, help="Say where each value comes from.")
@output_option()
@offline
def show(*, sources: bool, output: str) -> None:
    """Show every setting as it is in effect; secrets are masked.

    \b
    mainspring config show --sources
    MAINSPRING_WORKER__CONCURRENCY=40 mainspring config show -o json
    """
    read = loaded()
    values = read.settings.shown()
    items = [
        {"name": name, "value": value} | ({"source": read.sources[name]} if sources else {})
        for name, value in values.items()
    ]

    def draw() -> None:
        columns = ("setting", "value", *(("from",) if sources else ()))
        rows = [(name, _text(value), *((read.sources[name],) if sources else ())) for name, value in values.items()]
        render.table(columns, rows, empty="")

    render.write(Rendered(items=items, draw=draw, key="name"), output)
    for problem in read.errors:
        click.echo(f"error: {problem}", err=True)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else render.compact(value)
