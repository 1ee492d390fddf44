"""Results of a search (`Hit`, `Hits`) and of a change to an index (`Changes`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, final, overload

from PIL import Image

from vicinal._util.html import html_page, html_picture
from vicinal._util.text import counted
from vicinal.data.sheets import BLUE, GAP, GREY, SIZE, Cell, draw_rows, thumbnail
from vicinal.embedder import Calibration
from vicinal.index.filters import Value
from vicinal.index.item import Id
from vicinal.index.stores.store import Answer

__all__ = ["Changes", "Hit", "Hits", "as_hits", "draw_hits"]


@dataclass(frozen=True)
class Hit:
    """One result of a search.

    Attributes:
        id: Id of the item.
        path: Path of its file, if it has one.
        label: Class of the item, if it has one.
        similarity: Cosine with the query, or negative Euclidean distance; larger is nearer.
        metadata: Other values of the item, by column.
        same: Whether it counts as the query's class, if the embedder is calibrated.
        probability: Probability of being the query's class, with equal priors.
    """

    id: Id
    path: str | None
    label: Value | None
    similarity: float
    metadata: Mapping[str, Value] = field(default_factory=dict)
    same: bool | None = None
    probability: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON."""
        return {
            "id": self.id,
            "path": self.path,
            "label": self.label,
            "similarity": self.similarity,
            "metadata": dict(self.metadata),
            "same": self.same,
            "probability": self.probability,
        }


@final
@dataclass(frozen=True)
class Hits(Sequence[Hit]):
    """The nearest items of one query, nearest first, ties by id.

    Attributes:
        hits: The hits.
        recall: Share of the k nearest items that this search method finds: 1 if it is exact, otherwise as measured on
            the index's own items.
        measured: UTC time of that measurement; empty if the answer is exact.
        improved: Transformation of the vectors before search (`Index.improve`). The hits are then the nearest by the
            transformed vectors; similarities are those of the original vectors.
        expanded: Number of items that the query was averaged with before the search. The hits are then the nearest to
            the expanded query. Similarities and same/other verdicts are those of the original query, so similarities
            need not decrease.
        reranked: Whether the hits are ordered by shared neighbours; similarities then need not decrease.
    """

    hits: tuple[Hit, ...]
    recall: float = 1.0
    measured: str = ""
    improved: str = ""
    expanded: int = 0
    reranked: bool = False

    @property
    def exact(self) -> bool:
        """Whether the search was exhaustive; a measured recall of 1 does not imply that."""
        return self.recall == 1 and not self.measured

    @property
    def how(self) -> str:
        """Description of the search method."""
        parts = [
            "exact" if self.exact else f"fast, recall {self.recall:.4f} (measured {self.measured})",
            self.improved,
            f"query expanded with {counted(self.expanded, 'item')}" if self.expanded else "",
            "re-ranked by shared neighbours" if self.reranked else "",
        ]
        return ", ".join(part for part in parts if part)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def _repr_html_(self) -> str:
        """Return pictures of the hits, for notebooks."""

        return hits_html(self)


def as_hits(answer: Answer, rule: Calibration | None, *, expanded: int = 0, reranked: bool = False) -> list[Hits]:
    """Return the hits of each query, with the verdicts of a calibrated embedder.

    Args:
        answer: Answer of a store, with the similarities of the original vectors, to which the rule applies.
        rule: Calibration of the embedder, if it has one.
        expanded: Number of items that queries were averaged with.
        reranked: Whether the answer is ordered by shared neighbours.
    """
    results = []
    for names, values in zip(answer.ids.tolist(), answer.similarities.tolist(), strict=True):
        hits = [
            Hit(
                item.id,
                item.path,
                item.label,
                value,
                item.metadata,
                None if rule is None else rule.same(value),
                None if rule is None else rule.probability(value),
            )
            for item, value in zip((answer.items[name] for name in names), values, strict=True)
        ]
        results.append(Hits(tuple(hits), answer.recall, answer.measured, answer.improved, expanded, reranked))
    return results


@dataclass(frozen=True)
class Changes:
    """Summary of a change to an index.

    Attributes:
        added: Number of new items.
        updated: Number of items whose content or values had changed.
        removed: Number of items that were no longer in the data.
        unchanged: Number of items left as they were.
        skipped: Items that could not be read, each with the reason.
    """

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    skipped: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{self.added:,} added",
            f"{self.updated:,} updated",
            f"{self.removed:,} removed",
            f"{self.unchanged:,} unchanged",
        ]
        if self.skipped:
            parts.append(f"{counted(len(self.skipped), 'item')} skipped")
        return ", ".join(parts)


# Queries and their hits as one picture or, in a notebook, as a row of pictures.

SHOWN = 30  # hits that a notebook shows
ONE_LINE = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"


def draw_hits(queries: Sequence[tuple[str, Any]], answers: Sequence[Hits]) -> Image.Image:
    """Draw one row per query: the query, then its hits, with similarity and label under each.

    Args:
        queries: Caption of each query, and its path or image, or None if it has no picture.
        answers: Hits of each query.
    """
    rows = []
    for (caption, image), hits in zip(queries, answers, strict=True):
        row = [Cell(image, ["query", caption], BLUE)]
        for hit in hits:
            label = "" if hit.label is None else str(hit.label)
            row.append(Cell(hit.path, [f"{hit.similarity:.4f}", label or Path(str(hit.id)).name]))
        rows.append(row)
    return draw_rows(rows)


def hits_html(hits: Hits) -> str:
    """Return the hits as a row of pictures, nearest first, with similarity, label and file under each."""
    title = f"{len(hits)} nearest items" if hits.exact else f"{len(hits)} near items, recall {hits.recall:.4f}"
    rest = f"<p>... and {len(hits) - SHOWN:,} more</p>" if len(hits) > SHOWN else ""
    row = "".join(_figure(hit) for hit in hits[:SHOWN])
    return html_page(title, f'<div style="display:flex;flex-wrap:wrap;gap:{GAP}px">{row}</div>', rest)


def _figure(hit: Hit) -> str:
    small, name = thumbnail(hit.path), Path(str(hit.path or hit.id)).name
    box = f"width:{SIZE}px;height:{SIZE}px;display:flex;align-items:center;justify-content:center"
    shown = html_picture(small, name) if small is not None else f'<span style="color:{GREY}">no picture</span>'
    sure = "" if hit.probability is None else f" ({'same' if hit.same else 'other'}, {hit.probability:.0%})"
    words = [f"{hit.similarity:.4f}{sure}", "" if hit.label is None else str(hit.label), name]
    lines = "".join(f'<div style="{ONE_LINE}" title="{escape(text)}">{escape(text)}</div>' for text in words if text)
    caption = f'<figcaption style="font-size:11px;line-height:1.3">{lines}</figcaption>'
    return f'<figure style="margin:0;width:{SIZE}px"><div style="{box}">{shown}</div>{caption}</figure>'
