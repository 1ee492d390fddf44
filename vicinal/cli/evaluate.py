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
from vicinal.cli.output import prepare_figure, print_scores, save_figure, say_notes
from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.data import Dataset
    from vicinal.embedder import Embedder
    from vicinal.evaluation import Scores
    from vicinal.evaluation.files import Table

__all__ = ["evaluate"]


def evaluate(
    what: Annotated[
        Path,
        typer.Argument(
            help="Embeddings with labels (.npz or .parquet), embeddings alone (.npy, with --labels), or a model or "
            "run folder (with DATA).",
            metavar="FILE|MODEL",
        ),
    ],
    data: Annotated[
        str | None, typer.Argument(help="Dataset to score a model on: folder, table, .npz file or name.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Score only the test classes of this protocol.", show_default="all items"),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="File of labels: .npy, .txt (one per line) or .csv.")] = None,
    gallery: Annotated[Path | None, typer.Option(help="Embeddings to search in, if FILE holds queries.")] = None,
    gallery_labels: Annotated[Path | None, typer.Option(help="File of labels of the gallery.")] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None,
        typer.Option(
            help="Distance between embeddings.",
            show_default="from the model or file, else cosine",
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            help="Values of k for R@k.",
            metavar="N,...",
            show_default="1,2,4,8, or as in papers for sop and inshop",
        ),
    ] = None,
    full_ranking: Annotated[
        bool | None,
        typer.Option(help="Also compute mAP, MRR and nDCG; on by default up to 10,000 items."),
    ] = None,
    clustering: Annotated[bool, typer.Option(help="Skip NMI, AMI and F1 of k-means.")] = True,
    geometry: Annotated[bool, typer.Option(help="Skip the geometry of the embedding space.")] = True,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Also score same/different decisions: AUC, EER, TAR at FAR.",
        ),
    ] = False,
    identify: Annotated[
        bool,
        typer.Option("--identify", help="Also score open-set identification: rank-1, DIR at FAR."),
    ] = False,
    few_shot: Annotated[str, typer.Option(help="Also score few-shot classification, such as 5x1,5x5.")] = "",
    scores: Annotated[str, typer.Option(help="Custom scores: my_module:my_score,...")] = "",
    whiten: Annotated[Path | None, typer.Option(help="Whiten, with statistics of the embeddings in this file.")] = None,
    augment: Annotated[
        int, typer.Option(min=0, help="Database augmentation: average each reference with N neighbours.")
    ] = 0,
    expand: Annotated[
        int, typer.Option(min=0, help="Query expansion: average each query with its N nearest items.")
    ] = 0,
    rerank: Annotated[bool, typer.Option("--rerank", help="Re-rank by shared neighbours (k-reciprocal).")] = False,
    sizes: Annotated[
        Path | None,
        typer.Option(help="Plot score against bytes per embedding (shorter, int8, bits) to this file."),
    ] = None,
    draws: Annotated[int, typer.Option(min=0, help="Bootstrap resamples for intervals; 0 for none.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap and k-means.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Threads that decode images and run the network.",
            show_default="one per core",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write all scores to this JSON file.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Print all scores.")] = False,
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Plot R@k and the worst classes to this file.")] = None,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Score embeddings, or a model on a dataset: do nearest neighbours share a class?"""
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
        raise InputError(f"{what} does not exist; give the folder of a model or a run.")
    model = None
    if what.is_dir():
        if data is None:
            raise InputError(
                f"{what} is a folder; name the dataset to score its model on: vicinal evaluate {what} DATA"
            )
        if labels or gallery or gallery_labels:
            raise InputError("--labels, --gallery and --gallery-labels are for files of embeddings, not for a model.")
        embedder = Embedder.load(what, allow_code=allow_code or ())
        scored = _scored_part(load(data, skip_bad=skip_bad, allow_code=allow_code or ()), protocol)
        dataset = scored.name
        items, others = _embedded(embedder, scored, workers, progress)
        usual, model = embedder.distance, embedder
    else:
        if data or protocol or workers is not None:
            raise InputError(f"DATA, --protocol and --workers are for a model; {what} is not the folder of one.")
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
    ranking_requested = full_ranking is True
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
    if as_json:
        typer.echo(result.to_json(per_query=False))
    else:
        print_scores(result, _requested(k is not None, ranking_requested, result), everything=everything)
    if verify and model is not None:
        say_notes([_calibrated(model, items, others, what)])
    if out is not None:
        result.to_json(out)
    if plot is not None:
        result.plot(plot)
    if sizes is not None:
        if others is not None or (distance or usual) != "cosine":
            raise InputError("--sizes needs cosine distance and no gallery.")
        size_scores = score_sizes(items.embeddings, items.labels)  # type: ignore[arg-type]
        typer.echo(sizes_in_words(size_scores), err=as_json)
        save_figure(draw_sizes(size_scores), sizes)


def _requested(recalls: bool, ranking: bool, scores: Scores) -> set[str]:
    """Return the names of scores that flags asked for explicitly, though they are computed by default.

    Args:
        recalls: Whether --k was given.
        ranking: Whether --full-ranking was given.
        scores: Computed scores.
    """
    names = {name for name in scores.overall if name.startswith("R@")} if recalls else set()
    return names | {"mAP", "MRR", "nDCG"} if ranking else names


def _calibrated(model: Embedder, items: Table, others: Table | None, name: Path) -> str:
    """Return what the calibrated threshold of a model does on the scored items."""
    from vicinal.evaluation.verification import rates_at

    rule = model.calibration
    if rule is None:
        return f"{name} has no similarity threshold; run vicinal calibrate."
    gallery = None if others is None else (others.embeddings, others.labels)
    far, tar = rates_at(rule.threshold, items.embeddings, items.labels, gallery=gallery, distance=model.distance)
    return f"The calibrated threshold of {rule.threshold:.6g} has FAR {far:.3g} and TAR {tar:.3g} here. {rule.claim()}"


def _from_files(
    embeddings: Path, labels: Path | None, gallery: Path | None, gallery_labels: Path | None
) -> tuple[Table, Table | None]:
    from vicinal.evaluation.files import read_table

    if gallery is None and gallery_labels is not None:
        raise InputError("--gallery-labels needs --gallery.")
    return read_table(embeddings, labels), None if gallery is None else read_table(gallery, gallery_labels)


def _distance_of(
    file: Path, items: Table, requested: str | None, gallery: Path | None, others: Table | None
) -> Literal["cosine", "euclidean"]:
    """Return the distance stated in files, for use without a flag; print a note if a flag contradicts them."""
    stated = {path: table.distance for path, table in ((file, items), (gallery, others)) if table and table.distance}
    if requested is None and len(set(stated.values())) > 1:
        methods = ", ".join(f"{path}: {distance}" for path, distance in stated.items())
        raise InputError(f"The files name different distances ({methods}); choose one with --distance.")
    if requested is not None:
        other = [(path, distance) for path, distance in stated.items() if distance != requested]
        say_notes(
            f"{path} names the distance {distance}; --distance {requested} overrides it." for path, distance in other
        )
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
