"""Embeddings of other sizes: shortened, stored in fewer bytes, or concatenated over several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float32, Int8, Int64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.evaluation import retrieval
from vicinal.neighbours.exact import search
from vicinal.neighbours.inputs import ArrayLike, Exclusion, Labels, as_codes, as_embeddings
from vicinal.neighbours.rounding import as_bits, as_int8, middle_of
from vicinal.neighbours.similarity import vectors
from vicinal.neighbours.threads import side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SizeScores", "concatenate", "draw_sizes", "score_sizes", "sizes_in_words"]


SMALLEST = 16  # dimensions of the shortest prefix that is tried by default
SHORTLIST = 4  # number of candidates found by bits and rescored by 8-bit integers, per wanted neighbour
PRODUCTS = 1 << 21  # numbers of an intermediate array, so that it stays in the cache
KINDS = ("float32", "int8", "bits, rescored by int8", "bits")


@dataclass(frozen=True)
class SizeScores:
    """Scores of embeddings of one size.

    Attributes:
        dim: Length of the prefix of each embedding that is kept.
        kind: Number format: "float32", "int8", "bits", or bits that are rescored by 8-bit integers.
        searched: Bytes per item that a search reads for every item.
        kept: Total bytes stored per item.
        scores: P@1 and MAP@R.
    """

    dim: int
    kind: str
    searched: float
    kept: float
    scores: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "dim": self.dim,
            "kind": self.kind,
            "searched": self.searched,
            "kept": self.kept,
            "scores": self.scores,
        }


def score_sizes(embeddings: ArrayLike, labels: Labels, *, dims: Sequence[int] | None = None) -> list[SizeScores]:
    """Score prefixes of embeddings under the cosine, with 32, 8 and 1 bit per number; each by exact search.

    A prefix works best if the first numbers carry the most information: after PCA, or after training with `prefixes`.
    With rescoring, bits find four times as many candidates as wanted, which 8-bit integers then order.

    Args:
        embeddings: One row per item, searched among themselves.
        labels: One label per item.
        dims: Lengths of the prefixes; by default the full length, halved repeatedly down to 16.

    Example:
        >>> rows = [[1.0, 0.2], [1.0, 0.1], [-1.0, 0.1], [-1.0, 0.2]]
        >>> for size in score_sizes(rows, [0, 0, 1, 1], dims=[1]):
        ...     print(size.kind, size.searched, size.scores["P@1"])
        float32 4.0 1.0
        int8 1.0 1.0
        bits, rescored by int8 0.125 1.0
        bits 0.125 1.0
    """
    items = as_embeddings(embeddings)
    whole = items.shape[1]
    chosen = _halves(whole) if dims is None else sorted(set(dims), reverse=True)
    if not chosen or min(chosen) < 1 or max(chosen) > whole:
        raise InputError(f"Prefixes have 1 to {whole} of the {whole} dimensions; got {list(dims or [])}.")
    _, (codes,) = as_codes(labels, sizes=[len(items)])
    relevant = torch.bincount(codes)[codes] - 1
    count = int(relevant.max())
    if count < 1:
        raise InputError("No label has two items: no item has a neighbour of its own class to find.")
    results = []
    for dim in chosen:
        rows = torch.nn.functional.normalize(items[:, :dim].double()).numpy()
        small, bits = as_int8(rows), as_bits(rows, middle_of(rows))
        by_bits = _nearest_by_bits(bits, min(SHORTLIST * count, len(items) - 1))
        answers = {
            "float32": (4.0 * dim, 4.0 * dim, _nearest(rows, count)),
            "int8": (float(dim), float(dim), _nearest(small.astype(np.float32), count)),
            "bits, rescored by int8": (dim / 8, dim / 8 + dim, _rescored(small, by_bits)),
            "bits": (dim / 8, dim / 8, by_bits),
        }
        for kind, (searched, stored, indices) in answers.items():
            results.append(SizeScores(dim, kind, searched, stored, _scores(indices[:, :count], codes, relevant)))
    return results


def sizes_in_words(sizes: Sequence[SizeScores]) -> str:
    """Return a table as text, with a line for each size."""
    lines = [
        f"{'dimensions':>10}  {'numbers':<22}  {'bytes searched':>14}  {'bytes kept':>10}  {'MAP@R':>6}  {'P@1':>6}"
    ]
    for size in sizes:
        scores = f"{size.scores['MAP@R']:6.4f}  {size.scores['P@1']:6.4f}"
        lines.append(f"{size.dim:>10}  {size.kind:<22}  {size.searched:>14,.0f}  {size.kept:>10,.0f}  {scores}")
    return "\n".join(lines)


def draw_sizes(sizes: Sequence[SizeScores], score: str = "MAP@R") -> Figure:
    """Draw a score against the bytes per item that a search reads, with a line for each number format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for kind, mark in zip(KINDS, "osD^", strict=True):
        points = sorted((size.searched, size.scores[score], size.dim) for size in sizes if size.kind == kind)
        if points:
            axes.plot([x for x, _, _ in points], [y for _, y, _ in points], marker=mark, label=kind)
        if kind == "float32":
            for x, y, dim in points:
                axes.annotate(f"{dim}-D", (x, y), textcoords="offset points", xytext=(0, 6), ha="center", size=8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bytes per item that a search reads")
    axes.set_ylabel(score)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _halves(whole: int) -> list[int]:
    dims = [whole]
    while dims[-1] // 2 >= SMALLEST:
        dims.append(dims[-1] // 2)
    return dims


def _nearest(rows: ArrayLike, k: int) -> Int64[Tensor, "n k"]:
    """Find the k nearest rows of each row like `find_neighbours`, but without computing their exact similarities."""
    items, _ = vectors(as_embeddings(rows))
    neighbours = torch.empty((len(items), k), dtype=torch.int64)

    def consume(queries: Tensor, columns: Tensor) -> None:
        neighbours[queries] = columns

    search(items, items, Exclusion(itself=True), k, consume)
    return neighbours


def _nearest_by_bits(bits: Int8[np.ndarray, "n d"], k: int) -> Int64[Tensor, "n k"]:
    """Find the k nearest rows of 1 and -1 of each row, ties by index, as `find_neighbours` does.

    Products of bits are integers of few different values, so that most neighbours are tied. A general search compares
    all tied pairs again in exact arithmetic. Here one float64 key has both the product and the index, without rounding.
    """
    rows = torch.from_numpy(bits.astype(np.float32))  # sums of up to 2^24 products of 1 and -1 are exact
    columns = torch.arange(len(rows), dtype=torch.float64)
    neighbours = torch.empty((len(rows), k), dtype=torch.int64)

    def work(block: Tensor) -> None:
        keys = (rows[block] @ rows.T).double().mul_(len(rows)).sub_(columns)
        keys[torch.arange(len(block)), block] = -torch.inf  # an item is not its own neighbour
        neighbours[block] = keys.topk(k).indices

    side_by_side(work, torch.split(torch.arange(len(rows)), max(1, PRODUCTS // len(rows))))
    return neighbours


def _rescored(codes: Int8[np.ndarray, "n d"], candidates: Int64[Tensor, "n k"]) -> Int64[Tensor, "n k"]:
    """Order the candidates that bits found by the cosines of 8-bit integers."""
    rows = torch.nn.functional.normalize(torch.from_numpy(codes.astype(np.float32)))
    ordered = torch.empty_like(candidates)

    def work(block: Tensor) -> None:
        cosines = torch.einsum("nd,nkd->nk", rows[block], rows[candidates[block]])
        order = cosines.argsort(dim=1, descending=True, stable=True)
        ordered[block] = candidates[block].gather(1, order)

    size = max(1, PRODUCTS // (candidates.shape[1] * rows.shape[1]))
    side_by_side(work, torch.split(torch.arange(len(rows)), size))
    return ordered


def _scores(indices: Tensor, codes: Tensor, relevant: Tensor) -> dict[str, float]:
    hits = codes[indices] == codes[:, None]
    parts = {"P@1": retrieval.precision_at_1, "MAP@R": retrieval.average_precision_at_r}
    return {name: float(np.nanmean(function(hits, relevant).numpy())) for name, function in parts.items()}


# Ensembles of several models.


def concatenate(models: Sequence[ArrayLike]) -> Float32[Tensor, "n d"]:
    """Join the embeddings of the same items by several models, each with the same weight.

    Each model's embeddings are normalised first, so that the cosine similarity of the joined ones is the mean
    of the models' cosine similarities; the result has length one again.

    Args:
        models: One matrix per model; dimensions may differ.

    Reference:
        Musgrave, Belongie and Lim (2020), A Metric Learning Reality Check, section 4: the models of four
        cross-validation folds, 128 dimensions each, joined to 512.

    Example:
        >>> concatenate([[[3.0, 0.0]], [[0.0, 0.5]]])
        tensor([[0.7071, 0.0000, 0.0000, 0.7071]])
    """
    matrices = [as_embeddings(model, f"embeddings of model {number}") for number, model in enumerate(models)]
    if not matrices:
        raise InputError("An ensemble needs the embeddings of at least one model, got none.")
    sizes = [len(matrix) for matrix in matrices]
    if len(set(sizes)) > 1:
        raise InputError(f"All models must embed the same items in the same order; got {sizes} items.")
    parts = [vectors(matrix)[0].scaled(slice(None)) for matrix in matrices]
    return (torch.cat(parts, dim=1) / len(parts) ** 0.5).float()
