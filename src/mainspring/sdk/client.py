"""``Client``: submit runs, and look after jobs, runs and dead letters. Opens its connection when it is entered.

::

    async with Client() as ms:  # MAINSPRING_DSN, or the server of `mainspring dev` in this directory
        run = await ms.submit(welcome, 7, template="vip")
        text = await run.result(timeout=30)
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from mainspring import embedded
from mainspring.domain.asking import Request
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import check_payload
from mainspring.sdk.direct import Direct, open_direct
from mainspring.sdk.handles import Run
from mainspring.sdk.nouns import DeadLetters, Jobs, Runs, Workers
from mainspring.tasks.arguments import written
from mainspring.tasks.task import Call, Task

if TYPE_CHECKING:
    from mainspring.sdk.sync import SyncClient

P = ParamSpec("P")
R = TypeVar("R")
DSN: Final = "MAINSPRING_DSN"
_TASK: Final = attrgetter("task")


class Client:
    """Speaks to Mainspring for one tenant.

    >>> Client("postgresql://localhost/jobs", tenant="shop").tenant
    'shop'
    """

    def __init__(
        self, dsn: str | None = None, *, tenant: str = "default", author: str = "", connections: int = 10
    ) -> None:
        """Remember where to connect to; nothing is opened yet.

        Args:
            dsn: a Postgres; else MAINSPRING_DSN, else that of a ``mainspring dev`` which runs in this directory.
            tenant: whose jobs.
            author: who is written beside changes.
            connections: at most so many at once.
        """
        self.tenant = tenant
        self._dsn = dsn
        self._author = author
        self._connections = connections
        self._stack = AsyncExitStack()
        self._backend: Direct | None = None

    async def __aenter__(self) -> Self:
        opened = open_direct(self._dsn or found_dsn(), tenant=self.tenant, author=self._author, size=self._connections)
        self._backend = await self._stack.enter_async_context(opened)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._backend = None
        await self._stack.aclose()

    @property
    def jobs(self) -> Jobs:
        return Jobs(self._direct, self.tenant)

    @property
    def runs(self) -> Runs:
        return Runs(self._direct)

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self._direct)

    @property
    def workers(self) -> Workers:
        return Workers(self._direct)

    async def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Ask for one run of a task; it is durable when this returns.

        Raises:
            InvalidRequest: the task cannot be called like this.
        """
        return await self.submit_call(task.call(*args, **kwargs))

    async def submit_call(self, call: Call[R]) -> Run[R]:
        """Ask for a run by a call that was made before."""
        (run_id,) = await self._direct.submit(call.task.job(tenant=self.tenant), [request_of(call)])
        return Run(self._direct, run_id, call.task.returns)

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[Run[R]]:
        """Ask for very many runs, in order: ``client.submit_many(welcome.calls((user,) for user in users))``.

        Each 25,000 are written together, or not at all; with keys it is safe to repeat the whole.
        """
        made: list[Run[R]] = []
        for task, alike in groupby(calls, key=_TASK):  # taken as they are written, not before
            ids = await self._direct.submit_many(task.job(tenant=self.tenant), map(request_of, alike))
            made += [Run(self._direct, run_id, task.returns) for run_id in ids]
        return made

    def using(self, connection: Any) -> Transactional:
        """Submit within a transaction of your own: asyncpg, psycopg or SQLAlchemy; both are committed, or neither.

        ::

            async with pool.acquire() as conn, conn.transaction():
                await conn.execute("INSERT INTO orders …")
                await client.using(conn).submit(ship, order_id)
        """
        return Transactional(self._direct, connection, self.tenant)

    @classmethod
    def sync(cls, dsn: str | None = None, **options: Any) -> SyncClient:
        """Return a blocking client with the same names, for scripts, notebooks and web applications without a loop.

        It connects when it is first used, and works inside a running loop too, in a thread of its own. ::

            text = Client.sync().submit(welcome, 7).result(timeout=30)
        """
        from mainspring.sdk.sync import SyncClient  # noqa: PLC0415 - it is made of this one

        return SyncClient(cls(dsn, **options))

    @property
    def backend(self) -> Direct:
        """What stands behind this client, while it is open."""
        return self._direct

    @property
    def _direct(self) -> Direct:
        if self._backend is None:
            raise RuntimeError("the client is not open: use it as `async with Client() as client`")
        return self._backend


class Transactional:
    """A client whose submissions are part of somebody's transaction."""

    def __init__(self, backend: Direct, connection: Any, tenant: str) -> None:
        self._backend = backend
        self._connection = connection
        self._tenant = tenant

    async def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Ask for a run that exists if and when the transaction commits."""
        call = task.call(*args, **kwargs)
        known = await self._backend.known_job(task.job(tenant=self._tenant))
        (run_id,) = await self._backend.submit_through(self._connection, known, [request_of(call)])
        return Run(self._backend, run_id, task.returns)


def request_of(call: Call[Any]) -> Request:
    """Return a call as the ledger wants it."""
    return call.options._replace(payload=check_payload(written(call.payload))) if call.payload else call.options


def found_dsn() -> str:
    """Return where the ledger is, as the surroundings say.

    Raises:
        InvalidRequest: they do not say.
    """
    given = os.environ.get(DSN)
    if given:
        return given
    running = embedded.dsn_of_running(embedded.default_data_dir(Path(".mainspring")))
    if running is None:
        reason = f"{DSN} is not set, and no `mainspring dev` runs in this directory"
        raise InvalidRequest(reason, field="dsn", value="", allowed=f"set {DSN}, pass dsn=, or start one")
    return running
