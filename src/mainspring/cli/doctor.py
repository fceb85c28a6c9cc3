"""``mainspring doctor``: what is wrong with an installation, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from mainspring import embedded
from mainspring.cli import render
from mainspring.cli.client import output_option
from mainspring.cli.database import database_options, ledger_at, loaded, named_dsn
from mainspring.cli.general import on_database
from mainspring.cli.render import Rendered
from mainspring.domain.errors import InvalidRequest, Unavailable
from mainspring.environment import SystemEnvironment
from mainspring.insight.doctor import Ailment, Severity, examine
from mainspring.service import run


@click.command()
@database_options
@output_option()
@on_database
def doctor(*, dsn: str | None, data_dir: Path | None, output: str) -> None:
    """Look at settings, database and cluster, and say what is wrong. Exits with 1 if anything is but a note.

    \b
    mainspring doctor
    mainspring doctor --dsn postgresql://jobs@db/jobs -o json
    """
    found = _settings()
    try:
        available = _available() if named_dsn(dsn, data_dir) is None else None
        with ledger_at(dsn, data_dir, prepare=True) as where:
            found += run(examine(where, SystemEnvironment().now, available=available))
    except (InvalidRequest, Unavailable) as error:  # no embedded server, or nobody knows which database
        remedy = "give --dsn, or set MAINSPRING_DSN"
        what = str(error)
        found.append(Ailment(name="database", severity=Severity.ERROR, what=what, evidence=error.code, remedy=remedy))
    order = list(Severity)
    found.sort(key=lambda ailment: order.index(ailment.severity))
    render.write(Rendered(items=render.plain(found), draw=partial(_draw, found), key="name"), output)
    if any(ailment.severity is not Severity.NOTE for ailment in found):
        sys.exit(1)


def _settings() -> list[Ailment]:
    return [
        Ailment(
            name="settings",
            severity=Severity(problem.severity.value),
            what=f"{problem.field}: {problem.reason}",
            evidence=problem.value,
            remedy=problem.remedy,
        )
        for problem in loaded().problems
    ]


def _available() -> str | None:
    """Return which embedded Postgres would be started now."""
    with suppress(Unavailable):
        return embedded.find().version
    return None


def _draw(found: Sequence[Ailment]) -> None:
    for ailment in found:
        render.styled(f"{ailment.severity}: {ailment.what}", fg=render.COLOURS.get(ailment.severity), bold=True)
        click.echo(f"    {ailment.remedy}")
    if not found:
        render.styled("nothing is wrong", fg="green")
