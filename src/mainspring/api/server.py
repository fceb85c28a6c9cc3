"""The server: listens, and at the end lets everybody finish who has begun."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from mainspring.api.connection import Application, Connections, Limits
from mainspring.domain.errors import InvalidRequest
from mainspring.service import Stop

_BACKLOG: Final = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    or_any_port: bool = False  # if that one is taken
    drain: timedelta = timedelta(seconds=10)
    limits: Limits = Limits()  # noqa: RUF009 - frozen


def bound(config: ServerConfig) -> socket.socket:
    """Return a socket that listens.

    Raises:
        InvalidRequest: the address is not ours, or taken.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # The protocol by its name: asyncio sets TCP_NODELAY only where it reads TCP; without it answers wait for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((config.host, config.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if config.or_any_port and error.errno == errno.EADDRINUSE:
            return bound(replace(config, port=0, or_any_port=False))
        where = f"{config.host}:{config.port}"
        allowed = "choose another port, or 0 for any that is free"
        reason = f"{where} cannot be listened on: {error.strerror or error}"
        raise InvalidRequest(reason, field="api.port", value=config.port, allowed=allowed) from error
    listening.setblocking(False)
    return listening


class Server:
    """Serves an application until the stop; a service as any other."""

    name = "Api"

    def __init__(
        self, application: Application, listening: socket.socket, config: ServerConfig, ending: asyncio.Event
    ) -> None:
        self._application = application
        self._listening = listening
        self._config = config
        self._ending = ending  # tells the streams to end: they would not by themselves

    async def run(self, stop: Stop) -> None:
        connections = Connections(self._application, self._config.limits)
        loop = asyncio.get_running_loop()
        accepting = await loop.create_server(connections.connect, sock=self._listening, backlog=_BACKLOG)
        try:
            await stop.wait()
            accepting.close()
            self._ending.set()
            await connections.stop(self._config.drain)
        finally:
            accepting.close()
            await connections.abort()
