"""Pictures on both sides of a split: what was trained on, or nearly, is then asked for."""

from __future__ import annotations

from vicinal.data.lookalikes import NOT_COMPARED, lookalike_files
from vicinal.data.splits import Split

__all__ = ["find_leaks", "leak_note"]


def find_leaks(split: Split) -> list[tuple[str, ...]]:
    """Return groups of files that are the same, or look it, and are on several sides of a split.

    Args:
        split: Of image files; images in memory and vectors have no files. Of more than 20,000 different ones only the
            bytes are compared.
    """
    return _leaks_and_whether_looked_at(split)[0]


def leak_note(split: Split) -> str | None:
    """Say that pictures are on both sides of a split, or that it was not looked at them; None if there is neither."""
    leaks, looked_at = _leaks_and_whether_looked_at(split)
    if not leaks:
        return None if looked_at else f"The split was checked for files that are the same alone: {NOT_COMPARED}"
    many = "a picture is" if len(leaks) == 1 else f"{len(leaks):,} pictures are"
    rest = "" if looked_at else f" There may be more: {NOT_COMPARED}"
    return (
        f"LEAK: {many} on both sides of the split, the same or nearly, so that scores are too good; "
        f"the first: {', '.join(leaks[0])}. `vicinal duplicates` lists them all.{rest}"
    )


def _leaks_and_whether_looked_at(split: Split) -> tuple[list[tuple[str, ...]], bool]:
    views = {"train": split.train, "validation": split.validation, "test": split.test}
    sides = {
        str(path): side
        for side, view in views.items()
        if view is not None and isinstance(view.items, tuple)
        for path in view.items
    }
    paths = list(sides)
    alike = lookalike_files(paths)
    groups = [tuple(paths[place] for place in group) for group in (*alike.same, *alike.near)]
    return [group for group in groups if len({sides[path] for path in group}) > 1], alike.compared
