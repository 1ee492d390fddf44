"""What an audit found, in words that claim no more than was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from vicinal.spaces.triples import Triple

__all__ = ["Kind", "MetricVerdict"]

Kind = Literal["metric", "weak-metric", "semi-metric", "not a semi-metric"]


@final
@dataclass(frozen=True)
class MetricVerdict:
    """What is known of a distance.

    Attributes:
        subject: Its name.
        domain: Where points lay.
        kind: The strongest of the four that nothing found speaks against.
        proved: The strongest that is proved; None where there is only the search.
        proof: The argument.
        faults: What breaks the axioms of a semi-metric, one sentence each.
        pairs: How many pairs were tried for these.
        worst: The triple with the least slack.
        triples: How many were tried.
        worst_through_vertices: The same among those that pass through a vertex (a label); None where there are none.
        triples_through_vertices: How many of those.
        vertices: How many vertices were passed through.
    """

    subject: str
    domain: str
    kind: Kind
    proved: Kind | None
    proof: str
    faults: tuple[str, ...]
    pairs: int
    worst: Triple
    triples: int
    worst_through_vertices: Triple | None
    triples_through_vertices: int
    vertices: int

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        if self.kind == self.proved:
            other = "; not a metric: the worst triple breaks the triangle inequality" if self.kind != "metric" else ""
            return f"{self.kind}, proved: {self.proof}{other}."
        known = f" Proved: {self.proved} ({self.proof})." if self.proved else ""
        if self.kind == "metric":
            return f"no violation of a metric's axioms in {self.triples:,} triples, which is no proof of them.{known}"
        if self.kind == "weak-metric":
            return (
                f"not a metric; through the {self.vertices} vertices no violation in {self.triples_through_vertices:,} "
                f"triples (weak-metric), which is no proof.{known}"
            )
        if self.kind == "semi-metric":
            return f"not a metric; no violation of a semi-metric's axioms in {self.pairs:,} pairs, which is no proof."
        return f"not a semi-metric: {'; '.join(self.faults)}."

    def __str__(self) -> str:
        lines = [f"{self.subject} on {self.domain}: {self.sentence}"]
        if not self.faults:
            lines += ["", *_told("worst triple", self.worst)]
        if not self.faults and self.worst_through_vertices is not None:
            lines += ["", *_told("worst triple through a vertex", self.worst_through_vertices)]
        return "\n".join(lines)


def _told(title: str, triple: Triple) -> list[str]:
    points = zip("xyz", (triple.x, triple.y, triple.z), strict=True)
    sides = f"{triple.first:.4f} + {triple.second:.4f} = {triple.first + triple.second:.4f}"
    relation = f"d(x,z) = {triple.direct:.4f}"
    return [
        f"{title}:",
        *(f"  {name} = {_shown(point.tolist())}" for name, point in points),
        f"  d(x,y) + d(y,z) = {sides}, {f'less than {relation}: it fails' if triple.slack < 0 else relation}",
    ]


def _shown(point: list[float]) -> str:
    shown = ", ".join(f"{value:.4g}" for value in point[:8])
    return f"({shown}{', ...' if len(point) > 8 else ''})"
