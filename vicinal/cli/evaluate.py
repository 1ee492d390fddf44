"""`vicinal evaluate`: the scores of embeddings in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from vicinal.errors import InputError
from vicinal.evaluation.evaluate import evaluate as evaluate_embeddings
from vicinal.evaluation.files import read_table

__all__ = ["evaluate"]


def evaluate(
    embeddings: Annotated[
        Path,
        typer.Argument(
            help="An .npz file with the arrays embeddings and labels, an .npy file of embeddings (with --labels), or "
            "a .parquet file with the columns embedding and label."
        ),
    ],
    labels: Annotated[
        Path | None, typer.Option(help="Labels in a file of their own: .npy, .txt (one per line) or .csv.")
    ] = None,
    gallery: Annotated[
        Path | None, typer.Option(help="References, if the embeddings are queries to search in other items.")
    ] = None,
    gallery_labels: Annotated[Path | None, typer.Option(help="Labels of the references.")] = None,
    metric: Annotated[Literal["cosine", "euclidean"], typer.Option(help="How two embeddings are compared.")] = "cosine",
    k: Annotated[str, typer.Option(help="The k of R@k, separated by commas.")] = "1,2,4,8",
    full_ranking: Annotated[
        bool | None, typer.Option(help="Also mAP, MRR and nDCG; by default for up to 10,000 items.")
    ] = None,
    clustering: Annotated[bool, typer.Option(help="Also NMI, AMI and F1 of k-means.")] = True,
    geometry: Annotated[bool, typer.Option(help="Also the shape of the embedding space.")] = True,
    draws: Annotated[int, typer.Option(min=0, help="Resamples of the intervals; 0 for none.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Of the intervals, between 0 and 1.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the resamples and of k-means.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write everything to this JSON file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw R@k and the worst classes to this .png, .pdf or .svg file.")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Score embeddings by how well neighbours share their class, with intervals.

    Files may also hold sequences (column sequence): references of a query's own sequence are then ignored.
    """
    ks = _whole_numbers(k)
    _require_drawable(plot)
    if gallery is None and gallery_labels is not None:
        raise InputError("--gallery-labels came without --gallery.")
    items = read_table(embeddings, labels)
    others = None if gallery is None else read_table(gallery, gallery_labels)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not progress,
    )
    stages: dict[str, TaskID] = {}

    def report(stage: str, fraction: float) -> None:
        if stage not in stages:
            stages[stage] = bar.add_task(stage, total=1.0)
        bar.update(stages[stage], completed=fraction)

    with bar:
        scores = evaluate_embeddings(
            items.embeddings,
            items.labels,
            gallery=None if others is None else others.embeddings,
            gallery_labels=None if others is None else others.labels,
            sequences=items.sequences,
            gallery_sequences=None if others is None else others.sequences,
            metric=metric,
            k=ks,
            full_ranking=full_ranking,
            clustering=clustering,
            geometry=geometry,
            draws=draws,
            confidence=confidence,
            seed=seed,
            progress=report,
        )
    typer.echo(str(scores))
    for path in (json, plot):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    if json is not None:
        scores.to_json(json)
    if plot is not None:
        scores.plot(plot)


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--k must be whole numbers separated by commas, such as 1,2,4,8; got {text!r}.") from None


def _require_drawable(path: Path | None) -> None:
    """Find out before minutes of work that a figure cannot be written."""
    kinds = Figure().canvas.get_supported_filetypes()
    if path is not None and path.suffix[1:].lower() not in kinds:
        raise InputError(f"--plot must end in one of {', '.join(f'.{kind}' for kind in sorted(kinds))}; got {path}.")
