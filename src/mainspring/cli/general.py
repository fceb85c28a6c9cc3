"""Options that stand before the command: which server, and who asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, ParamSpec

import click

_META: Final = "mainspring.general"  # where the context of a command keeps them
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True, kw_only=True)
class General:
    """What was said before the command."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    insecure: bool = False
    curl: bool = False


def remember(context: click.Context, general: General) -> None:
    context.meta[_META] = general


def general_options() -> General:
    """Return what was said before this command."""
    found = click.get_current_context().meta.get(_META)
    return found if isinstance(found, General) else General()


def on_database(command: Callable[_P, None]) -> Callable[_P, None]:
    """Refuse what is said of a server: this command works on the database itself, and would do so all the same."""
    return _refusing(command, ("url", "key", "insecure", "curl"), "works on the database itself")


def offline(command: Callable[_P, None]) -> Callable[_P, None]:
    """Refuse ``--curl``: this command asks nobody for anything."""
    return _refusing(command, ("curl",), "asks nobody for anything")


def _refusing(command: Callable[_P, None], options: tuple[str, ...], why: str) -> Callable[_P, None]:
    @wraps(command)
    def wrapped(*args: _P.args, **given: _P.kwargs) -> None:
        general: Any = general_options()
        for option in options:
            if getattr(general, option) not in (None, False):
                path = click.get_current_context().command_path
                raise click.UsageError(f"--{option} is for a server, and `{path}` {why}: leave it out")
        command(*args, **given)

    return wrapped
