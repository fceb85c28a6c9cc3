"""What commands over the SDK share: a client, the form of the answer, and looking again and again."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click

from mainspring.cli import render
from mainspring.cli.database import database_options, ledger_at
from mainspring.cli.params import Seconds
from mainspring.cli.render import FORMS, Rendered
from mainspring.sdk.client import Client
from mainspring.service import run

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Ask: TypeAlias = Callable[[Client], Awaitable[Rendered | None]]
_DSN: Final = "mainspring.dsn"  # where the context of a command keeps it
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


def with_client(command: Callable[..., Awaitable[Rendered | None]]) -> Callable[..., None]:
    """Open a client for the command, and write its answer in the form asked for."""

    @wraps(command)
    def wrapped(
        *,
        dsn: str | None,
        data_dir: Path | None,
        tenant: str,
        output: str,
        watch: timedelta | None = None,
        **asked: Any,
    ) -> None:
        ask: _Ask = partial(command, **asked)
        with ledger_at(dsn, data_dir, prepare=True) as where, _pipe_may_break():
            click.get_current_context().meta[_DSN] = where
            try:
                status = run(_answer(where, tenant, ask, output, watch))
            except KeyboardInterrupt:
                if watch is None:
                    raise
                status = 0
        if status:
            sys.exit(status)

    if not any(parameter.name == "output" for parameter in getattr(command, "__click_params__", ())):
        wrapped = output_option()(wrapped)
    wrapped = click.option(
        "--tenant", envvar="MAINSPRING_TENANT", default="default", show_default=True, help="Whose jobs."
    )(wrapped)
    return database_options(wrapped)


def dsn_in_use() -> str:
    """Return the database that the client of this command speaks to."""
    return str(click.get_current_context().meta[_DSN])


def form_asked_for() -> str:
    """Return the value of ``-o``, for what is written before the command has ended."""
    return str(click.get_current_context().params["output"])


async def _answer(dsn: str, tenant: str, ask: _Ask, form: str, every: timedelta | None) -> int:
    async with Client(dsn, tenant=tenant, author=_author(), connections=_CONNECTIONS) as client:
        if every is not None:
            await _watch(client, ask, form, every)
        answer = await ask(client)
        if answer is None:
            return 0
        render.write(answer, form)
        return answer.exit_status


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


def _author() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user of that number
        return f"uid {os.getuid()}"


@contextmanager
def _pipe_may_break() -> Iterator[None]:
    """End quietly when whoever reads us has seen enough, as ``head`` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may the interpreter complain at its end
        sys.exit(_BROKEN_PIPE)
