"""Server-sent events: what happens, as it happens.

One reader for each tenant and filter, however many look on; it reads twice a second, and only while somebody does.
Events come at least once: after ``Last-Event-ID`` some of the last seconds come again. Whoever reads too slowly is let
go, with a word, and comes back by itself; nothing piles up for it here. A stream ends when its key or token does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from mainspring.api.app import Gate, Handler
from mainspring.api.desk import Desk
from mainspring.api.patience import within
from mainspring.api.requests import Call, Reply
from mainspring.domain.errors import Forbidden, InvalidRequest, MainspringError, Unauthenticated, Unavailable
from mainspring.domain.ids import JobId
from mainspring.rest.routes import SSE
from mainspring.store import feed
from mainspring.store.feed import Happened

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
_OLDEST: Final = timedelta(hours=1)  # how far back Last-Event-ID may lead

TOO_SLOW: Final = "too slow"
NOT_ALLOWED: Final = "not allowed any more"
STOPPING: Final = "the server stops"
AWAY: Final = "not available at the moment"


class _Watched(NamedTuple):
    tenant: str
    job: JobId | None
    run: UUID | None


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
        self._open = 0
        self._channels: dict[_Watched, _Channel] = {}
        self._farewell: asyncio.Task[None] | None = None
        self.ending = asyncio.Event()  # the server is about to stop

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"events.stream": self.stream}

    async def stream(self, call: Call) -> Reply:
        job = None if call.query.job is None else (await self._desk.of(call).find_job(call.query.job)).id
        if call.query.run is not None:
            await self._desk.of(call).find_run(call.query.run)  # of this tenant
        watched = _Watched(call.principal.tenant, job, call.query.run)
        since = _since(call.headers.get("last-event-id"))
        if self._open >= self._most or self.ending.is_set():  # last: nothing may come between this and the stream
            raise TooManyStreams(f"there are {self._open} streams already; try again later")
        return Reply(media=SSE, headers={"X-Accel-Buffering": "no"}, parts=self._parts(call, watched, since))

    async def _parts(self, call: Call, watched: _Watched, since: datetime | None) -> AsyncGenerator[bytes]:
        reader = _Reader()
        channel = self._join(watched, reader)
        try:
            yield b": welcome\nretry: 1000\n\n"
            if since is not None:
                try:
                    async with aclosing(self._missed(watched, channel, since)) as missed:
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
        scope = call.route.scope
        return principal.tenant == call.principal.tenant and (scope is None or principal.may(scope))

    def _join(self, watched: _Watched, reader: _Reader) -> _Channel:
        self._open += 1
        channel = self._channels.setdefault(watched, _Channel())
        channel.readers.add(reader)
        if channel.reading is None:
            channel.reading = asyncio.create_task(self._read(watched, channel))
        if self._farewell is None:
            self._farewell = asyncio.create_task(self._say_farewell())
        return channel

    def _leave(self, watched: _Watched, channel: _Channel, reader: _Reader) -> None:
        self._open -= 1
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

    async def _read(self, watched: _Watched, channel: _Channel) -> None:
        """Look again and again, and tell what was not there the last time."""
        db = self._desk.db.scoped(watched.tenant)
        since: datetime | None = None
        seen: set[tuple[UUID, str]] = set()
        while True:
            try:
                if since is None:
                    since = await within(_LOOK_WITHIN, feed.now(db))
                seen, since = await within(_LOOK_WITHIN, self._look(watched, channel, seen, since))
                channel.looked.set()
            except (Unavailable, TimeoutError):
                pass  # the database is away: nothing happens either
            except Exception:
                _logger.exception("the events of tenant %s cannot be read", watched.tenant)
                channel.end(AWAY)
            await asyncio.sleep(_LOOK_EVERY)

    async def _look(
        self, watched: _Watched, channel: _Channel, seen: set[tuple[UUID, str]], since: datetime
    ) -> tuple[set[tuple[UUID, str]], datetime]:
        """Tell what is new; return what there was, and how far it goes.

        What was over at the first look is no news, what is in motion is. One look is enough to remember, for what is
        not in it any more does not come back.
        """
        found: set[tuple[UUID, str]] = set()
        start, told_before = since - feed.BEHIND, channel.looked.is_set()
        db = self._desk.db.scoped(watched.tenant)
        async with aclosing(feed.happened(db, watched.tenant, start, job=watched.job, run=watched.run)) as pages:
            async for page in pages:
                found.update((event.id, event.state) for event in page)
                new = [each for each in page if (each.id, each.state) not in seen and (told_before or each.moving)]
                await channel.tell(new)
                since = max([since, *(event.at for event in page)])
        return found, since

    async def _missed(self, watched: _Watched, channel: _Channel, since: datetime) -> AsyncGenerator[bytes]:
        """Yield what happened since, up to what the channel will tell."""
        async with asyncio.timeout(_BEAT_EVERY):
            await channel.looked.wait()  # else what is written between the two looks is in neither
        db = self._desk.db.scoped(watched.tenant)
        start = max(since - feed.BEHIND, await feed.now(db) - _OLDEST)
        async with aclosing(feed.happened(db, watched.tenant, start, job=watched.job, run=watched.run)) as pages:
            async for page in pages:
                if page:
                    yield b"".join(map(_written, page))


def _since(last: str | None) -> datetime | None:
    if not last:
        return None
    number = last.partition(".")[0]
    if not number.isascii() or not number.isdecimal() or len(number) > 17:
        allowed = "send the id of the last event, or leave it out"
        raise InvalidRequest("it is no id of an event", field="Last-Event-ID", value=last[:40], allowed=allowed)
    return _EPOCH + int(number) * _MICROSECOND


def _written(event: Happened) -> bytes:
    number = (event.at - _EPOCH) // _MICROSECOND
    content = {name: value for name, value in event.content.items() if name != "at"}
    data = msgspec.json.encode({**content, "at": event.at})
    return f"id: {number}.{event.id.hex[-12:]}\nevent: {event.kind}\ndata: ".encode() + data + b"\n\n"
