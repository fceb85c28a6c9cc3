"""Metrics of the API and of what waits, for Prometheus. Labels are bounded: routes, statuses, pools."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.api.patience import within
from mainspring.domain.errors import Unavailable
from mainspring.store import reading
from mainspring.store.database import Database

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ANSWER_WITHIN: Final = 5.0


class Requests(Collector):
    """Requests that were answered, by route and status.

    In numbers of our own: those of the library take a lock each time, and this is every request.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = {}  # by bucket; the last is for what took longer
        self._seconds: dict[str, float] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        counts = self._counts.get((route, status))
        if counts is None:
            counts = self._counts[route, status] = [0] * (len(_BUCKETS) + 1)
            self._seconds.setdefault(route, 0.0)
        counts[bisect_left(_BUCKETS, seconds)] += 1
        self._seconds[route] += seconds

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("mainspring_api_requests", "Requests answered.", labels=("route", "status"))
        for (route, status), took in self._counts.items():
            counts.add_metric((route, str(status)), sum(took))
        yield counts
        seconds = HistogramMetricFamily("mainspring_api_request_seconds", "How long they took.", labels=("route",))
        bounds = [*(str(float(bound)) for bound in _BUCKETS), "+Inf"]
        for route, total in self._seconds.items():
            of_route = [took for (each, _), took in self._counts.items() if each == route]
            together = [sum(column) for column in zip(*of_route, strict=True)]
            seconds.add_metric((route,), list(zip(bounds, accumulate(together), strict=True)), total)
        yield seconds


class Metrics:
    """Writes down what was counted, and looks at the pools when it is asked."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._registry = of = CollectorRegistry(auto_describe=True)
        self._requests = Requests()
        of.register(self._requests)
        self.observe = self._requests.observe
        self._ready = Gauge("mainspring_pool_ready_runs", "Could start now.", ("pool",), registry=of)
        self._running = Gauge("mainspring_pool_running_runs", "At work.", ("pool",), registry=of)
        self._oldest = Gauge(
            "mainspring_pool_oldest_ready_seconds", "How long the first has waited.", ("pool",), registry=of
        )
        self._room = Gauge("mainspring_pool_room", "Runs that its workers have room for.", ("pool",), registry=of)
        self._up = Gauge("mainspring_database_up", "Whether the database answers.", registry=of)

    async def text(self) -> bytes:
        """Return all of it in Prometheus' own form."""
        try:
            pools = await within(_ANSWER_WITHIN, reading.list_pools(self._db))
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
