"""What a comparison says before it begins: what is compared, on what, what to know, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vicinal.budget import images_per_step
from vicinal.comparing.panel import PANEL, panel_in_words
from vicinal.data import Dataset, leak_note
from vicinal.phrasing import counted, duration
from vicinal.recipe import Recipe
from vicinal.results.run_notes import budget_note, colour_note, random_network_note, share_note, validation_note

__all__ = ["features_in_words", "opening_words", "time_in_words"]


def opening_words(first: Recipe, data: Dataset, notes: Sequence[str], *, panel: bool) -> Iterator[str]:
    """Say what is run on what, and all that a reader of the scores will have to know; a line each.

    Args:
        first: The recipe of the first run.
        data: The whole of it.
        notes: What the comparison knows already.
        panel: Whether the ways to compare were chosen by vicinal.
    """
    split, training = first.split(data), first.training
    sides = {"train": split.train, "validate": split.chooser, "test": split.test}
    divided = ", ".join(f"{len(view.classes)} {side}" for side, view in sides.items() if view is not None)
    yield f"{data.name}: {counted(len(data), 'item')} of {counted(len(data.classes), 'class')}; of these {divided}."
    yield f"Network: {_network(first)}."
    if panel:
        yield f"No loss is named: {len(PANEL)} are compared that differ in kind."
        yield from (f"  {line}" for line in panel_in_words())
    yield _budget(first)
    known = [
        leak_note(split),
        validation_note(split),
        share_note(first, split),
        random_network_note(first, split.train),
        colour_note(first, split.train),
    ]
    if training.steps is not None:
        known.append(budget_note(training.steps * images_per_step(first), split.train))
    for note in dict.fromkeys([*notes, *known]):
        if note is not None:
            yield f"Note: {note}"


def features_in_words(seconds: float) -> str:
    """How long features take that have to be computed first."""
    return f"The network's features are computed first, in {_about(seconds)}, and kept for the next time."


def time_in_words(runs: int, seconds: float) -> str:
    """How long the runs take together."""
    return f"{counted(runs, 'run')} will take {_about(seconds)} on this machine."


def _budget(recipe: Recipe) -> str:
    """What each run may use up, and when it ends before that."""
    training, batch = recipe.training, images_per_step(recipe)
    limit = "" if training.seconds is None else f" for {duration(training.seconds)}"
    if training.steps is None:
        said = f"Each run trains{limit}, in steps of {batch} images"
    else:
        said = f"Each run sees {training.steps * batch:,} images in {counted(training.steps, 'step')} of {batch}"
        said += f", or trains{limit} if that is shorter" if limit else ""
    if training.patience is not None:
        said += f", and ends early where {counted(training.patience, 'evaluation')} in a row bring nothing"
    return f"{said}."


def _network(recipe: Recipe) -> str:
    weights = "pretrained weights" if recipe.pretrained else "random weights"
    trained = "; it stands still, and a head on its features is trained" if recipe.freeze is True else ""
    return f"{recipe.backbone} with {weights}{trained}"


def _about(seconds: float) -> str:
    return f"about {max(1, round(seconds))} s" if seconds < 60 else f"about {duration(seconds)}"
