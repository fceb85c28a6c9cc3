"""A line to Postgres that carries a COMMIT to the server and loses the answer: a proxy that reads along."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from mainspring.store.queries import queries

# The statement by which a transaction is known, and what its answer holds if it had nothing to do.
VERBS = {
    "fire": (queries("fire")["write_runs"], b"INSERT 0 0\0"),
    "claim": (queries("claim")["claim"], b"UPDATE 0\0"),
    "settle": (queries("settle")["finish_runs"], b"SELECT 0\0"),
}


class Line:
    """Loses the answers it is told to, and counts them."""

    def __init__(self, dsn: str) -> None:
        self._dsn = urlsplit(dsn)
        self.socket = f"{parse_qs(self._dsn.query)['host'][0]}/.s.PGSQL.5432"
        self.to_lose: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._carrying: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        try:
            yield f"postgresql://mainspring@127.0.0.1:{port}{self._dsn.path}?sslmode=disable"
        finally:
            listening.close()
            for task in self._carrying:
                task.cancel()
            await asyncio.gather(*self._carrying, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_Call(self, reader, writer).carry())
        self._carrying.add(task)


class _Call:
    """One connection, and what its transaction has said and heard so far."""

    def __init__(self, line: Line, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._line, self._client, self._to_client = line, client, to_client
        self._known: dict[bytes, str] = {}  # prepared statements, as far as they are a verb's
        self._heard = b""
        self._verb: str | None = None
        self._losing = False

    async def carry(self) -> None:
        server, to_server = await asyncio.open_unix_connection(self._line.socket)
        answers = asyncio.create_task(self._carry_answers(server))
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                to_server.write(await self._message(b""))  # the first one has no kind
                while True:
                    kind = await self._client.readexactly(1)
                    message = await self._message(kind)
                    self._note(kind, message[5:])
                    to_server.write(message)
        finally:
            answers.cancel()
            for writer in (to_server, self._to_client):
                writer.close()

    async def _message(self, kind: bytes) -> bytes:
        length = await self._client.readexactly(4)
        return kind + length + await self._client.readexactly(int.from_bytes(length) - 4)

    def _note(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"P":  # prepare: a name and the text
                name, text, _ = body.split(b"\0", 2)
                said = [verb for verb, (sql, _) in VERBS.items() if sql.encode() == text]
                self._known.pop(name, None)
                self._known.update(dict.fromkeys([name], said[0]) if said else {})
            case b"B":  # bind: a portal and the name
                self._verb = self._known.get(body.split(b"\0", 2)[1], self._verb)
            case b"Q" if body.startswith(b"BEGIN"):
                self._verb, self._heard = None, b""
            case b"Q" if body.startswith(b"COMMIT") and self._verb is not None:
                idle = VERBS[self._verb][1] in self._heard
                if self._line.to_lose[self._verb] and not idle:
                    self._line.to_lose[self._verb] -= 1
                    self._heard, self._losing = b"", True

    async def _carry_answers(self, server: asyncio.StreamReader) -> None:
        while said := await server.read(2**16):
            self._heard += said
            if not self._losing:
                self._to_client.write(said)
            elif b"COMMIT\0" in self._heard:
                assert self._verb is not None
                self._line.lost[self._verb] += 1
                self._to_client.transport.abort()
                return
        self._to_client.close()  # a client that says goodbye waits for this
