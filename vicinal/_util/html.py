"""HTML for showing objects in notebooks."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["html_page", "html_picture", "html_table"]


def html_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; numbers are right-aligned, and everything is escaped.

    Example:
        >>> html_table(["score", "value"], [["P@1", 0.5]]).count("<td")
        2
    """

    def cell(tag: str, value: object) -> str:
        side = "right" if isinstance(value, (int, float)) else "left"
        text = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        return f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>'

    lines = ["".join(cell("td", value) for value in row) for row in rows]
    top = "".join(cell("th", value) for value in head)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def html_picture(image: Image.Image, alt: str) -> str:
    """Return an image that is embedded in the page."""
    file = BytesIO()
    image.save(file, format="PNG", optimize=True)
    content = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{content}" style="max-width:100%">'


def html_page(title: str, *parts: str) -> str:
    """Return a title followed by parts of HTML."""
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(parts)}</div>"
