"""The images that a search or a naming is asked for: embedded, and those that cannot be read listed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from vicinal.errors import DataError

if TYPE_CHECKING:
    from vicinal.index import Index

__all__ = ["SKIP_BAD", "query_images"]

SKIP_BAD: Any = typer.Option(
    help="Of a folder, leave out images that cannot be read, and list them; --no-skip-bad ends with an error if there "
    "are any."
)


def query_images(opened: Index, query: Path, skip_bad: bool) -> tuple[list[str], dict[str, Any]]:
    """The paths of the images that can be read, and their embeddings in the words of `Index.search`.

    Args:
        opened: What they are searched in, which embeds them.
        query: An image, which must be readable, or a folder of images.
        skip_bad: Whether to go on without images of a folder that cannot be read; each is said on standard error.
    """
    from vicinal.data.readers.layout import images_below
    from vicinal.embedder.query_embedding import embed_queries, embed_readable

    if not query.exists():
        raise DataError(f"There is no file {query}.")
    model = opened.embedder()
    made_by = {"embedder": model.identity()}
    if not query.is_dir():
        return [str(query)], {"vector": embed_queries(model, [str(query)]), **made_by}
    paths = list(images_below(query))
    if not paths:
        raise DataError(f"{query} has no images in it.")
    rows, places, faults = embed_readable(model, paths)
    problems = [str(fault).splitlines()[0] for fault in faults]
    if problems and not (skip_bad and places):
        what = "none of the" if not places else f"{len(problems):,} of the"
        hint = "" if not places else "Mend or remove them, or leave them out with --skip-bad."
        raise DataError(
            f"{query}: {what} {len(paths):,} images can{'' if not places else 'not'} be read.", problems, hint
        )
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    for problem in problems:
        console.print(f"skipped: {problem}")
    return [paths[place] for place in places], {"vector": rows, **made_by}
