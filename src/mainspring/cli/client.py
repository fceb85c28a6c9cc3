"""What commands over the SDK share: a client on a database or a server, the form of the answer, and looking again."""

from __future__ import annotations

import asyncio
import getpass
import io
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click

from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at, named_dsn, needs_database
from mainspring.cli.general import general_options
from mainspring.cli.params import Seconds
from mainspring.cli.printing import NotSent, start_printing
from mainspring.cli.render import FORMS, Rendered
from mainspring.sdk.addresses import KEY, URL, Place
from mainspring.sdk.client import Client
from mainspring.service import run

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Ask: TypeAlias = Callable[[Client], Awaitable[Rendered | None]]
_PLACE: Final = "mainspring.place"  # where the context of a command keeps where its client is
_CONNECTIONS: Final = 4  # a command asks one thing at a time
_BROKEN_PIPE: Final = 141  # what a shell says of a program that SIGPIPE ended


def output_option(*forms: str) -> Callable[[_Command], _Command]:
    """Add ``-o``."""
    return click.option(
        "-o", "--output", type=click.Choice(forms or FORMS), default=render.TABLE, show_default=True, help="The form."
    )


def watch_option(command: _Command) -> _Command:
    """Add ``--watch``; :func:`with_client` knows what to do about it."""
    return click.option(
        "--watch",
        is_flag=False,
        flag_value="2s",
        type=Seconds(),
        metavar="[SECONDS]",
        help="Look again every so often, until Ctrl-C; with -o ndjson a line for each change.",
    )(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Which ledger, as the command line says."""

    dsn: str | None
    data_dir: Path | None
    url: str | None
    key: str | None = field(repr=False)
    tenant: str | None
    insecure: bool
    curl: bool


def server_options(command: _Command) -> _Command:
    """Add ``--url`` and what goes with it; the key has another place, for some commands have a key of their own."""
    command = click.option("--curl", is_flag=True, help="Print the requests as curl commands; change nothing.")(command)
    command = click.option("--insecure", is_flag=True, help="Allow http:// to another machine, in the open.")(command)
    return click.option("--url", help=f"Ask this server instead of a database, as {KEY} says.  [default: {URL}]")(
        command
    )


def with_client(command: Callable[..., Awaitable[Rendered | None]]) -> Callable[..., None]:
    """Open a client for the command, and write its answer in the form asked for."""

    @wraps(command)
    def wrapped(
        *,
        dsn: str | None,
        data_dir: Path | None,
        url: str | None,
        tenant: str | None,
        output: str,
        insecure: bool,
        curl: bool,
        watch: timedelta | None = None,
        **asked: Any,
    ) -> None:
        ask: _Ask = partial(command, **asked)
        general = general_options()
        where = _Asked(
            dsn=dsn,
            data_dir=data_dir,
            url=url or general.url,
            key=general.key,
            tenant=tenant,
            insecure=insecure or general.insecure,
            curl=curl or general.curl,
        )
        with _ledger(where) as place, _pipe_may_break():
            click.get_current_context().meta[_PLACE] = place
            try:
                status = run(_answer(place, where, ask, output, watch))
            except KeyboardInterrupt:
                if watch is None:
                    raise
                status = 0
        if status:
            sys.exit(status)

    if not any(parameter.name == "output" for parameter in getattr(command, "__click_params__", ())):
        wrapped = output_option()(wrapped)
    wrapped = click.option(
        "--tenant", envvar="MAINSPRING_TENANT", help="Whose jobs.  [default: default, or that of the key]"
    )(wrapped)
    return database_options(server_options(wrapped))


@contextmanager
def _ledger(asked: _Asked) -> Iterator[Place]:
    """Give what to connect to: a server if one is named, else the database."""
    on_database = asked.dsn is not None or asked.data_dir is not None
    if asked.url is not None and on_database:
        raise click.UsageError("give --url or a database, not both")
    url = asked.url or (None if on_database else os.environ.get(URL))
    if url:
        yield Place(url, asked.key or os.environ.get(KEY) or None)
        return
    for option, given in (("--key", asked.key), ("--curl", asked.curl), ("--insecure", asked.insecure)):
        if given:
            raise click.UsageError(f"{option} goes with a server: give --url, or set {URL}")
    with ledger_at(asked.dsn, asked.data_dir, prepare=True) as dsn:
        yield Place(dsn)


def dsn_in_use() -> str:
    """Return the database of this command: the one its client speaks to, or that of the settings beside a server.

    Raises:
        InvalidRequest: only a server is named.
    """
    place: Place = click.get_current_context().meta[_PLACE]
    dsn = named_dsn(None, None) if place.served else place.address
    if dsn is None:
        raise needs_database()
    return dsn


def asks_a_server() -> bool:
    """Return whether the client of this command speaks to a server."""
    place: Place = click.get_current_context().meta[_PLACE]
    return place.served


def form_asked_for() -> str:
    """Return the value of ``-o``, for what is written before the command has ended."""
    return str(click.get_current_context().params["output"])


def author_here() -> str:
    """Return who is written beside what a command changes."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user of that number
        return f"uid {os.getuid()}"


async def _answer(place: Place, asked: _Asked, ask: _Ask, form: str, every: timedelta | None) -> int:
    if asked.curl:
        return await _print_requests(place, asked, ask)
    async with _client(place, asked) as client:
        if every is not None:
            await _watch(client, ask, form, every)
        answer = await ask(client)
        if answer is None:
            return 0
        render.write(answer, form)
        return answer.exit_status


def _client(place: Place, asked: _Asked, **more: Any) -> Client:
    return Client(
        place.address,
        key=place.key,
        tenant=asked.tenant,
        author=author_here(),
        connections=_CONNECTIONS,
        insecure=asked.insecure,
        **more,
    )


async def _print_requests(place: Place, asked: _Asked, ask: _Ask) -> int:
    """Print what would be sent, and only that."""
    from mainspring.cli.curl import Curl  # noqa: PLC0415 - an HTTP client comes with it

    start_printing()
    printing = Curl(keyed=place.key is not None)
    with redirect_stdout(io.StringIO()):
        try:
            async with _client(place, asked, through=printing) as client:
                await ask(client)
        except NotSent:
            pass
    return 0


async def _watch(client: Client, ask: _Ask, form: str, every: timedelta) -> None:
    """Write what has changed, for ever; at a terminal, a table in place of the last one."""
    seen: dict[str, str] = {}
    first = True
    while True:
        answer = await ask(client)
        assert answer is not None, "what is watched has an answer"
        now = {str(item.get(answer.key)): render.compact(item) for item in answer.items}
        if form == render.NDJSON:
            for name, text in now.items():
                if seen.get(name) != text:
                    click.echo(text)
        elif first or now != seen or sys.stdout.isatty():
            if form == render.TABLE and sys.stdout.isatty():
                click.clear()
            render.write(answer, form)
        sys.stdout.flush()
        seen, first = now, False
        await asyncio.sleep(every.total_seconds())


@contextmanager
def _pipe_may_break() -> Iterator[None]:
    """End quietly when whoever reads us has seen enough, as ``head`` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may the interpreter complain at its end
        sys.exit(_BROKEN_PIPE)
