"""The database as the store sees it: pools, transactions, and driver errors in our words.

Works through a pooler in transaction mode: no session locks, no LISTEN, no named statements kept
across transactions unless told that the connection is direct, SET LOCAL only.

Work for one tenant goes through ``scoped()``: there every statement runs as the role that row security applies to, for
that tenant. Both are SET LOCAL, so that they end with their transaction, however it ends (F99). The role could be left
again by SQL that says so; none that we send does, and no request brings SQL along, only parameters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg

from mainspring.domain.errors import BrokenInvariant, InvalidRequest, StoreUnavailable, WrongDatabase

# What the promises rest on. Refused when off, because then an acknowledged commit may be lost.
_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")

# Set for every connection, or for every transaction behind a pooler:
#   a process that is stopped inside a transaction holds its row locks, until the server ends it, within a lease (F02).
#   Between a statement's parsing and its binding it counts as active, not as idle: from 17 on that has a limit too;
#   the verbs go by index, whatever the planner thinks of the size of a table it has not seen grow, and are never
#   compiled. Whoever reads or rewrites the whole ledger says scanning().
SESSION = {"idle_in_transaction_session_timeout": "3s", "enable_seqscan": "off", "jit": "off"}
POOLED = "pool_mode=transaction"
_SINCE_17 = {"transaction_timeout": "6s"}
TENANT_ROLE = "mainspring_tenant"  # sees the rows of one tenant; made by the migrations


_WALLED = "SELECT row_security_active(oid) FROM pg_class WHERE oid = to_regclass('jobs')"


class Connection(Protocol):
    """What the verbs use of a connection: a batch in, rows out."""

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]: ...

    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str: ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[tuple[Any, ...]], columns: Sequence[str]
    ) -> str: ...


class Note(Protocol):
    """What is written along with a change, in its transaction."""

    async def write(self, tx: Connection, tenant: str | None) -> None: ...


class Database:
    """A pool of connections; ``transaction()`` is the only way to write."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        dsn: str = "",
        begin_with: str | None = None,
        tenant: str | None = None,
        note: _Once | None = None,
    ) -> None:
        self._pool = pool
        self.dsn = dsn
        self.tenant = tenant  # None: all of them, as the owner of the schema
        self._begin_with = begin_with
        self._scope = None if tenant is None else _scope(tenant)
        self._note = note
        self._kept: list[Any] = []

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands between, so that nothing of a connection outlives a transaction."""
        return self._begin_with is not None

    def scoped(self, tenant: str) -> Database:
        """Return the same database as this tenant may see it. It is said along with BEGIN.

        Raises:
            InvalidRequest: no tenant can have that name.
            BrokenInvariant: it is for another tenant already. What works for one cannot turn to the next.
        """
        if self.tenant not in (None, tenant):
            raise BrokenInvariant(f'what is for tenant "{self.tenant}" was asked to work for "{tenant}"')
        return Database(self._pool, begin_with=self._begin_with, tenant=tenant, note=self._note)

    def noting(self, note: Note) -> Database:
        """Return the same database for one change, which is written to the log in the transaction that makes it.

        What needs several transactions is noted with the first that commits. One that fails leaves no note, and reading
        none.
        """
        return Database(self._pool, dsn=self.dsn, begin_with=self._begin_with, tenant=self.tenant, note=_Once(note))

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        """Lend a connection for one statement, which is its own transaction.

        The last one used is kept at hand: taking one from the pool and giving it back costs as much as a statement.
        """
        if self._scope is not None or self._note is not None:
            async with self.transaction() as tx:
                yield tx
            return
        with _ours():
            connection = self._kept.pop() if self._kept else None
            if connection is None or not _usable(connection):
                connection = await self._pool.acquire()
            try:
                yield connection
            except BaseException:
                await self._pool.release(connection)
                raise
            if self._kept or self._pool.get_max_size() == 1:  # the only one is everybody's
                await self._pool.release(connection)
            else:
                self._kept.append(connection)

    async def let_go(self) -> None:
        """Give back what is kept at hand."""
        while self._kept:
            await self._pool.release(self._kept.pop())

    @asynccontextmanager
    async def own_connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """Open a connection apart from the pool, to keep.

        Raises:
            BrokenInvariant: this is one tenant's, and what outlives a transaction is nobody's.
        """
        if self.tenant is not None:
            raise BrokenInvariant(f'a connection to keep would not be for tenant "{self.tenant}" alone')
        with _ours():
            connection = await asyncpg.connect(self.dsn, timeout=10)
            try:
                yield connection
            finally:
                connection.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Run statements as one READ COMMITTED transaction.

        Raises:
            StoreUnavailable: the database went away; if that was during COMMIT nobody knows whether it was done.
        """
        note = self._note
        if note is not None:
            note.due = not note.written
        async with self._begun() as connection:
            yield connection
            if note is not None and note.due:
                await note.note.write(connection, self.tenant)
        if note is not None and note.due:
            note.written = True

    @property
    def noted(self) -> bool:
        """Whether the change was made that is to be noted."""
        return self._note is not None and self._note.written

    def nothing_done(self) -> None:
        """Say of the transaction that is open that it found nothing to change: then there is nothing to note either."""
        if self._note is not None:
            self._note.due = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection for reading.

        A tenant's is planned for the values at hand: row security makes a list look so dear that Postgres would soon
        settle for a plan for any values, which goes through all jobs of a large tenant for each page. What goes by key
        and must be quick keeps its plan in ``statement()``.
        """
        if self._scope is not None:
            async with self._begun("SET LOCAL plan_cache_mode = force_custom_plan") as connection:
                yield connection
            return
        with _ours():
            async with self._pool.acquire() as connection:
                yield connection

    @asynccontextmanager
    async def _begun(self, more: str | None = None) -> AsyncIterator[Connection]:
        """Begin a transaction, with all that holds for it in one message."""
        begin_with = "; ".join(filter(None, (self._begin_with, self._scope, more)))
        with _ours(), _within(self.tenant):
            async with self._pool.acquire() as connection:
                if not begin_with:
                    async with connection.transaction():
                        yield connection
                    return
                try:
                    with _ours():
                        await connection.execute(f"BEGIN; {begin_with}")
                    yield connection
                except BaseException:
                    if connection.is_in_transaction():  # else it is gone, or giving it back ends it
                        await connection.execute("ROLLBACK")
                    raise
                await connection.execute("COMMIT")


@dataclass(slots=True)
class _Once:
    """A note that is written with the first transaction that commits."""

    note: Note
    written: bool = False
    due: bool = False  # with the transaction that is open


@asynccontextmanager
async def open_database(
    dsn: str, *, size: int = 10, pooled: bool = False, unsafe: bool = False
) -> AsyncIterator[Database]:
    """Connect, and check that the database keeps what it acknowledges.

    Args:
        dsn: where the database is; ``pool_mode=transaction`` among its parameters says ``pooled``.
        size: connections at most.
        pooled: a pooler in transaction mode stands between; no prepared statements then.
        unsafe: accept a database that may lose acknowledged commits.

    Raises:
        InvalidRequest: the DSN cannot be read.
        StoreUnavailable: it cannot be reached.
        WrongDatabase: it is reached and cannot be trusted, or is no Postgres 15 or newer.
    """
    if POOLED in dsn:
        dsn, pooled = dsn.replace(f"{POOLED}&", "").replace(f"?{POOLED}", "").replace(f"&{POOLED}", ""), True
    with _ours(), _readable():
        pool = await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=size,
            statement_cache_size=0 if pooled else 100,
            timeout=10,
            command_timeout=60,
            server_settings={} if pooled else SESSION,
            init=None if pooled else _limit_transactions,
            reset=_leave_as_it_is,
        )
    try:
        with _ours(), _readable():
            async with pool.acquire() as connection:
                await _check(connection, unsafe=unsafe)
                known = {**SESSION, **(_SINCE_17 if connection.get_server_version().major >= 17 else {})}
        settings = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in known.items())
        db = Database(pool, dsn=dsn, begin_with=settings if pooled else None)
        try:
            yield db
        finally:
            await db.let_go()
    finally:
        await pool.close()


async def _limit_transactions(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    if connection.get_server_version().major >= 17:
        await connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in _SINCE_17.items()))


def _scope(tenant: str) -> str:
    """Return the SQL that makes a transaction a tenant's: as text, so that it goes along with what else begins one.

    The name is quoted as libpq does it, which holds whatever the server thinks of backslashes. SET, not a query:
    after one it would be too late to ask for a snapshot that lasts.
    """
    if not tenant or not tenant.isprintable():
        allowed = "use a name of letters, digits, dots and dashes"
        raise InvalidRequest("no tenant can be called that", field="tenant", value=tenant, allowed=allowed)
    quoted = tenant.replace("\\", "\\\\").replace("'", "''")
    return f"SET LOCAL ROLE {TENANT_ROLE}; SET LOCAL mainspring.tenant = E'{quoted}'"


def _usable(connection: Any) -> bool:
    """Whether a connection that was kept is still there: the pool takes back one that the server has ended."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


async def _leave_as_it_is(connection: object) -> None:
    """Spare a round trip per transaction: we change nothing of a connection but by SET LOCAL."""
    del connection


async def _check(connection: Connection, *, unsafe: bool) -> None:
    version = int(await connection.fetchval("SHOW server_version_num"))
    if version < 150_000:
        raise WrongDatabase(
            f"Postgres {version // 10_000} is too old", field="dsn", value=version, allowed="use 15 to 18"
        )
    off = [name for name in _DURABLE if await connection.fetchval(f"SHOW {name}") == "off"]
    if off and not unsafe:
        reason = f"{', '.join(off)} is off, so that acknowledged commits may be lost"
        raise WrongDatabase(
            reason, field="dsn", value=off, allowed="switch it on, or pass --unsafe-database for a trial"
        )
    if await connection.fetchval(_WALLED):  # it would look like an empty database
        reason = "this user is kept from the rows of every tenant by row security"
        raise WrongDatabase(
            reason, field="dsn", value="", allowed="use the role that owns the schema, or a member of it"
        )


@contextmanager
def _readable() -> Iterator[None]:
    """Say what is wrong with a DSN, and nothing of its password."""
    try:
        yield
    except ValueError as error:
        allowed = "write postgresql://user@host:5432/name"
        raise InvalidRequest(f"it cannot be read: {error}", field="dsn", value="", allowed=allowed) from error


@contextmanager
def _within(tenant: str | None) -> Iterator[None]:
    """Say that it is our mistake if work for a tenant was refused by the wall around it."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        if tenant is None:
            raise
        raise BrokenInvariant(f'work for tenant "{tenant}" went beyond what is its own: {error.args[0]}') from error


@contextmanager
def _ours() -> Iterator[None]:
    """Turn the driver's errors into ours, the original kept as the cause."""
    try:
        yield
    except asyncpg.DiskFullError as error:
        said = error.args[0].rstrip(".")
        raise StoreUnavailable(f"the database is out of disk space: {said}; make room, then try again") from error
    except asyncpg.InsufficientPrivilegeError as error:
        allowed = "use the role that owns the schema, or GRANT what is missing"
        said = "; ".join(str(error).splitlines())  # the hint of the server, if it has one, in the same line
        raise WrongDatabase(said, field="dsn", value="", allowed=allowed) from error
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise StoreUnavailable(f"the database is read-only, as a standby is: {error}") from error
    except _UNDONE as error:
        raise StoreUnavailable(f"the transaction was undone by the database: {error}; try again") from error
    except _UNAVAILABLE as error:
        raise StoreUnavailable(f"the database cannot be reached: {error or type(error).__name__}") from error


# Nothing of it was done, and the same again may well succeed (F17, F93).
_UNDONE = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.QueryCanceledError,
)


_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what the driver says when the server hangs up in the middle of an exchange
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.OutOfMemoryError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # the database takes no connections
    asyncpg.InvalidAuthorizationSpecificationError,
)


async def scanning(tx: Connection) -> None:
    """Let the planner choose, and take its time, for the rest of the transaction."""
    await tx.execute("SET LOCAL enable_seqscan = on")
    await tx.execute("SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'")


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows into columns for unnest; empty columns where there are no rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
