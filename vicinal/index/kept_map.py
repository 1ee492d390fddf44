"""The map of an index, made beforehand: the first who looks at it does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from vicinal.errors import DataError
from vicinal.index.index_folder import IndexFolder
from vicinal.index.map_layout import MapLayout, has_layout, kept_layout
from vicinal.live_bar import LiveBar

if TYPE_CHECKING:
    from vicinal.index.index import Index

__all__ = ["keep_map"]


def keep_map(index: Index, *, progress: bool = True) -> MapLayout:
    """Lay out all items of an index and keep their places in its folder, where the server finds them.

    Args:
        index: Nothing is done anew where its map is there already.
        progress: Whether to show progress.

    Raises:
        DataError: If the folder cannot be written to.
    """
    vectors = index.get()[1]
    folder = IndexFolder(index.path).current()
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with LiveBar(*columns, shown=progress) as bar:
        task = bar.add_task("map", total=len(vectors))
        layout = kept_layout(
            folder, vectors, distance=index.distance, placed=lambda many: bar.update(task, completed=many)
        )
        bar.update(task, completed=len(vectors))
    if not has_layout(folder, vectors, distance=index.distance):
        raise DataError(f"The map cannot be kept in {folder}.", hint="Make the folder writable.")
    return layout
