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
        default=Path(".mainspring"),
        show_default=True,
        help="Where the embedded Postgres keeps its data; a second start continues with it.",
    )(command)
    return click.option("--dsn", envvar="MAINSPRING_DSN", help="Use this Postgres instead of the embedded one.")(
        command
    )


@contextmanager
def ledger_at(dsn: str | None, data_dir: Path) -> Iterator[str]:
    """Give the DSN to use; the embedded server runs as long as it is needed."""
    if dsn is not None:
        yield dsn
    else:
        with embedded.running(data_dir.absolute()) as server:
            yield server.dsn
