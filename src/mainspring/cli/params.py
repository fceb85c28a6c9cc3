"""Values on the command line that are not just text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
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
