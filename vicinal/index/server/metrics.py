"""Counts of what the server has done, in the text format that Prometheus reads."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from importlib.metadata import version
from typing import final

from vicinal._util.machine import peak_memory_mib

__all__ = ["Counts"]

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
GROUPS = (1, 2, 4, 8, 16, 32, 64)  # requests


@final
class Counts:
    """What is counted from the start of a server on; told by one thread, that of the event loop."""

    def __init__(self) -> None:
        self.running = 0
        self._started = time.time()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, list[float]] = {}  # by route: one count per bound and one beyond, then the sum
        self._groups = [0] * (len(GROUPS) + 1)
        self._sought = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[route, status] += 1
        times = self._seconds.setdefault(route, [0.0] * (len(BOUNDS) + 2))
        times[bisect_left(BOUNDS, seconds)] += 1
        times[-1] += seconds

    def grouped(self, many: int) -> None:
        """Count queries that were sought together."""
        self._groups[bisect_left(GROUPS, many)] += 1
        self._sought += many

    def text(self, items: int, generation: str) -> str:
        """All counts, one line each.

        Args:
            items: In the index.
            generation: Of the index.
        """
        lines = [
            "# TYPE vicinal_info gauge",
            f'vicinal_info{{version="{version("vicinal")}",generation="{generation}"}} 1',
            "# TYPE vicinal_items gauge",
            f"vicinal_items {items}",
            "# TYPE vicinal_requests_running gauge",
            f"vicinal_requests_running {self.running}",
            "# TYPE vicinal_peak_memory_bytes gauge",
            f"vicinal_peak_memory_bytes {peak_memory_mib() * 2**20:.0f}",
            "# TYPE vicinal_start_time_seconds gauge",
            f"vicinal_start_time_seconds {self._started:.3f}",
            "# TYPE vicinal_requests_total counter",
        ]
        for (route, status), many in sorted(self._requests.items()):
            lines.append(f'vicinal_requests_total{{route="{route}",status="{status}"}} {many}')
        lines.append("# TYPE vicinal_request_seconds histogram")
        for route, times in sorted(self._seconds.items()):
            lines += _histogram("vicinal_request_seconds", f'route="{route}",', BOUNDS, times[:-1], times[-1])
        lines.append("# TYPE vicinal_queries_together histogram")
        lines += _histogram("vicinal_queries_together", "", GROUPS, self._groups, self._sought)
        return "\n".join(lines) + "\n"


def _histogram(
    name: str, labels: str, bounds: tuple[float | int, ...], counts: list[float] | list[int], total: float | int
) -> list[str]:
    lines, so_far = [], 0
    for bound, many in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        so_far += int(many)
        lines.append(f'{name}_bucket{{{labels}le="{bound}"}} {so_far}')
    only = f"{{{labels.rstrip(',')}}}" if labels else ""
    return [*lines, f"{name}_sum{only} {total:.6g}", f"{name}_count{only} {so_far}"]
