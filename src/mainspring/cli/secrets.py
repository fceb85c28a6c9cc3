"""``mainspring secrets``: what jobs may name as ``store:NAME``, sealed in the database and never shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from mainspring.cli import render
from mainspring.cli.client import author_here, dsn_in_use, watch_option, with_client
from mainspring.cli.database import loaded
from mainspring.cli.render import Rendered
from mainspring.config import Settings, settings_or_raise
from mainspring.domain.errors import InvalidRequest
from mainspring.roles import open_secrets
from mainspring.sdk.client import Client

_LONGEST: Final = 64 << 10  # characters: more is refused, and not even read


@click.group()
def secrets() -> None:
    """Keep secrets that the jobs of a tenant may name as {"$secret": "store:NAME"}.

    They are sealed with the key that secrets.seal_with names. No command shows one.

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
@with_client
async def put(client: Client, name: str, from_file: Path | None) -> Rendered:
    """Keep a secret, or a new version of one. The value comes from a file or standard input, never as an argument.

    Whoever looks at the processes of a machine sees arguments, and so does the history of a shell. At a terminal it is
    asked for, and not shown.

    \b
    mainspring secrets put smtp --from-file /run/smtp
    pass show smtp | mainspring secrets put smtp
    """
    async with open_secrets(dsn_in_use(), _settings()) as drawer:
        made = await drawer.put(client.tenant, name, _value(from_file), author=author_here())
    said = f'secret "{made.name}" is at version {made.version}; workers use it within a minute'
    return render.one(render.plain(made), lambda: click.echo(said), key="name")


@secrets.command("list")
@watch_option
@with_client
async def list_secrets(client: Client) -> Rendered:
    """List names, versions and keys: never values.

    \b
    mainspring secrets list
    mainspring secrets list --tenant acme -o json
    """
    async with open_secrets(dsn_in_use(), _settings()) as drawer:
        found = await drawer.list(client.tenant)

    def draw() -> None:
        rows = [(each.name, str(each.version), each.key_id, render.ago(each.created_at), each.author) for each in found]
        render.table(("name", "version", "key", "put", "by"), rows, empty="no secrets")

    return Rendered(items=render.plain(found), draw=draw, key="name")


@secrets.command()
@click.argument("name")
@with_client
async def delete(client: Client, name: str) -> Rendered:
    """Delete a secret with all its versions. Runs that name it are refused, within a minute.

    \b
    mainspring secrets delete smtp
    """
    async with open_secrets(dsn_in_use(), _settings()) as drawer:
        versions = await drawer.delete(client.tenant, name)
    said = f'secret "{name}" is deleted, {versions} versions'
    return render.one({"name": name, "deleted": versions}, lambda: click.echo(said), key="name")


@secrets.command()
@with_client
async def rotate(client: Client) -> Rendered:
    """Seal everything anew with the key that secrets.seal_with names, of all tenants.

    First give the new key to every process, the old one in secrets.also_open_with; then rotate; then take the old away.
    It can be stopped at any time, and goes on where it was.

    \b
    mainspring secrets rotate
    """
    del client
    done = failed = 0
    async with open_secrets(dsn_in_use(), _settings()) as drawer:
        async for step in drawer.rotate():
            done, failed = step.done, step.failed
            click.echo(f"{done + failed} of {step.total}", err=True)
    said = f"{done} sealed anew" + (f", {failed} do not open: their keys are missing" if failed else "")
    return render.one(
        {"done": done, "failed": failed}, lambda: click.echo(said), key="done", exit_status=int(failed > 0)
    )


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
