"""Whether a command only prints what it would send; apart from ``curl.py``, which brings an HTTP client along."""

from __future__ import annotations

from typing import Final

import click

_META: Final = "mainspring.curl"  # where the context of a command keeps it


class NotSent(Exception):
    """The request was printed instead. No error of ours, so that nobody takes it for an answer."""


def start_printing() -> None:
    click.get_current_context().meta[_META] = True


def only_printing() -> bool:
    """Return whether nothing will be changed, so that nobody has to be asked whether that is meant."""
    return bool(click.get_current_context().meta.get(_META))
