"""Names as papers write them, in vicinal's spelling: ResNet-50 and resnet50 are one network."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from vicinal.backbones import BACKBONES
from vicinal.objectives import OBJECTIVES
from vicinal.results.literature import published

__all__ = ["Kind", "known_names", "spelled"]

Kind = Literal["dataset", "score", "method", "backbone", "pooling"]

# Without capitals, spaces, dots, dashes and underscores, in which spellings may differ anyway.
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
    """Return vicinal's spelling of a name; a name that is not known is returned as it is.

    Example:
        >>> spelled("backbone", "ResNet-50"), spelled("dataset", "CUB-200-2011"), spelled("score", "Recall@1")
        ('resnet50', 'cub', 'R@1')
        >>> spelled("method", "ProxyNCA++"), spelled("method", "My Own")
        ('proxy_nca_pp', 'My Own')
    """
    return _spellings(kind).get(_bare(name), name)


@cache
def known_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of a kind that published numbers have, or that vicinal itself knows."""
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
    # A plus sign stays: it tells ProxyNCA++ from ProxyNCA, and what a loss was used with.
    return re.sub(r"[^a-z0-9+@]", "", name.casefold())
