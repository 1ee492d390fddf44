"""Published numbers, for comparison with your own."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from vicinal.backbones import BACKBONES
from vicinal.errors import UnknownName
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES

__all__ = ["Kind", "Published", "known_names", "published", "same_method", "spelled", "thesis_tables"]


@dataclass(frozen=True)
class Published:
    """One published number.

    Args:
        source: Authors and year (or title), and the table.
        dataset: Name of the dataset in vicinal.
        protocol: Use of test and validation classes; see `vicinal.split`. Under "default" the sources chose the best
            epoch on the test classes.
        backbone: Name of the backbone in vicinal; "" if the source does not say.
        dim: Dimension of the embedding; None if the source does not say.
        method: Name of the loss in vicinal, followed by "+" and each addition: "memory" (XBM), "ccp", "hierarchy"
            (HPL), or a miner.
        score: "R@1" (or another k), "P@1", "P@R", "MAP@R", "validation R@1", "validation MAP@R", or "steps" of
            training.
        value: Score from 0 to 1, or number of steps.
        part: Part of the experiment, if the source reports them separately: "fold 3", or "90/10" for the training and
            validation classes.
        note: Problem with the number, if any.
        pooling: "average", "max" or "both" (their sum), from the text of the source or else from its code; "" for
            numbers that a source quotes from others, where neither is known.
        image_size: Side of the images in pixels; None if it is not known.
    """

    source: str
    dataset: str
    protocol: str
    backbone: str
    dim: int | None
    method: str
    score: str
    value: float
    part: str = ""
    note: str = ""
    pooling: str = ""
    image_size: int | None = None


def published(
    dataset: str | None = None,
    *,
    protocol: str | None = None,
    backbone: str | None = None,
    dim: int | None = None,
    method: str | None = None,
    score: str | None = None,
    source: str | None = None,
) -> list[Published]:
    """Return the published numbers that match all arguments.

    They come from Psomas, "Metric learning: a deep dive" (thesis, Athens 2020); Gürbüz et al., "Deep metric learning
    with chance constraints" (WACV 2024); Musgrave et al., "A metric learning reality check" (ECCV 2020; test scores
    read off a figure, good to 0.0005); and "A unified view of deep metric learning via gradient analysis".

    Args:
        dataset: One of "cub", "cars196", "sop", "inshop"; there are no numbers for other datasets.
        protocol: "default", "fixed-validation", "k-fold" or "reality-check".
        backbone: "bn_inception", "googlenet" or "resnet50".
        dim: Dimension of the embedding.
        method: Method, spelled as in `Published.method`; `same_method` is more tolerant.
        score: Score, spelled as in `Published.score`. R@1 and P@1 are the same number.
        source: Beginning of the source, such as "Psomas".

    Returns:
        Matching numbers in the order of the sources; an empty list if there are none.

    Example:
        >>> (found,) = published("cub", method="proxy_anchor", score="MAP@R", dim=512)
        >>> found.source, found.value
        ('Gürbüz et al. 2024, Table 2', 0.2653)
    """
    wanted = {
        "dataset": dataset,
        "protocol": protocol,
        "backbone": backbone,
        "dim": dim,
        "method": method,
        "score": score,
    }
    return [
        row
        for row in _rows()
        if all(value is None or getattr(row, name) == value for name, value in wanted.items())
        and row.source.startswith(source or "")
    ]


def same_method(own: str, theirs: str) -> bool:
    """Return whether a published number belongs to your method: the same loss with the same additions.

    A miner counts only if the source names one, since many sources do not.

    Args:
        own: Your method, spelled as in `Record.method`.
        theirs: Published method, spelled as in `Published.method`.

    Example:
        >>> same_method("triplet+semi_hard+ccp", "triplet+ccp"), same_method("triplet", "triplet+ccp")
        (True, False)
        >>> same_method("raw+semi_hard", "raw+valid_triplets")
        False
    """
    (own_loss, *own_extras), (loss, *extras) = own.split("+"), theirs.split("+")
    named = set(extras) if MINERS.keys() & set(extras) else set(extras) | (MINERS.keys() & set(own_extras))
    return own_loss == loss and set(own_extras) == named


def thesis_tables(dataset: str = "cub", score: str = "R@1") -> dict[str, dict[str, float]]:
    """Return R@k of 10 losses with several networks and embedding sizes, from Psomas' thesis of 2020.

    Args:
        dataset: "cub" (Tables 6-8: 3 networks, 4 sizes), "cars196" (Tables 9, 20, 21: the same) or "sop" (Table 10:
            BN-Inception, 4 sizes). The tournament of the thesis, its Table 11, uses CUB.
        score: "R@1", "R@2", "R@4" or "R@8"; for SOP "R@1", "R@10", "R@100" or "R@1000".

    Returns:
        Experiment -> loss -> score, as `tournament` takes it, without impossible numbers (two of SOP's).

    Example:
        >>> tables = thesis_tables()
        >>> len(tables), tables["resnet50 64"]["proxy_anchor"]
        (12, 0.6293)
    """
    tables: dict[str, dict[str, float]] = {}
    for row in published(dataset, protocol="default", score=score, source="Psomas"):
        if row.method != "proxy_gram" and not row.note:  # the thesis' own loss was run in one experiment only
            tables.setdefault(f"{row.backbone} {row.dim}", {})[row.method] = row.value
    if not tables:
        raise UnknownName("dataset of the thesis", dataset, {"cub", "cars196", "sop"})
    return tables


@cache
def _rows() -> tuple[Published, ...]:
    text = resources.files("vicinal.literature").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            source=row["source"],
            dataset=row["dataset"],
            protocol=row["protocol"],
            backbone=row["backbone"],
            dim=int(row["dim"]) if row["dim"] else None,
            method=row["method"],
            score=row["score"],
            # The file has scores in per cent.
            value=float(row["value"]) if row["score"] == "steps" else round(float(row["value"]) / 100, 6),
            part=row["part"],
            note=row["note"],
            pooling=row["pooling"],
            image_size=int(row["image_size"]) if row["image_size"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    )


# Spelling of names in papers: ResNet-50 and resnet50 are the same network.

Kind = Literal["dataset", "score", "method", "backbone", "pooling"]

# Keys are without capitals, spaces, dots, dashes and underscores, which are ignored in any spelling.
ALSO_CALLED: dict[Kind, dict[str, str]] = {
    "dataset": {
        "cub200": "cub",
        "cub2002011": "cub",
        "caltechucsdbirds": "cub",
        "cars": "cars196",
        "stanfordcars": "cars196",
        "stanfordonlineproducts": "sop",
        "onlineproducts": "sop",
        "inshopclothes": "inshop",
        "deepfashion": "inshop",
    },
    "score": {},
    "method": {
        "lifted": "lifted_structure",
        "liftedstruct": "lifted_structure",
        "ms": "multi_similarity",
        "proxynca++": "proxy_nca_pp",
    },
    "backbone": {
        "r50": "resnet50",
        "inceptionbn": "bn_inception",
        "inceptionv2": "bn_inception",
        "inceptionv1": "googlenet",
    },
    "pooling": {
        "avg": "average",
        "mean": "average",
        "gap": "average",
        "maximum": "max",
        "gmp": "max",
        "sum": "both",
        "avg+max": "both",
        "average+max": "both",
        "gap+gmp": "both",
    },
}


def spelled(kind: Kind, name: str) -> str:
    """Return a name in vicinal's spelling; an unknown name is returned unchanged.

    Example:
        >>> spelled("backbone", "ResNet-50"), spelled("dataset", "CUB-200-2011"), spelled("score", "Recall@1")
        ('resnet50', 'cub', 'R@1')
        >>> spelled("method", "ProxyNCA++"), spelled("method", "My Own")
        ('proxy_nca_pp', 'My Own')
    """
    return _spellings(kind).get(_bare(name), name)


@cache
def known_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of a kind that occur in published numbers or in vicinal itself."""
    own = {"method": tuple(OBJECTIVES), "backbone": tuple(BACKBONES), "pooling": ("average", "max", "both")}
    names = [getattr(row, kind) for row in published()]
    return tuple(dict.fromkeys(name for name in (*names, *own.get(kind, ())) if name))


@cache
def _spellings(kind: Kind) -> dict[str, str]:
    names = {_bare(name): name for name in known_names(kind)}
    in_full = {"R@": "recall@", "P@": "precision@"}
    written = {
        _bare(name.replace(short, full)): name
        for name in (known_names(kind) if kind == "score" else ())
        for short, full in in_full.items()
        if short in name and not name.startswith("MAP")
    }
    return {_bare(also): name for also, name in ALSO_CALLED[kind].items()} | written | names


def _bare(name: str) -> str:
    # A plus sign stays: it distinguishes ProxyNCA++ from ProxyNCA, and separates the additions of a loss.
    return re.sub(r"[^a-z0-9+@]", "", name.casefold())
