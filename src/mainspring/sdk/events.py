"""Events over HTTP: a stream that is opened again when it ends, behind the last event that came.

At least once becomes once: what comes again after that is known by its id and its text, and left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from mainspring.domain.errors import Unavailable
from mainspring.domain.views import Event
from mainspring.sdk.http import Http, refusal
from mainspring.sdk.looking import Seen
from mainspring.sdk.session import Outgoing

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 15.0


class Told(NamedTuple):
    """A message of a stream, as it stands there."""

    kind: str
    id: str
    data: str


async def messages(lines: AsyncIterator[bytes]) -> AsyncIterator[Told]:
    """Read server-sent events from their lines; comments, and fields that nobody needs, are left out.

    An id alone is a message without data: from there on nothing is to be missed.
    """
    kind, id_, data, named = "message", "", list[str](), False
    async for line in lines:
        if not line:
            if data or named:
                yield Told(kind, id_, "\n".join(data))
            kind, data, named = "message", [], False
            continue
        name, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id":
            id_, named = value, True


async def over_http(http: Http, query: Mapping[str, Any]) -> AsyncGenerator[Event]:
    """Give events for ever, from now on; the stream is opened again behind the last one when it ends.

    Raises:
        Unavailable: the server was away from the beginning. Once it has answered, it is waited for.
        MainspringError: the server refuses it: what is looked at is not there, or the key is not good any more.
    """
    seen, last, pause, opened = Seen(), None, _FIRST_PAUSE, False
    while True:
        try:
            async with http.listen(query, last) as (answer, lines):
                if answer.status >= 300:
                    raise refusal(Outgoing("GET", f"{http.url}/events", {}, None), answer)
                opened = True
                async for told in messages(lines):
                    pause = _FIRST_PAUSE
                    if told.kind == "end":  # we were too slow, or not welcome any more: the next answer tells
                        break
                    last = told.id or last
                    if told.data and seen.is_new(told.id, told.data):
                        yield _event(told)
        except Unavailable:
            if not opened:
                raise
        await http.env.sleep(pause * (0.5 + http.env.random() / 2))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _event(told: Told) -> Event:
    data = msgspec.json.decode(told.data)
    return Event(kind=told.kind, at=datetime.fromisoformat(data["at"]), id=told.id, data=data)
