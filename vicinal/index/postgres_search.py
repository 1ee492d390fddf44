"""The nearest rows of a table of PostgreSQL: pgvector proposes in float32, with room to spare, and float64 decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.index.float64_similarity import similarities
from vicinal.index.item import Header
from vicinal.index.postgres_rows import rows_of, text_of, unit

__all__ = ["Scan", "nearest"]

# What float32 cannot tell comes first and is compared by float64: cosines of vectors whose squares leave its range.
FAR = {
    "cosine": "CASE WHEN vector_norm(vector) BETWEEN 1e-15 AND 1e15 "
    "THEN coalesce(nullif(vector <=> %s::vector, 'NaN'), 1) WHEN vector_norm(vector) = 0 THEN 1 ELSE -1 END",
    "euclidean": "vector <-> %s::vector",
}
LARGEST = 1.8446742e19  # distance whose square float32 has; it is infinity to the server beyond that
SMALLEST = 2.0**-126  # square that float32 has all digits of
SPARE = 8  # candidates beyond k


@dataclass(frozen=True)
class Scan:
    """How one search goes about it.

    Attributes:
        passing: SQL of the filter.
        values: Bound to it.
        hnsw: The kind of vectors in the HNSW index that is used; empty for none.
    """

    passing: str
    values: list[Any]
    hnsw: str = ""


def nearest(
    connection: Any, table: str, header: Header, query: Float32[np.ndarray, " d"], k: int, scan: Scan
) -> list[tuple[Any, float]]:
    """Ids and similarities of the k nearest: candidates by the server's float32, the order by float64.

    Args:
        connection: In a transaction.
        table: Of the items.
        header: What their vectors have in common.
        query: A vector.
        k: At most as many as there are.
        scan: How to go about it.
    """
    asked = text_of(unit(query) if header.distance == "cosine" else query)
    sign = "<=>" if header.distance == "cosine" else "<->"
    order = f"vector::{scan.hnsw} {sign} %s::{scan.hnsw}" if scan.hnsw else "far"
    wanted = k + SPARE
    while True:
        found = connection.execute(
            f"SELECT id, vector::text, {FAR[header.distance]} AS far FROM {table} "
            f"WHERE {scan.passing} ORDER BY {order} LIMIT %s",
            [asked, *scan.values, *([asked] if scan.hnsw else []), wanted],
        ).fetchall()
        if scan.hnsw and len(found) < k:  # it gave up before it had enough that pass the filter
            scan, order = Scan(scan.passing, scan.values), "far"
            continue
        rows = rows_of([row[1] for row in found], header.dim)
        close = similarities(query[None], rows[None], header.distance)[0]
        ranked = sorted(zip((-close).tolist(), (row[0] for row in found), strict=True))[:k]
        if len(found) < wanted or scan.hnsw or _clearly_farther(found[-1][2], -ranked[-1][0], header):
            return [(key, 0.0 - value) for value, key in ranked]
        wanted *= 4


def _clearly_farther(last: float, kth: float, header: Header) -> bool:
    """Whether what the server did not propose is farther than the k-th nearest, in spite of float32."""
    error = (header.dim + 8) * 2.0**-22
    if header.distance == "cosine":
        return last > (1 - kth) + error
    return min(last, LARGEST) ** 2 > kth**2 * (1 + 2 * error) + header.dim * SMALLEST
