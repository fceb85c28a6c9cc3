"""Values on the command line that are not just text."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidRequest


class Instant(click.ParamType[datetime]):
    """An RFC 3339 instant."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f'"{value}" is not an instant; write it as 2026-11-15T09:30:00Z', param, ctx)
        if instant.tzinfo is None:
            self.fail(f'"{value}" has no offset; add Z for UTC, or one such as +01:00', param, ctx)
        if not 1970 <= instant.year <= 9998:
            self.fail(f'"{value}" is outside 1970 to 9998', param, ctx)
        return instant.astimezone(UTC)


class Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value, field=param.name if param and param.name else "duration")
        except InvalidRequest as error:
            self.fail(f"{error.reason}; {error.allowed}", param, ctx)


class Seconds(Duration):
    """A duration; a bare number is seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        bare = isinstance(value, str) and value.isascii() and value.isdecimal()
        return super().convert(f"{value}s" if bare else value, param, ctx)


class Moment(click.ParamType[datetime]):
    """An instant, or how long ago it was."""

    name = "instant|duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment(value, field=param.name if param and param.name else "moment")
        except InvalidRequest as error:
            self.fail(f"{error.reason}; {error.allowed}", param, ctx)


class JsonValue(click.ParamType[Any]):
    """JSON as an argument; ``@file`` reads a file, and ``@-`` what is piped in."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = self._read(value[1:], param, ctx) if value.startswith("@") else value
        try:
            return json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            self.fail(f"it is no JSON: {error}; quote it for the shell, as in '{{\"a\": 1}}'", param, ctx)

    def _read(self, path: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            self.fail(f"{path} cannot be read: {error}", param, ctx)


def moment(text: str, *, field: str) -> datetime:
    """Read an instant, or a duration as that long ago.

    Raises:
        InvalidRequest: it is neither.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - parse_duration(text, field=field)
        except (InvalidRequest, OverflowError):
            reason = f'"{text[:40]}" is neither an instant nor a duration'
            allowed = "write 2026-11-15T09:30:00Z, or 1h for an hour ago"
            raise InvalidRequest(reason, field=field, value=text, allowed=allowed) from None
    if instant.tzinfo is None:
        allowed = "add Z for UTC, or one such as +01:00"
        raise InvalidRequest(f'"{text}" has no offset', field=field, value=text, allowed=allowed)
    return instant.astimezone(UTC)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")
