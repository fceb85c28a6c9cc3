"""Metrics of the API and of what waits, for Prometheus. Labels are bounded: routes, statuses, pools."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mainspring.domain.errors import Unavailable
from mainspring.store import reading
from mainspring.store.database import Database

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ANSWER_WITHIN: Final = 5.0


class Metrics:
    """Counts requests as they are answered, and looks at the pools when it is asked."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._registry = of = CollectorRegistry(auto_describe=True)
        self._requests = Counter("mainspring_api_requests", "Requests answered.", ("route", "status"), registry=of)
        self._seconds = Histogram(
            "mainspring_api_request_seconds",
            "How long they took.",
            ("route",),
            buckets=_BUCKETS,
            registry=of,
        )
        self._ready = Gauge("mainspring_pool_ready_runs", "Could start now.", ("pool",), registry=of)
        self._running = Gauge("mainspring_pool_running_runs", "At work.", ("pool",), registry=of)
        self._oldest = Gauge(
            "mainspring_pool_oldest_ready_seconds", "How long the first has waited.", ("pool",), registry=of
        )
        self._room = Gauge("mainspring_pool_room", "Runs that its workers have room for.", ("pool",), registry=of)
        self._up = Gauge("mainspring_database_up", "Whether the database answers.", registry=of)
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one request. Looking up a child of a metric costs ten times as much as using it."""
        found = self._known.get((route, status))
        if found is None:
            found = (self._requests.labels(route, str(status)), self._seconds.labels(route))
            self._known[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    async def text(self) -> bytes:
        """Return all of it in Prometheus' own form."""
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                pools = await reading.list_pools(self._db)
        except (Unavailable, TimeoutError):
            self._up.set(0)
        else:
            self._up.set(1)
            for gauge in (self._ready, self._running, self._oldest, self._room):
                gauge.clear()
            for pool in pools:
                self._ready.labels(pool.name).set(pool.ready)
                self._running.labels(pool.name).set(pool.running)
                self._room.labels(pool.name).set(pool.room)
                oldest = pool.oldest_ready.total_seconds() if pool.oldest_ready is not None else 0.0
                self._oldest.labels(pool.name).set(oldest)
        return generate_latest(self._registry)
