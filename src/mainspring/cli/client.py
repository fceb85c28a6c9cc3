"""What commands that ask share: a database or a server to ask, the form of the answer, and looking again."""

from __future__ import annotations

import asyncio
import getpass
import io
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.general import general_options
from mainspring.cli.params import Seconds
from mainspring.cli.printing import NotSent, start_printing
from mainspring.cli.render import FORMS, Rendered
from mainspring.sdk.addresses import KEY, URL, Place, checked_url
from mainspring.sdk.client import Client
from mainspring.service import run

if TYPE_CHECKING:
    from mainspring.sdk.session import Through

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Ask: TypeAlias = Callable[[Any], Awaitable[Rendered | None]]
_Asks: TypeAlias = Callable[..., Awaitable[Rendered | None]]
_PLACE: Final = "mainspring.place"  # where the context of a command keeps what it asks
_CONNECTIONS: Final = 4  # a command asks one thing at a time
_BROKEN_PIPE: Final = 141  # what a shell says of a program that SIGPIPE ended


def output_option(*forms: str) -> Callable[[_Command], _Command]:
    """Add ``-o``."""
    return click.option(
        "-o", "--output", type=click.Choice(forms or FORMS), default=render.TABLE, show_default=True, help="The form."
    )


def watch_option(command: _Command) -> _Command:
    """Add ``--watch``; :func:`asking` knows what to do about it."""
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
    insecure: bool
    curl: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a command asks, and for whom."""

    place: Place
    tenant: str | None  # None: the default one; of a server, that of the key
    insecure: bool
    through: Through | None = None  # what every request to a server passes on its way

    def client(self) -> Client:
        return Client(
            self.place.address,
            key=self.place.key,
            tenant=self.tenant,
            author=author_here(),
            connections=_CONNECTIONS,
            insecure=self.insecure,
            through=self.through,
        )


Opening: TypeAlias = Callable[[Where], AbstractAsyncContextManager[Any]]


def server_options(command: _Command) -> _Command:
    """Add ``--url`` and what goes with it; the key has another place, for some commands have a key of their own."""
    command = click.option("--curl", is_flag=True, help="Print the requests as curl commands; change nothing.")(command)
    command = click.option("--insecure", is_flag=True, help="Allow http:// to another machine, in the open.")(command)
    return click.option("--url", help=f"Ask this server instead of a database, as {KEY} says.  [default: {URL}]")(
        command
    )


def asking(
    opening: Opening, *, tenant: str | None = "Whose jobs.  [default: default, or that of the key]"
) -> Callable[[_Asks], Callable[..., None]]:
    """Open what the command asks, and write its answer in the form asked for.

    Args:
        opening: gives the command its first argument, on a database or on a server.
        tenant: what ``--tenant`` stands for; None: there is no such option, as this belongs to no tenant.
    """

    def decorate(command: _Asks) -> Callable[..., None]:
        wrapped = _wrapped(command, opening)
        if not any(parameter.name == "output" for parameter in getattr(command, "__click_params__", ())):
            wrapped = output_option()(wrapped)
        if tenant is not None:
            wrapped = click.option("--tenant", envvar="MAINSPRING_TENANT", help=tenant)(wrapped)
        return database_options(server_options(wrapped))

    return decorate


with_client = asking(Where.client)


def _wrapped(command: _Asks, opening: Opening) -> Callable[..., None]:
    @wraps(command)
    def wrapped(
        *,
        dsn: str | None,
        data_dir: Path | None,
        url: str | None,
        output: str,
        insecure: bool,
        curl: bool,
        tenant: str | None = None,
        watch: timedelta | None = None,
        **given: Any,
    ) -> None:
        ask: _Ask = partial(command, **given)
        general = general_options()
        asked = _Asked(
            dsn=dsn,
            data_dir=data_dir,
            url=general.url if url is None else url,
            key=general.key,
            insecure=insecure or general.insecure,
            curl=curl or general.curl,
        )
        with _ledger(asked) as place, _pipe_may_break():
            click.get_current_context().meta[_PLACE] = place
            where = Where(place=place, tenant=tenant, insecure=asked.insecure)
            try:
                if asked.curl:
                    status = run(_print_requests(where, opening, ask))
                else:
                    status = run(_answer(opening(where), ask, output, watch))
            except KeyboardInterrupt:
                if watch is None:
                    raise
                status = 0
        if status:
            sys.exit(status)

    return wrapped


@contextmanager
def _ledger(asked: _Asked) -> Iterator[Place]:
    """Give what to connect to: a server if one is named, else the database."""
    on_database = asked.dsn is not None or asked.data_dir is not None
    if asked.url is not None and on_database:
        raise click.UsageError("give --url or a database, not both")
    url = asked.url if asked.url is not None or on_database else os.environ.get(URL) or None
    if url is not None:  # also an empty one, of a variable that is not set: it must not mean the database
        yield Place(checked_url(url, insecure=asked.insecure), asked.key or os.environ.get(KEY) or None)
        return
    for option, given in (("--key", asked.key), ("--curl", asked.curl), ("--insecure", asked.insecure)):
        if given:
            raise click.UsageError(f"{option} goes with a server: give --url, or set {URL}")
    with ledger_at(asked.dsn, asked.data_dir, prepare=True) as dsn:
        yield Place(dsn)


def dsn_in_use() -> str | None:
    """Return the database of this command; None: it asks a server, and no database behind its back."""
    place: Place = click.get_current_context().meta[_PLACE]
    return None if place.served else place.address


def form_asked_for() -> str:
    """Return the value of ``-o``, for what is written before the command has ended."""
    return str(click.get_current_context().params["output"])


def author_here() -> str:
    """Return who is written beside what a command changes."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user of that number
        return f"uid {os.getuid()}"


async def _answer(opened: AbstractAsyncContextManager[Any], ask: _Ask, form: str, every: timedelta | None) -> int:
    async with opened as asked:
        if every is not None:
            await _watch(asked, ask, form, every)
        answer = await ask(asked)
        if answer is None:
            return 0
        render.write(answer, form)
        return answer.exit_status


async def _print_requests(where: Where, opening: Opening, ask: _Ask) -> int:
    """Print what would be sent, and only that."""
    from mainspring.cli.curl import Curl  # noqa: PLC0415 - an HTTP client comes with it

    assert where.place.served, "a database is sent no requests that could be held back"
    start_printing()
    printing = Curl(keyed=where.place.key is not None)
    with redirect_stdout(io.StringIO()):
        try:
            async with opening(replace(where, through=printing)) as asked:
                await ask(asked)
        except NotSent:
            pass
    return 0


async def _watch(asked: Any, ask: _Ask, form: str, every: timedelta) -> None:
    """Write what has changed, for ever; at a terminal, a table in place of the last one."""
    seen: dict[str, str] = {}
    first = True
    while True:
        answer = await ask(asked)
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
