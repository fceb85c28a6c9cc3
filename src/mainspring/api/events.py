"""Server-sent events: what happens, as it happens.

One reader for each tenant and filter, however many look on; it reads twice a second, and only while somebody does.
Events come at least once: after ``Last-Event-ID`` some of the last seconds come again. Whoever reads too slowly is let
go, with a word, and comes back by itself; nothing piles up for it here. A stream ends when its key or token does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from mainspring.api.app import Gate, Handler
from mainspring.api.desk import Desk
from mainspring.api.keeping import Kept
from mainspring.api.patience import within
from mainspring.api.requests import Call, Reply
from mainspring.domain.access import Scope
from mainspring.domain.errors import Forbidden, InvalidRequest, MainspringError, Unauthenticated, Unavailable
from mainspring.rest.routes import SSE
from mainspring.store import feed
from mainspring.store.feed import Happened, Watched

_logger = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.5
_LOOK_WITHIN: Final = 30.0
_BEAT_EVERY: Final = 10.0  # a comment, so that proxies do not hang up; then it is also asked again who is listening
_MOST_WAITING: Final = 256 << 10  # bytes, for one reader
_AT_ONCE: Final = 100  # events that are told before readers get a turn
_TURNS: Final = 20
_TURN: Final = 0.05
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SHARE: Final = 0.75  # of all streams, that one tenant may have: some are left for the others
_OLDEST: Final = timedelta(hours=1)  # how far back Last-Event-ID may lead

_HORIZON: Final = "0"  # what an id ends with that is no event's

TOO_SLOW: Final = "too slow"
NOT_ALLOWED: Final = "not allowed any more"
STOPPING: Final = "the server stops"
AWAY: Final = "not available at the moment"


class TooManyStreams(Unavailable):
    code = "too_many_streams"


class _Reader:
    """What one stream has still to send: a little, or the word that it is over."""

    __slots__ = ("_length", "_news", "_texts", "ended")

    def __init__(self) -> None:
        self._texts: deque[bytes] = deque()
        self._length = 0
        self._news = asyncio.Event()
        self.ended: str | None = None

    @property
    def behind(self) -> bool:
        return self._length > _MOST_WAITING // 2

    def tell(self, text: bytes) -> None:
        if self._length + len(text) > _MOST_WAITING:
            self.end(TOO_SLOW)
        elif self.ended is None:
            self._texts.append(text)
            self._length += len(text)
            self._news.set()

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self._texts.clear()
        self._length = 0
        self._news.set()

    async def take(self, seconds: float) -> bytes:
        """Return what is there, or nothing after a while, or when it has ended."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return b""
        taken = b"".join(self._texts)
        self._texts.clear()
        self._length = 0
        if self.ended is None:
            self._news.clear()
        return taken


class _Channel:
    """Those who look at the same thing."""

    def __init__(self) -> None:
        self.readers: set[_Reader] = set()
        self.looked = asyncio.Event()  # from now on whatever is new is told
        self.since = _EPOCH  # what happened before was told, as far as it was news
        self.reading: asyncio.Task[None] | None = None

    async def tell(self, events: list[Happened]) -> None:
        """Tell everybody; in a burst, wait a moment for those who read as fast as they can."""
        for first in range(0, len(events), _AT_ONCE):
            for text in map(_written, events[first : first + _AT_ONCE]):
                for reader in self.readers:
                    reader.tell(text)
            await asyncio.sleep(0)
            for _ in range(_TURNS):
                if not any(reader.behind for reader in self.readers):
                    break
                await asyncio.sleep(_TURN)
            else:
                for reader in self.readers:
                    if reader.behind:
                        reader.end(TOO_SLOW)

    def end(self, why: str) -> None:
        for reader in self.readers:
            reader.end(why)


class Streams:
    """Handler of the route of events, and all who listen."""

    def __init__(self, desk: Desk, gate: Gate, *, most: int = 2_000) -> None:
        self._desk = desk
        self._gate = gate
        self._most = most
        self._open = Counter[str]()  # streams of each tenant
        self._channels: dict[Watched, _Channel] = {}
        self._horizon = Kept(lambda: feed.horizon(desk.db), desk.env, lasts=_LOOK_EVERY)  # an older one is as good
        self._farewell: asyncio.Task[None] | None = None
        self.ending = asyncio.Event()  # the server is about to stop

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"events.stream": self.stream}

    async def stream(self, call: Call) -> Reply:
        job = None if call.query.job is None else (await self._desk.of(call).find_job(call.query.job)).id
        if call.query.run is not None:
            await self._desk.of(call).find_run(call.query.run)  # of this tenant
        tenant, sees_changes = call.principal.tenant, call.principal.may(Scope.CHANGES_READ)
        watched = Watched(tenant, job, call.query.run, changes=sees_changes)
        since = _since(call.headers.get("last-event-id"))
        # Last: nothing may come between this and the stream.
        if self._open.total() >= self._most or self.ending.is_set():
            raise TooManyStreams(f"there are {self._open.total()} streams already; try again later")
        if self._open[tenant] >= self._most * _SHARE:
            raise TooManyStreams(f"you have {self._open[tenant]} streams already; close some")
        return Reply(media=SSE, headers={"X-Accel-Buffering": "no"}, parts=self._parts(call, watched, since))

    async def _parts(self, call: Call, watched: Watched, since: datetime | None) -> AsyncGenerator[bytes]:
        reader = _Reader()
        channel = self._join(watched, reader)
        try:
            try:
                async with asyncio.timeout(_BEAT_EVERY):
                    await channel.looked.wait()  # else what is written between two looks is in neither
                # With an id, so that whoever is cut off before the first event misses nothing either.
                yield f": welcome\nid: {_number(channel.since)}.{_HORIZON}\nretry: 1000\n\n".encode()
                async with aclosing(self._missed(watched, since)) as missed:
                    async for text in missed:
                        yield text
            except (Unavailable, TimeoutError):
                reader.end(AWAY)
            async with aclosing(self._listened(call, reader)) as coming:
                async for text in coming:
                    yield text
            yield f"event: end\ndata: {reader.ended}\n\n".encode()
        finally:
            self._leave(watched, channel, reader)

    async def _listened(self, call: Call, reader: _Reader) -> AsyncGenerator[bytes]:
        """Yield what is told, and a beat now and then, until the reader has ended."""
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + self._until_asked(call)
        while reader.ended is None:
            text = await reader.take(max(0.0, beat_at - loop.time()))
            # By the clock: one who hears something all the time is asked no less than one who hears nothing.
            if loop.time() >= beat_at:
                if not await self._allowed(call):
                    reader.end(NOT_ALLOWED)
                    return
                beat_at = loop.time() + self._until_asked(call)
                text = text or b": here\n\n"
            if text:
                yield text

    def _until_asked(self, call: Call) -> float:
        """Return in how many seconds to ask again: at a beat, or when the key or token ends."""
        expires_at = call.principal.expires_at
        if expires_at is None:
            return _BEAT_EVERY
        return min(_BEAT_EVERY, max(0.05, (expires_at - self._desk.env.now()).total_seconds()))

    async def _allowed(self, call: Call) -> bool:
        try:
            principal = await self._gate.principal(call.headers, call.peer)
        except (Unauthenticated, Forbidden):
            return False
        except MainspringError:
            return True  # the store is away; whoever was let in stays for now
        scope, was = call.route.scope, call.principal
        as_much = principal.may(Scope.CHANGES_READ) or not was.may(Scope.CHANGES_READ)
        return principal.tenant == was.tenant and as_much and (scope is None or principal.may(scope))

    def _join(self, watched: Watched, reader: _Reader) -> _Channel:
        self._open[watched.tenant] += 1
        channel = self._channels.setdefault(watched, _Channel())
        channel.readers.add(reader)
        if channel.reading is None:
            channel.reading = asyncio.create_task(self._read(watched, channel))
        if self._farewell is None:
            self._farewell = asyncio.create_task(self._say_farewell())
        return channel

    def _leave(self, watched: Watched, channel: _Channel, reader: _Reader) -> None:
        self._open[watched.tenant] -= 1
        if not self._open[watched.tenant]:
            del self._open[watched.tenant]
        channel.readers.discard(reader)
        if not channel.readers:
            if channel.reading is not None:
                channel.reading.cancel()
                channel.reading = None
            if self._channels.get(watched) is channel:
                del self._channels[watched]
        if not self._channels and self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None

    async def _say_farewell(self) -> None:
        await self.ending.wait()
        for channel in self._channels.values():
            channel.end(STOPPING)

    async def _read(self, watched: Watched, channel: _Channel) -> None:
        """Look again and again, and tell what was not there the last time."""
        since: datetime | None = None
        seen: set[tuple[UUID, str]] = set()
        while True:
            try:
                # Before the look: what is not in it has been stamped since, or will be.
                horizon = await within(_LOOK_WITHIN, self._horizon.get())
                seen = await within(_LOOK_WITHIN, self._look(watched, channel, seen, since or horizon))
                since = channel.since = max(since or horizon, horizon)
                channel.looked.set()
            except (Unavailable, TimeoutError):
                pass  # the database is away: nothing happens either
            except Exception:
                _logger.exception("the events of tenant %s cannot be read", watched.tenant)
                channel.end(AWAY)
            await asyncio.sleep(_LOOK_EVERY)

    async def _look(
        self, watched: Watched, channel: _Channel, seen: set[tuple[UUID, str]], since: datetime
    ) -> set[tuple[UUID, str]]:
        """Tell what is new; return what there was.

        What was over at the first look is no news, what is in motion is. One look is enough to remember, for what is
        not in it any more does not come back.
        """
        found: set[tuple[UUID, str]] = set()
        told_before = channel.looked.is_set()
        db = self._desk.db.scoped(watched.tenant)
        async with aclosing(feed.happened(db, watched, since)) as pages:
            async for page in pages:
                found.update((event.id, event.state) for event in page)
                new = [each for each in page if (each.id, each.state) not in seen and (told_before or each.moving)]
                await channel.tell(new)
        return found

    async def _missed(self, watched: Watched, since: datetime | None) -> AsyncGenerator[bytes]:
        """Yield what happened since, up to what the channel will tell; of one run also how it ended."""
        db = self._desk.db.scoped(watched.tenant)
        if since is None:
            for event in await feed.ending(db, watched):
                yield _written(event)
            return
        start = max(since, await feed.now(db) - _OLDEST)
        async with aclosing(feed.happened(db, watched, start)) as pages:
            async for page in pages:
                if page:
                    yield b"".join(map(_written, page))


def _since(last: str | None) -> datetime | None:
    """Return from when on something may have been missed: a horizon, or a while before the last event."""
    if not last:
        return None
    number, _, rest = last.partition(".")
    if not number.isascii() or not number.isdecimal() or len(number) > 17:
        allowed = "send the id of the last event, or leave it out"
        raise InvalidRequest("it is no id of an event", field="Last-Event-ID", value=last[:40], allowed=allowed)
    at = _EPOCH + int(number) * _MICROSECOND
    return at if rest == _HORIZON else at - feed.LONGEST


def _number(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _written(event: Happened) -> bytes:
    content = {name: value for name, value in event.content.items() if name != "at"}
    data = msgspec.json.encode({**content, "at": event.at})
    return f"id: {_number(event.at)}.{event.id.hex[-12:]}\nevent: {event.kind}\ndata: ".encode() + data + b"\n\n"
