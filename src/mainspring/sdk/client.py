"""``Client``: submit runs, and look after jobs, runs and dead letters. Opens its connection when it is entered.

::

    async with Client() as ms:  # MAINSPRING_URL and MAINSPRING_KEY, or MAINSPRING_DSN, or `mainspring dev` right here
        run = await ms.submit(welcome, 7, template="vip")
        text = await run.result(timeout=30)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from mainspring.domain.access import DEFAULT_TENANT
from mainspring.domain.asking import Request
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import check_payload
from mainspring.domain.views import Event
from mainspring.sdk.addresses import is_url, place
from mainspring.sdk.direct import Direct, open_direct
from mainspring.sdk.handles import Run
from mainspring.sdk.nouns import DeadLetters, Jobs, Runs, Workers
from mainspring.tasks.arguments import written
from mainspring.tasks.task import Call, Task

if TYPE_CHECKING:
    from mainspring.sdk.remote import Remote
    from mainspring.sdk.session import Through
    from mainspring.sdk.sync import SyncClient

P = ParamSpec("P")
R = TypeVar("R")
_TASK: Final = attrgetter("task")


class Client:
    """Speaks to Mainspring for one tenant: through a server, or straight to the database.

    >>> Client("https://jobs.example.com", "ms_abc_secret")
    <client of https://jobs.example.com>
    >>> Client("postgresql://localhost/jobs", tenant="shop").tenant
    'shop'
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        tenant: str | None = None,
        author: str = "",
        connections: int = 10,
        insecure: bool = False,
        through: Through | None = None,
    ) -> None:
        """Remember where to connect to; nothing is opened yet.

        Args:
            url: a server by https://, or a database by postgresql://; else MAINSPRING_URL (with MAINSPRING_KEY), else
                MAINSPRING_DSN, else the database of a ``mainspring dev`` which runs in this directory.
            key: who we are to the server.
            tenant: whose jobs; a server knows it by the key, and lets those of the whole cluster choose.
            author: who is written beside changes; a server knows that by the key, too.
            connections: at most so many at once.
            insecure: allow http:// to another machine, where keys and payloads can be read on the way.
            through: what every request to a server passes on its way; for looking on, and for tests.
        """
        self.tenant = tenant or DEFAULT_TENANT
        self._url = url
        self._key = key
        self._asked_tenant = tenant
        self._author = author
        self._connections = connections
        self._insecure = insecure
        self._through = through
        self._stack = AsyncExitStack()
        self._opened: Direct | Remote | None = None

    async def __aenter__(self) -> Self:
        where = place(self._url, self._key)
        if not where.served:
            self._opened = await self._stack.enter_async_context(
                open_direct(where.address, tenant=self.tenant, author=self._author, size=self._connections)
            )
            return self
        from mainspring.sdk.remote import open_remote  # noqa: PLC0415 - an HTTP client costs as much as all the rest

        remote = await self._stack.enter_async_context(
            open_remote(
                where.address,
                where.key,
                tenant=self._asked_tenant,
                size=self._connections,
                insecure=self._insecure,
                through=self._through,
            )
        )
        self.tenant, self._opened = remote.tenant, remote
        return self

    async def __aexit__(self, *_: object) -> None:
        self._opened = None
        await self._stack.aclose()

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.backend, self.tenant)

    @property
    def runs(self) -> Runs:
        return Runs(self.backend)

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self.backend)

    @property
    def workers(self) -> Workers:
        return Workers(self.backend)

    async def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Ask for one run of a task; it is durable when this returns.

        Raises:
            InvalidRequest: the task cannot be called like this.
        """
        return await self.submit_call(task.call(*args, **kwargs))

    async def submit_call(self, call: Call[R]) -> Run[R]:
        """Ask for a run by a call that was made before."""
        (run_id,) = await self.backend.submit(call.task.job(tenant=self.tenant), [request_of(call)])
        return Run(self.backend, run_id, call.task.returns)

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[Run[R]]:
        """Ask for very many runs, in order: ``client.submit_many(welcome.calls((user,) for user in users))``.

        Each 25,000 are written together, or not at all (5,000 through a server); with keys it is safe to repeat the
        whole.
        """
        made: list[Run[R]] = []
        for task, alike in groupby(calls, key=_TASK):  # taken as they are written, not before
            ids = await self.backend.submit_many(task.job(tenant=self.tenant), map(request_of, alike))
            made += [Run(self.backend, run_id, task.returns) for run_id in ids]
        return made

    def watch(self) -> AsyncGenerator[Event]:
        """Give what happens from now on, for ever: runs that end, and changes. ``runs.watch`` has every state of one.

        ::

            async for event in client.watch():
                print(event.kind, event.data)
        """
        return self.backend.watch(job=None, run=None)

    def using(self, connection: Any) -> Transactional:
        """Submit within a transaction of your own: asyncpg, psycopg or SQLAlchemy; both are committed, or neither.

        ::

            async with pool.acquire() as conn, conn.transaction():
                await conn.execute("INSERT INTO orders …")
                await client.using(conn).submit(ship, order_id)

        Raises:
            InvalidRequest: there is a server between us and the database.
        """
        return Transactional(self.ledger, connection, self.tenant)

    @classmethod
    def sync(cls, url: str | None = None, key: str | None = None, **options: Any) -> SyncClient:
        """Return a blocking client with the same names, for scripts, notebooks and web applications without a loop.

        It connects when it is first used, and works inside a running loop too, in a thread of its own. ::

            text = Client.sync().submit(welcome, 7).result(timeout=30)
        """
        from mainspring.sdk.sync import SyncClient  # noqa: PLC0415 - it is made of this one

        return SyncClient(cls(url, key, **options))

    @property
    def backend(self) -> Direct | Remote:
        """What stands behind this client, while it is open."""
        if self._opened is None:
            raise RuntimeError("the client is not open: use it as `async with Client() as client`")
        return self._opened

    @property
    def ledger(self) -> Direct:
        """The database itself, for what goes without a server only.

        Raises:
            InvalidRequest: this client speaks to a server.
        """
        backend = self.backend
        if not isinstance(backend, Direct):
            allowed = "open a client on the database for that: Client(dsn)"
            reason = "a server cannot take part in a transaction of yours"
            raise InvalidRequest(reason, field="url", value=self._url or "", allowed=allowed)
        return backend

    def __repr__(self) -> str:
        shown = self._url is not None and is_url(self._url) and "@" not in self._url  # passwords stay inside
        return f"<client of {self._url}>" if shown else "<client>"


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
