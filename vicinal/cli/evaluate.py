"""`vicinal evaluate`: score the embeddings in a file, or a model on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from vicinal._util.files import prepare_output
from vicinal._util.progress import LiveBar
from vicinal.cli.options import AllowCode, AsJson, Progress, Quiet, SkipBad, ways_and_shots, whole_numbers, words
from vicinal.cli.output import prepare_figure, save_figure, say_notes
from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.data import Dataset
    from vicinal.embedder import Embedder
    from vicinal.evaluation.files import Table

__all__ = ["evaluate"]


def evaluate(
    what: Annotated[
        Path,
        typer.Argument(
            help="An .npz file with the arrays embeddings and labels, an .npy file of embeddings (with --labels), "
            "a .parquet file with the columns embedding and label, or the folder of a model (with DATA).",
            metavar="FILE|MODEL",
        ),
    ],
    data: Annotated[
        str | None, typer.Argument(help="For a model: a dataset's name, a folder of images, a table or an .npz file.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="For a model: score only the test classes of this protocol; without it all items."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels in a file of their own: .npy, .txt (one per line) or .csv.")
    ] = None,
    gallery: Annotated[
        Path | None, typer.Option(help="References, if the embeddings are queries to search in other items.")
    ] = None,
    gallery_labels: Annotated[Path | None, typer.Option(help="Labels of the references.")] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None,
        typer.Option(
            help="How two embeddings are compared; by default as the model or the file has it, and by cosine where a "
            "file does not say.",
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            help="The k of R@k, separated by commas; by default 1,2,4,8, and of a model on sop or inshop those that "
            "the literature reports there.",
            metavar="NUMBER,...",
            rich_help_panel="Scores",
        ),
    ] = None,
    full_ranking: Annotated[
        bool | None,
        typer.Option(help="Also mAP, MRR and nDCG; by default for up to 10,000 items.", rich_help_panel="Scores"),
    ] = None,
    clustering: Annotated[bool, typer.Option(help="Also NMI, AMI and F1 of k-means.", rich_help_panel="Scores")] = True,
    geometry: Annotated[
        bool, typer.Option(help="Also the shape of the embedding space.", rich_help_panel="Scores")
    ] = True,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Also over all pairs, same or different: AUC, EER, TAR at FARs.",
            rich_help_panel="Scores",
        ),
    ] = False,
    identify: Annotated[
        bool,
        typer.Option("--identify", help="Also who it is, or nobody: rank-1, and DIR at FARs."),
    ] = False,
    few_shot: Annotated[
        str, typer.Option(help="Also new classes by a few examples, as ways x shots with commas: 5x1,5x5.")
    ] = "",
    scores: Annotated[str, typer.Option(help="Scores of your own, separated by commas: my_module:my_score.")] = "",
    whiten: Annotated[
        Path | None, typer.Option(help="Whiten all embeddings by those of training classes, in a file as above.")
    ] = None,
    augment: Annotated[int, typer.Option(min=0, help="Neighbours that each reference is drawn towards.")] = 0,
    expand: Annotated[int, typer.Option(min=0, help="References that each query is drawn towards.")] = 0,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Put the nearest in the order of shared neighbours; no full ranking.")
    ] = False,
    sizes: Annotated[
        Path | None,
        typer.Option(
            help="Score prefixes in 32, 8 and 1 bit a number, too: a table, drawn to this .png, .pdf or .svg."
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=0, help="Resamples of the intervals; 0 for none.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Of the intervals, between 0 and 1.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples and of k-means.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="For a model: threads that open images and run the network.",
            show_default="one per core",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write everything to this JSON file, too.")] = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw R@k and the worst classes to this .png, .pdf or .svg file.")
    ] = None,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Score embeddings, or a model on a dataset, by how well neighbours share their class, with intervals.

    A dataset with queries and a gallery is searched as such.
    Files may also hold sequences (column sequence): references of a query's own sequence are then ignored.
    """
    from vicinal.data import load
    from vicinal.embedder import Embedder
    from vicinal.evaluation import Bootstrap, GroundTruth, Neighbourhood
    from vicinal.evaluation._evaluate import evaluate as evaluate_embeddings
    from vicinal.evaluation._evaluate import ranks_by_default
    from vicinal.evaluation.sizes import draw_sizes, score_sizes, sizes_in_words
    from vicinal.index.exchange import read_vectors
    from vicinal.neighbours import learn_whitening
    from vicinal.runs.run import recall_at

    requested = None if k is None else whole_numbers(k, "--k")
    episodes = [f"{ways}-way {shots}-shot" for ways, shots in ways_and_shots(few_shot, "--few-shot")]
    prepare_output(out)
    prepare_figure(plot, "--plot")
    prepare_figure(sizes, "--sizes")
    if data is not None and not what.exists():
        raise InputError(f"There is no {what}: give the folder of a model, such as a run's.")
    if what.is_dir():
        if data is None:
            raise InputError(
                f"{what} is a folder: say what to score its model on, as in `vicinal evaluate {what} DATA`."
            )
        if labels or gallery or gallery_labels:
            raise InputError("--labels, --gallery and --gallery-labels go with embeddings in a file, not with a model.")
        embedder = Embedder.load(what, allow_code=allow_code or ())
        scored = _scored_part(load(data, skip_bad=skip_bad, allow_code=allow_code or ()), protocol)
        dataset = scored.name
        items, others = _embedded(embedder, scored, workers, progress)
        usual = embedder.distance
    else:
        if data or protocol or workers is not None:
            raise InputError(f"DATA, --protocol and --workers go with the folder of a model; {what} is not a folder.")
        items, others = _from_files(what, labels, gallery, gallery_labels)
        dataset = ""  # unknown for files
        usual = _distance_of(what, items, distance, gallery, others)
    neighbours = Neighbourhood(
        whitening=None if whiten is None else learn_whitening(read_vectors(whiten).vectors),
        augment=augment,
        expand=expand,
        rerank=rerank,
    )
    bar = LiveBar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        shown=progress,
    )
    if full_ranking is None:
        full_ranking = not rerank and ranks_by_default(len(items.labels), len((others or items).labels))
    extras = {
        "ranking": full_ranking,
        "clustering": clustering,
        "geometry": geometry,
        "verification": verify,
        "identification": identify,
    }
    stages: dict[str, TaskID] = {}

    def report(stage: str, fraction: float) -> None:
        if stage not in stages:
            stages[stage] = bar.add_task(stage, total=1.0)
        bar.update(stages[stage], completed=fraction)

    with bar:
        result = evaluate_embeddings(
            items.embeddings,
            GroundTruth(items.labels, items.sequences),
            gallery=None if others is None else (others.embeddings, GroundTruth(others.labels, others.sequences)),
            distance=distance or usual,
            k=recall_at(dataset) if requested is None else requested,
            also=[*(name for name, wanted in extras.items() if wanted), *episodes],
            scores=words(scores),
            neighbours=neighbours,
            intervals=Bootstrap(draws, confidence, seed),
            progress=report,
        )
    typer.echo(result.to_json(per_query=False) if as_json else str(result))
    if out is not None:
        result.to_json(out)
    if plot is not None:
        result.plot(plot)
    if sizes is not None:
        if others is not None or (distance or usual) != "cosine":
            raise InputError("--sizes scores items among themselves, by their cosine.")
        size_scores = score_sizes(items.embeddings, items.labels)  # type: ignore[arg-type]
        typer.echo(sizes_in_words(size_scores), err=as_json)
        save_figure(draw_sizes(size_scores), sizes)


def _from_files(
    embeddings: Path, labels: Path | None, gallery: Path | None, gallery_labels: Path | None
) -> tuple[Table, Table | None]:
    from vicinal.evaluation.files import read_table

    if gallery is None and gallery_labels is not None:
        raise InputError("--gallery-labels came without --gallery.")
    return read_table(embeddings, labels), None if gallery is None else read_table(gallery, gallery_labels)


def _distance_of(
    file: Path, items: Table, requested: str | None, gallery: Path | None, others: Table | None
) -> Literal["cosine", "euclidean"]:
    """Return the distance stated in files, for use without a flag; print a note if a flag contradicts them."""
    stated = {path: table.distance for path, table in ((file, items), (gallery, others)) if table and table.distance}
    if requested is None and len(set(stated.values())) > 1:
        methods = ", ".join(f"{path} by {distance}" for path, distance in stated.items())
        raise InputError(f"The files are compared in different ways ({methods}): say by --distance which counts.")
    if requested is not None:
        other = [(path, distance) for path, distance in stated.items() if distance != requested]
        say_notes(f"{path} says {distance}, and --distance {requested} counts." for path, distance in other)
    return "euclidean" if "euclidean" in stated.values() else "cosine"


def _scored_part(whole: Dataset, protocol: str | None) -> Dataset:
    """Return the test classes of a protocol, which are the same for all folds."""
    from vicinal.data import PROTOCOLS, split

    if protocol is None:
        return whole
    return split(whole, protocol, fold=None if PROTOCOLS.get(protocol) is None else 0).test or whole


def _embedded(embedder: Embedder, scored: Dataset, workers: int | None, progress: bool) -> tuple[Table, Table | None]:
    """Embed a dataset, with queries and gallery separately if it has them."""
    from vicinal.evaluation.files import Table

    def table(part: Dataset) -> Table:
        names = np.array(part.class_names)[part.labels]
        return Table(embedder.encode(part, workers=workers, progress=progress), names)

    if scored.has_gallery:
        return table(scored.with_role("query")), table(scored.with_role("gallery"))
    return table(scored), None
