"""Doctor: what is wrong with an installation, how badly, and what to do about it.

``judge`` is pure: it is given what was read. A *note* is worth knowing and no reason to act; a *warning* will hurt
before long; an *error* hurts now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from mainspring.domain.durations import rough_duration
from mainspring.domain.errors import MainspringError
from mainspring.domain.selection import Fence
from mainspring.store.checkup import Checkup, Clock, LedgerState, leases, read_checkup
from mainspring.store.database import open_database
from mainspring.store.migrations import pending

CLOCKS_APART: Final = timedelta(milliseconds=250)
_LONG_TRANSACTION: Final = timedelta(minutes=5)
_OLD_SNAPSHOT: Final = 10_000_000  # transactions
_MANY_DEAD: Final = 50_000  # rows
_MOST_USED: Final = 0.8  # of the connections
_FEW: Final = 5  # named in a sentence
_SOON_TOO_OLD: Final = 15  # the oldest Postgres that we take


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """One thing that is wrong."""

    name: str  # for machines
    severity: Severity
    what: str
    evidence: float | str  # the number it was judged by
    remedy: str


async def examine(dsn: str, now: Clock, *, available: str | None = None) -> list[Ailment]:
    """Look at the database at ``dsn`` and judge it; one that cannot be looked at is an ailment, not an error.

    ``available`` is the version of the embedded Postgres that would be started now, if it is an embedded one.
    """
    try:
        return list(judge(await read_checkup(dsn, now), available=available))
    except MainspringError as error:
        remedy = "correct it, and look again: everything else depends on it"
        return [_error("database", str(error), error.code, remedy)]


def judge(seen: Checkup, *, available: str | None = None) -> Iterator[Ailment]:
    """Say what is wrong, worst of each kind first."""
    yield from _server(seen, available)
    if seen.pending:
        what = f"the schema lacks {len(seen.pending)} migrations, from {seen.pending[0]} on"
        yield _error("schema_behind", what, len(seen.pending), "run mainspring migrate")
    yield from _clock(seen)
    if seen.ledger is not None:
        yield from _cluster(seen.ledger)
        yield from _work(seen.ledger)
        yield from _tables(seen.ledger)
    yield from _held_back(seen)


def _server(seen: Checkup, available: str | None) -> Iterator[Ailment]:
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if seen.settings.get(name) == "off":
            what = f"{name} is off: what was acknowledged may be lost, fires and results with it"
            yield _error(f"{name}_off", what, "off", f"ALTER SYSTEM SET {name} = on, then reload")
    if seen.settings.get("autovacuum") == "off":
        what = "autovacuum is off: the hot tables grow, and every look at them gets slower"
        yield _error("autovacuum_off", what, "off", "ALTER SYSTEM SET autovacuum = on, then reload")
    running = seen.version // 10_000, seen.version % 10_000
    if running[0] <= _SOON_TOO_OLD:
        what = f"Postgres {running[0]} is the oldest that is supported"
        yield _note("postgres_old", what, running[0], "plan for a newer one")
    if available is not None and running < _parts(available):
        what = f"the embedded Postgres is {running[0]}.{running[1]}, and {available} is installed"
        yield _note("embedded_old", what, f"{running[0]}.{running[1]}", "stop mainspring dev and start it again")
    if seen.connections > seen.most_connections * _MOST_USED:
        what = f"{seen.connections} of {seen.most_connections} connections are in use"
        remedy = "lower database.connections, raise max_connections, or put PgBouncer in between"
        yield _warning("connections_scarce", what, seen.connections, remedy)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _clock(seen: Checkup) -> Iterator[Ailment]:
    if abs(seen.clock_offset) > CLOCKS_APART:
        milliseconds = seen.clock_offset / timedelta(milliseconds=1)
        which = "ahead of" if milliseconds > 0 else "behind"
        what = f"the clock here is {rough_duration(abs(seen.clock_offset))} {which} the database's, which decides"
        yield _warning("clock_apart", what, round(milliseconds), "let NTP set both")


def _cluster(ledger: LedgerState) -> Iterator[Ailment]:
    schedulers = [node for node in ledger.nodes if node.alive and "scheduler" in node.role]
    if not schedulers:
        remedy = "start one: mainspring serve --roles scheduler"
        yield _error("no_scheduler", "no scheduler is alive, so nothing fires", 0, remedy)
    if ledger.overdue:
        lag = rough_duration(ledger.lag or timedelta(0))
        what = f"{ledger.overdue} jobs are overdue, the oldest by {lag}"
        remedy = "add a scheduler, or look at its log" if schedulers else "they fire when a scheduler is there"
        yield _error("jobs_overdue", what, ledger.overdue, remedy)
    if ledger.quarantined:
        what = f"{len(ledger.quarantined)} jobs are quarantined, their plans raised: {_named(ledger.quarantined)}"
        remedy = "mainspring explain JOB AT says why; edit the job, then mainspring jobs resume JOB"
        yield _error("jobs_quarantined", what, len(ledger.quarantined), remedy)


def _work(ledger: LedgerState) -> Iterator[Ailment]:
    for pool in ledger.pools:
        if pool.ready and not pool.workers:
            waiting = f" for {rough_duration(pool.oldest_ready)}" if pool.oldest_ready else ""
            what = f'{pool.ready} runs wait in pool "{pool.name}"{waiting}, and no worker works for it'
            remedy = f"start one: mainspring worker MODULE --pool {pool.name}"
            yield _error("pool_without_worker", what, pool.ready, remedy)
        elif pool.unknown_tasks:
            what = f'no worker of pool "{pool.name}" knows {_named(pool.unknown_tasks)}, which its runs ask for'
            remedy = "start a worker with the module that has them, or correct the jobs"
            yield _error("task_unknown", what, len(pool.unknown_tasks), remedy)
    if ledger.open_letters:
        what = f"{ledger.open_letters} {'dead letter is' if ledger.open_letters == 1 else 'dead letters are'} open"
        remedy = "mainspring dead-letters list, then replay or discard them"
        yield _note("dead_letters_open", what, ledger.open_letters, remedy)


def _tables(ledger: LedgerState) -> Iterator[Ailment]:
    for table in ledger.tables:
        if table.dead > max(_MANY_DEAD, table.live):
            what = f"{table.name} has {table.dead} dead rows beside {table.live} live ones: vacuum does not keep up"
            yield _warning("table_bloated", what, table.dead, f"VACUUM {table.name}; and look what holds it back")
    if ledger.missing_partitions:
        what = f"{_named(ledger.missing_partitions)} for tomorrow is missing"
        remedy = "a scheduler makes them ahead of time: start one, or run mainspring migrate"
        yield _warning("partitions_missing", what, len(ledger.missing_partitions), remedy)


def _held_back(seen: Checkup) -> Iterator[Ailment]:
    longest = seen.longest_transaction
    if longest is not None and longest > _LONG_TRANSACTION:
        what = f"a transaction has been open for {rough_duration(longest)}: no row that died since can be removed"
        remedy = "find it in pg_stat_activity by xact_start, and end it"
        yield _warning("transaction_open", what, round(longest.total_seconds()), remedy)
    elif seen.snapshot_age > _OLD_SNAPSHOT:
        what = f"a snapshot is held since {seen.snapshot_age} transactions: no row that died since can be removed"
        remedy = "look at pg_replication_slots and pg_prepared_xacts, and drop what nobody needs"
        yield _warning("snapshot_old", what, seen.snapshot_age, remedy)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _error(name: str, what: str, evidence: float | str, remedy: str) -> Ailment:
    return Ailment(name=name, severity=Severity.ERROR, what=what, evidence=evidence, remedy=remedy)


def _warning(name: str, what: str, evidence: float | str, remedy: str) -> Ailment:
    return Ailment(name=name, severity=Severity.WARNING, what=what, evidence=evidence, remedy=remedy)


def _note(name: str, what: str, evidence: float | str, remedy: str) -> Ailment:
    return Ailment(name=name, severity=Severity.NOTE, what=what, evidence=evidence, remedy=remedy)


async def leases_at(dsn: str) -> list[Fence]:
    """Return who holds which lease in the ledger at ``dsn``."""
    async with open_database(dsn, size=1) as db:
        return await leases(db)


async def pending_at(dsn: str) -> list[str]:
    """Return the migrations that the database at ``dsn`` lacks."""
    async with open_database(dsn, size=1) as db:
        return [migration.name for migration in await pending(db)]
