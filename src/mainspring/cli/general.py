"""Options that stand before the command: which server, and who asks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import click

_META: Final = "mainspring.general"  # where the context of a command keeps them


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
