"""Which database a command speaks to: the one named, or the embedded one of ``mainspring dev``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import click

from mainspring import embedded
from mainspring.config import Loaded, load, settings_or_raise
from mainspring.domain.errors import InvalidRequest
from mainspring.sdk.addresses import DSN, URL
from mainspring.service import run

_Command = TypeVar("_Command", bound=Callable[..., None])
_CONFIG: Final = "mainspring.config"  # where the context of a command keeps the path


def config_option(command: _Command) -> _Command:
    """Add ``--config``; :func:`loaded` knows it, the command itself need not."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="Read settings from this file.  [default: MAINSPRING_CONFIG, else mainspring.toml]",
    )(command)


def database_options(command: _Command) -> _Command:
    """Add ``--dsn``, ``--data-dir`` and ``--config``."""
    command = config_option(command)
    command = click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Where the embedded Postgres keeps its data; a second start continues with it.  [default: .mainspring]",
    )(command)
    return click.option(
        "--dsn",
        help="Use this Postgres instead of the embedded one; behind PgBouncer add pool_mode=transaction to it.  "
        "[default: MAINSPRING_DSN, else database.dsn of the settings]",
    )(command)


def loaded(flags: Mapping[str, object] | None = None) -> Loaded:
    """Return the settings as this command sees them, problems and all."""
    context = click.get_current_context(silent=True)
    return load(None if context is None else context.meta.get(_CONFIG), flags=flags)


def named_dsn(dsn: str | None, data_dir: Path | None) -> str | None:
    """Return the database that flags or settings name; None: it is an embedded one.

    Raises:
        InvalidRequest: the settings say where it is, and cannot be read.
    """
    if dsn is not None or data_dir is not None:
        return dsn
    configured = settings_or_raise(loaded(), "database").database.dsn
    return None if configured is None else configured.value


@contextmanager
def ledger_at(
    dsn: str | None, data_dir: Path | None, *, prepare: bool = False, starting: bool = False
) -> Iterator[str]:
    """Give the DSN to use; the embedded server runs as long as it is needed.

    With ``prepare`` the schema of a server that had to be started is up to date: nobody else is there to see to it.

    Raises:
        InvalidRequest: only a server is named: an empty database of our own is not what is meant then. Unless the
            command is ``starting`` one on purpose.
    """
    named = named_dsn(dsn, data_dir)
    if named is not None:
        yield named
        return
    if data_dir is None and os.environ.get(URL) and not starting:
        reason = "this is about the database itself, and only a server is named"
        raise InvalidRequest(reason, field="dsn", value="", allowed=f"give --dsn, or set {DSN}")
    where = (data_dir or embedded.default_data_dir(Path(".mainspring"))).absolute()
    running = embedded.dsn_of_running(where)
    if running is not None:  # `mainspring dev` in another window
        yield running
        return
    with embedded.running(where) as server:
        if prepare:
            run(_prepare(server.dsn))
        yield server.dsn


async def _prepare(dsn: str) -> None:
    from mainspring.roles import open_ledger  # noqa: PLC0415 - it brings everything along, and is seldom needed

    async with open_ledger(dsn):
        pass


def _remember(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    del parameter
    context.meta[_CONFIG] = value
