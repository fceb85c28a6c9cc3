"""A proxy between client and server that cuts connections: before a request has gone on, or after it was answered."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

BEFORE, AFTER = "before", "after"
METHODS = (b"GET ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ")


@dataclass
class Proxy:
    """Passes bytes on. ``plan`` says, request by request, when to cut; requests to ``/me`` are not counted."""

    url: str = ""
    plan: deque[str | None] = field(default_factory=deque)
    heads: list[bytes] = field(default_factory=list)  # of all requests that came here
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def count(self, method: str) -> int:
        return sum(head.startswith(method.encode()) for head in self.heads)

    def keys(self) -> list[bytes]:
        """Return the idempotency keys that came along, in order."""
        lines = [line for head in self.heads for line in head.split(b"\r\n")]
        return [line.partition(b": ")[2] for line in lines if line.lower().startswith(b"idempotency-key")]

    def cut_all(self) -> None:
        for writer in list(self.open):
            writer.transport.abort()


@asynccontextmanager
async def proxy_to(server: str) -> AsyncIterator[Proxy]:
    where = urlsplit(server)
    proxy = Proxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection(where.hostname, where.port)
        proxy.open.add(writer)
        back = asyncio.create_task(_pass_on(there, writer))
        try:
            while part := await reader.read(1 << 20):
                when = None
                if part.startswith(METHODS):
                    proxy.heads.append(part.partition(b"\r\n\r\n")[0])
                    if b"/me HTTP" not in part and proxy.plan:
                        when = proxy.plan.popleft()
                if when == BEFORE:
                    break
                if when == AFTER:
                    back.cancel()
                    await asyncio.wait([back])
                    onward.write(part)
                    await there.read(1 << 20)  # the server has done it, and said so: to nobody
                    break
                onward.write(part)
                await onward.drain()
        except ConnectionError:
            pass
        finally:
            proxy.open.discard(writer)
            back.cancel()
            writer.transport.abort()
            onward.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        listening.close()
        proxy.cut_all()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(1 << 20):
            writer.write(part)
            await writer.drain()
        writer.close()
    except ConnectionError:
        writer.transport.abort()
