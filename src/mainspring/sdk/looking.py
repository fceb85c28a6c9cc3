"""Events over a database: by looking twice a second at what has just happened."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from mainspring.domain.errors import Unavailable
from mainspring.domain.ids import JobId
from mainspring.domain.views import Event
from mainspring.environment import Environment
from mainspring.store import feed
from mainspring.store.database import Database

_LOOK_EVERY: Final = 0.5
_MOST_SEEN: Final = 20_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Seen:
    """What was told already, as far back as anything can come again."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def is_new(self, *key: Any) -> bool:
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > _MOST_SEEN:
            self._known.popitem(last=False)
        return True


async def over_database(
    db: Database, env: Environment, tenant: str, *, job: JobId | None, run: UUID | None
) -> AsyncGenerator[Event]:
    """Give what happens from now on, for ever; what was over at the first look is no news, what is in motion is.

    Of one run its state is told first, whatever it is.
    """
    watched = feed.Watched(tenant, job, run)
    seen, since, first = Seen(), None, True
    while True:
        with suppress(Unavailable):  # while the database is away nothing happens either
            horizon = await feed.horizon(db)
            for found in await feed.ending(db, watched) if first else ():
                seen.is_new(found.id, found.state)
                yield event_of(found)
            async with aclosing(feed.happened(db, watched, since or horizon)) as pages:
                async for page in pages:
                    for found in page:
                        if seen.is_new(found.id, found.state) and (found.moving or not first):
                            yield event_of(found)
            since, first = max(since or horizon, horizon), False
        await env.sleep(_LOOK_EVERY)


def event_of(found: feed.Happened) -> Event:
    number = (found.at - _EPOCH) // _MICROSECOND
    data = msgspec.to_builtins({**found.content, "at": found.at})
    return Event(kind=found.kind, at=found.at, id=f"{number}.{found.id.hex[-12:]}", data=data)
