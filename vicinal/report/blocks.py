"""What chapters of a report are made of: data that a page and its Markdown twin are both drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, final

__all__ = ["Block", "Chapter", "Chart", "Code", "Panel", "Prose", "Strip", "Table", "Thumbnail"]


@final
@dataclass(frozen=True)
class Prose:
    """A paragraph; words between backticks are set as code.

    Args:
        text: Plain text.
        kind: "warning" stands out; "note" is smaller; a "heading" parts a chapter.
    """

    text: str
    kind: Literal["text", "note", "heading", "warning"] = "text"


@final
@dataclass(frozen=True)
class Thumbnail:
    """A small picture of one item.

    Args:
        uri: The image itself, as a data URI; empty where there is none to show.
        name: Of its class.
        hit: Whether it has the class of the query; None for a picture that is not an answer.
        short: The name as it stands under the picture.
    """

    uri: str
    name: str
    hit: bool | None = None
    short: str = ""


Cell = str | tuple[Thumbnail, ...]


@final
@dataclass(frozen=True)
class Table:
    """Rows under a head.

    Args:
        head: One word or two per column.
        rows: Cells; a tuple of thumbnails is a cell too, which only the page shows.
        caption: What to see in it.
        words: Columns of words, set to the left; the others hold numbers, set to the right.
        best: Rows to set in bold.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    words: frozenset[int] = frozenset({0})
    best: frozenset[int] = frozenset()


@final
@dataclass(frozen=True)
class Panel:
    """One drawing.

    Args:
        svg: An `<svg>` element whose colours come from the style sheet.
        alt: What it shows, for those who cannot see it.
        title: Above it.
    """

    svg: str
    alt: str
    title: str = ""


@final
@dataclass(frozen=True)
class Chart:
    """One drawing or several of a kind.

    Args:
        name: Of its files beside the Markdown twin.
        panels: Drawings.
        caption: What to see in them.
        size: "small" panels stand side by side.
    """

    name: str
    panels: tuple[Panel, ...]
    caption: str
    size: Literal["full", "half", "small"] = "full"


@final
@dataclass(frozen=True)
class Strip:
    """Queries and what was found for them, in pictures.

    Args:
        groups: A title, and for each query its picture, its score in words and the pictures of its neighbours.
        caption: What to see in them.
    """

    groups: tuple[tuple[str, tuple[tuple[Thumbnail, str, tuple[Thumbnail, ...]], ...]], ...]
    caption: str


@final
@dataclass(frozen=True)
class Code:
    """Text to copy.

    Args:
        text: As it is.
        summary: Folded away under this line, where there is one.
    """

    text: str
    summary: str = ""


Block = Prose | Table | Chart | Strip | Code


@final
@dataclass(frozen=True)
class Chapter:
    """A title and what stands under it.

    Args:
        title: A few words.
        blocks: In order.
    """

    title: str
    blocks: tuple[Block, ...] = field(default_factory=tuple)
