"""Building blocks of report chapters: plain data that both the HTML page and its Markdown version are rendered from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, final

__all__ = ["Block", "Chapter", "Chart", "Code", "Panel", "Prose", "Strip", "Table", "Thumbnail"]


@final
@dataclass(frozen=True)
class Prose:
    """A paragraph; words between backticks are rendered as code.

    Args:
        text: Plain text.
        kind: "warning" stands out, "note" is smaller, "heading" divides a chapter.
    """

    text: str
    kind: Literal["text", "note", "heading", "warning"] = "text"


@final
@dataclass(frozen=True)
class Thumbnail:
    """A small image of one item.

    Args:
        uri: Image as a data URI; empty if there is none.
        name: Name of its class.
        hit: Whether it has the class of the query; None for an image that is not a search result.
        short: Class name as shown under the image.
    """

    uri: str
    name: str
    hit: bool | None = None
    short: str = ""


Cell = str | tuple[Thumbnail, ...]


@final
@dataclass(frozen=True)
class Table:
    """A table with a header.

    Args:
        head: Column names, one or two words each.
        rows: Rows of cells; a cell may be a tuple of thumbnails, which only the HTML page shows.
        caption: Explanation of the table.
        words: Text columns, aligned left; the others hold numbers and are aligned right.
        best: Rows to print in bold.
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
        alt: Alternative text.
        title: Title above the drawing.
    """

    svg: str
    alt: str
    title: str = ""


@final
@dataclass(frozen=True)
class Chart:
    """One drawing, or several of the same kind.

    Args:
        name: Name of its files next to the Markdown version.
        panels: Drawings.
        caption: Explanation of the drawings.
        size: Size of the panels; "small" ones are placed side by side.
    """

    name: str
    panels: tuple[Panel, ...]
    caption: str
    size: Literal["full", "half", "small"] = "full"


@final
@dataclass(frozen=True)
class Strip:
    """Queries and their search results, as images.

    Args:
        groups: Title of each group, and for each query its image, its score as text and the images of its neighbours.
        caption: Explanation of the images.
    """

    groups: tuple[tuple[str, tuple[tuple[Thumbnail, str, tuple[Thumbnail, ...]], ...]], ...]
    caption: str


@final
@dataclass(frozen=True)
class Code:
    """Text to copy.

    Args:
        text: Text, shown verbatim.
        summary: Line under which the text is folded away; empty to show it.
    """

    text: str
    summary: str = ""


Block = Prose | Table | Chart | Strip | Code


@final
@dataclass(frozen=True)
class Chapter:
    """A titled sequence of blocks.

    Args:
        title: Title of a few words.
        blocks: Blocks in reading order.
    """

    title: str
    blocks: tuple[Block, ...] = field(default_factory=tuple)
