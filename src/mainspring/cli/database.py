"""Which database a command speaks to: the one named, or the embedded one of ``mainspring dev``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from mainspring import embedded

_Command = TypeVar("_Command", bound=Callable[..., None])


def database_options(command: _Command) -> _Command:
    """Add ``--dsn`` and ``--data-dir``."""
    command = click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Where the embedded Postgres keeps its data; a second start continues with it.  [default: .mainspring]",
    )(command)
    return click.option(
        "--dsn",
        envvar="MAINSPRING_DSN",
        help="Use this Postgres instead of the embedded one; behind PgBouncer add pool_mode=transaction to it.",
    )(command)


@contextmanager
def ledger_at(dsn: str | None, data_dir: Path | None) -> Iterator[str]:
    """Give the DSN to use; the embedded server runs as long as it is needed."""
    if dsn is not None:
        yield dsn
    else:
        where = data_dir or embedded.default_data_dir(Path(".mainspring"))
        with embedded.running(where.absolute()) as server:
            yield server.dsn
