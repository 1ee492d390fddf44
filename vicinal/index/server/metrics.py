"""Metrics of the server, in the Prometheus text format."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from vicinal._util.machine import peak_memory_mib

__all__ = ["Counts"]

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
GROUPS = (1, 2, 4, 8, 16, 32, 64)  # requests


@final
class Counts:
    """Counts since the start of a server, in its own registry: two servers in a process share nothing.

    Attributes:
        running: Number of running requests; changed only by the thread of the event loop.
    """

    def __init__(self) -> None:
        self.running = 0
        self._registry = registry = CollectorRegistry()
        self._info = Info("vicinal", "Version of vicinal and generation of the index.", registry=registry)
        self._items = Gauge("vicinal_items", "Items in the index.", registry=registry)
        running = Gauge("vicinal_requests_running", "Requests that are worked on.", registry=registry)
        running.set_function(lambda: self.running)
        memory = Gauge("vicinal_peak_memory_bytes", "Largest resident memory so far.", registry=registry)
        memory.set_function(lambda: round(peak_memory_mib() * 2**20))
        started = Gauge("vicinal_start_time_seconds", "Start of the server, in seconds since 1970.", registry=registry)
        started.set(time.time())
        self._requests = Counter(
            "vicinal_requests", "Requests by route and status.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "vicinal_request_seconds", "Time of requests by route.", ["route"], buckets=BOUNDS, registry=registry
        )
        self._together = Histogram(
            "vicinal_queries_together", "Queries that were searched at once.", buckets=GROUPS, registry=registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def grouped(self, many: int) -> None:
        """Count queries that were searched together."""
        self._together.observe(many)

    def text(self, items: int, generation: str) -> str:
        """Return all counts.

        Args:
            items: Number of items in the index.
            generation: Generation of the index.
        """
        self._items.set(items)
        self._info.info({"version": version("vicinal"), "generation": generation})
        return generate_latest(self._registry).decode()
