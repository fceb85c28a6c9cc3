"""``mainspring secrets``: what jobs may name as ``store:NAME``, sealed in the database and never shown."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from mainspring.cli import render
from mainspring.cli.administration import server_at
from mainspring.cli.client import Where, asking, author_here, output_option, watch_option
from mainspring.cli.database import database_options, ledger_at, loaded
from mainspring.cli.general import on_database
from mainspring.cli.printing import only_printing
from mainspring.cli.render import Rendered
from mainspring.config import Settings, settings_or_raise
from mainspring.domain.errors import InvalidRequest
from mainspring.roles import Drawer, open_secrets
from mainspring.sdk.client import Client
from mainspring.sdk.cluster import Secrets, SecretView
from mainspring.service import run

_LONGEST: Final = 64 << 10  # characters: more is refused, and not even read


@asynccontextmanager
async def _secrets_at(where: Where) -> AsyncIterator[Secrets]:
    if where.place.served:
        async with server_at(where) as server:
            yield server
        return
    async with (
        where.client() as client,  # which refuses a database that is not up to date
        open_secrets(where.place.address, _settings()) as drawer,
    ):
        yield _Kept(drawer, client.tenant)


_with_secrets = asking(_secrets_at, tenant="Whose secrets.  [default: default, or that of the key]")


@click.group()
def secrets() -> None:
    """Keep secrets that the jobs of a tenant may name as {"$secret": "store:NAME"}.

    They are sealed with the key that secrets.seal_with names, of the server if one is asked. No command shows one.

    \b
    mainspring secrets put smtp --from-file /run/smtp
    mainspring secrets list
    """


@secrets.command()
@click.argument("name")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Where the value is; a newline at its end does not count.  [default: standard input]",
)
@_with_secrets
async def put(kept: Secrets, name: str, from_file: Path | None) -> Rendered:
    """Keep a secret, or a new version of one. The value comes from a file or standard input, never as an argument.

    Whoever looks at the processes of a machine sees arguments, and so does the history of a shell. At a terminal it is
    asked for, and not shown.

    \b
    mainspring secrets put smtp --from-file /run/smtp
    pass show smtp | mainspring secrets put smtp
    """
    made = await kept.put_secret(name, "" if only_printing() else _value(from_file))
    said = f'secret "{made.name}" is at version {made.version}; workers use it within a minute'
    return render.one(render.plain(made), lambda: click.echo(said), key="name")


@secrets.command("list")
@watch_option
@_with_secrets
async def list_secrets(kept: Secrets) -> Rendered:
    """List names, versions and keys: never values.

    \b
    mainspring secrets list
    mainspring secrets list --tenant acme -o json
    """
    found = await kept.list_secrets()

    def draw() -> None:
        rows = [(each.name, str(each.version), each.key_id, render.ago(each.created_at), each.author) for each in found]
        render.table(("name", "version", "key", "put", "by"), rows, empty="no secrets")

    return Rendered(items=render.plain(found), draw=draw, key="name")


@secrets.command()
@click.argument("name")
@_with_secrets
async def delete(kept: Secrets, name: str) -> Rendered:
    """Delete a secret with all its versions. Runs that name it are refused, within a minute.

    \b
    mainspring secrets delete smtp
    """
    versions = await kept.delete_secret(name)
    said = f'secret "{name}" is deleted, {versions} versions'
    return render.one({"name": name, "deleted": versions}, lambda: click.echo(said), key="name")


@secrets.command()
@database_options
@output_option()
@on_database
def rotate(*, dsn: str | None, data_dir: Path | None, output: str) -> None:
    """Seal everything anew with the key that secrets.seal_with names, of all tenants.

    First give the new key to every process, the old one in secrets.also_open_with; then rotate; then take the old away.
    It can be stopped at any time, and goes on where it was. No server does it: this needs the database, and the keys.

    \b
    mainspring secrets rotate
    """
    with ledger_at(dsn, data_dir, prepare=True) as where:
        done, failed = run(_rotate(where))
    said = f"{done} sealed anew" + (f", {failed} do not open: their keys are missing" if failed else "")
    render.write(render.one({"done": done, "failed": failed}, lambda: click.echo(said), key="done"), output)
    if failed:
        sys.exit(1)


async def _rotate(dsn: str) -> tuple[int, int]:
    """Seal everything anew; return how many that were, and how many do not open."""
    done = failed = 0
    async with Client(dsn, connections=1), open_secrets(dsn, _settings()) as drawer:  # the client looks at the schema
        async for step in drawer.rotate():
            done, failed = step.done, step.failed
            click.echo(f"{done + failed} of {step.total}", err=True)
    return done, failed


class _Kept:
    """The secrets of a tenant over a database."""

    def __init__(self, drawer: Drawer, tenant: str) -> None:
        self._drawer = drawer
        self._tenant = tenant

    async def put_secret(self, name: str, value: str) -> SecretView:
        return await self._drawer.put(self._tenant, name, value, author=author_here())

    async def list_secrets(self) -> Sequence[SecretView]:
        return await self._drawer.list(self._tenant)

    async def delete_secret(self, name: str) -> int:
        return await self._drawer.delete(self._tenant, name, author=author_here())


def _settings() -> Settings:
    return settings_or_raise(loaded(), "secrets")


def _value(file: Path | None) -> str:
    """Read a value, without the newline that editors and echo put at its end."""
    if file is None and sys.stdin.isatty():
        return str(click.prompt("Value", hide_input=True, err=True))
    try:
        content = sys.stdin.read(_LONGEST + 1) if file is None else file.read_text("utf-8")
    except (OSError, ValueError):
        allowed = "use a file of UTF-8 text"
        raise InvalidRequest("it cannot be read", field="value", value="***", allowed=allowed) from None
    return content.rstrip("\r\n")
