"""Queries and what was found for them, as one picture or, in a notebook, as pictures in a row."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from vicinal.data.picture_rows import BLUE, GAP, GREY, SIZE, Cell, draw_rows, thumbnail
from vicinal.index.hits import Hit, Hits
from vicinal.notebook_html import html_page, html_picture

__all__ = ["draw_hits", "hits_html"]

SHOWN = 30  # hits that a notebook shows
ONE_LINE = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"


def draw_hits(queries: Sequence[tuple[str, Any]], answers: Sequence[Hits]) -> Image.Image:
    """Draw one row per query: the query, then what was found, with similarity and label under each.

    Args:
        queries: A caption, and a path or an image or None for what has none.
        answers: One for each query.
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
    """Show what was found as pictures in a row, nearest first, with similarity, label and file under each."""
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
