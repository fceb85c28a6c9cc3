"""Events as lines: one for each, for people or for machines.

::

    2027-03-14T07:00:00.004Z fired engine=peers jobs=12 runs=12 skips=0 lag_p50=1.2ms lag_max=3.9ms
    2027-03-14T07:00:01.250Z WARNING service interrupted service=Peers error="…" again_in=250ms
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import datetime, timedelta
from functools import cache
from typing import Final, TextIO

from mainspring.domain.durations import format_duration
from mainspring.telemetry.events import (
    AnyEvent,
    JobQuarantined,
    LeadershipLost,
    LoopStalled,
    NodeDeclaredDead,
    ServiceFailed,
    ServiceInterrupted,
    Subscriber,
)

_LEVELS: Final[dict[type[AnyEvent], str]] = {
    JobQuarantined: "error",
    LeadershipLost: "warning",
    LoopStalled: "warning",
    NodeDeclaredDead: "warning",
    ServiceFailed: "error",
    ServiceInterrupted: "warning",
}
_BARE: Final = re.compile(r"[\w.:/+@-]+", re.ASCII)


def log_to(stream: TextIO, *, now: Callable[[], datetime], as_json: bool = False) -> Subscriber:
    """Return a subscriber that writes each event to ``stream``, stamped with ``now()``."""
    render = json_line if as_json else plain_line

    def write(event: AnyEvent) -> None:
        stream.write(render(event, now()) + "\n")  # one write, so that lines of two writers do not mix

    return write


def plain_line(event: AnyEvent, at: datetime) -> str:
    level = _LEVELS.get(type(event))
    words = [_stamp(at), *([level.upper()] if level else []), name_of(event).replace("_", " ")]
    return " ".join([*words, *(f"{name}={_plain(value)}" for name, value in _values(event))])


def json_line(event: AnyEvent, at: datetime) -> str:
    """Write an event as one JSON object; durations are seconds, ids and instants are strings."""
    head = {"at": _stamp(at), "level": _LEVELS.get(type(event), "info"), "event": name_of(event)}
    return json.dumps(head | {name: _machine(value) for name, value in _values(event)})


def name_of(event: AnyEvent) -> str:
    """Return the name that logs and metrics give this kind of event: ``service_interrupted``."""
    return _snake_case(type(event).__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _values(event: AnyEvent) -> Iterator[tuple[str, object]]:
    return ((field.name, getattr(event, field.name)) for field in fields(event))


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return _duration(value)
        case datetime():
            return _stamp(value)
    text = str(value)
    if _BARE.fullmatch(text):
        return text
    # Whatever an error message holds, it stays on this line and does not steer the terminal.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _duration(value: timedelta) -> str:
    if timedelta(0) < abs(value) < timedelta(seconds=1):
        return f"{value / timedelta(milliseconds=1):.3g}ms"
    return format_duration(value) if value >= timedelta(0) else f"-{format_duration(-value)}"


def _machine(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case timedelta():
            return value.total_seconds()
        case datetime():
            return _stamp(value)
    return str(value)
