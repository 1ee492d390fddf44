"""A cover of the data as references, picked by greedy k-Center."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.errors import InputError
from vicinal.objectives.traits import Kind
from vicinal.references.batch import View
from vicinal.references.proxies import check_against_classes

__all__ = ["Cover", "greedy_k_center"]


def greedy_k_center(
    pool: Float[Tensor, "c b d"],
    k: int,
    *,
    centres: Float[Tensor, "c q d"] | None = None,
    valid: Bool[Tensor, "c b"] | None = None,
) -> Int[Tensor, "c k"]:
    """Pick k points of each pool, one after the other, each the farthest from all picked before.

    The largest distance of a point to its nearest pick is at most twice the smallest that any k points can achieve
    (Gonzalez 1985). All c pools are processed together.

    Args:
        pool: Pools of candidates, c pools of b candidates.
        k: Number of points to pick; if a pool has fewer distinct candidates, picks repeat.
        centres: Points that count as already picked. Without them the first pick of a pool is its longest vector.
        valid: Mask of the existing candidates, for pools of unequal size; every pool needs at least one.

    Returns:
        Indices into each pool.

    Example:
        >>> greedy_k_center(torch.tensor([[[1.0], [2.0], [9.0]]]), 2)
        tensor([[2, 0]])
    """
    c, b, _ = pool.shape
    if k < 1 or b < 1:
        raise InputError(f"greedy_k_center needs k of at least 1 and a candidate in each pool; got k={k}, b={b}.")
    if valid is not None and not valid.any(1).all():
        empty = (~valid.any(1)).nonzero().flatten().tolist()
        raise InputError(f"{len(empty)} pools have no valid candidate (first: {empty[:5]}).")
    there = torch.ones(c, b, dtype=torch.bool, device=pool.device) if valid is None else valid
    rows = torch.arange(c, device=pool.device)
    gap = torch.full((c, b), torch.inf, dtype=pool.dtype, device=pool.device)
    if centres is not None:
        gap = torch.cdist(pool, centres).amin(2)
    picks: list[Tensor] = []
    while len(picks) < k:
        alone = centres is None and not picks
        pick = (pool.norm(dim=2) if alone else gap).masked_fill(~there, -torch.inf).argmax(1)
        picks.append(pick)
        gap = torch.minimum(gap, (pool - pool[rows, pick][:, None]).norm(dim=2))
    return torch.stack(picks, dim=1)


@final
class Cover(nn.Module):
    """Compare items with points of the data that cover each class, fixed between two calls of `choose`.

    Args:
        classes: Number of classes; labels must be 0 .. classes - 1.
        dim: Dimension of the embeddings.
        per_class: Number of points per class.

    Example:
        >>> cover = Cover(classes=1, dim=1, per_class=2)
        >>> cover.choose(torch.tensor([[[1.0], [2.0], [9.0]]]))
        >>> cover.vectors
        tensor([[9.],
                [1.]])
    """

    kind: ClassVar[Kind] = "cover"
    vectors: Tensor
    labels: Tensor
    chosen: Tensor

    def __init__(self, classes: int, dim: int, *, per_class: int = 1) -> None:
        super().__init__()
        if classes < 1 or dim < 1 or per_class < 1:
            raise InputError(f"Cover needs classes, dim and per_class of at least 1; got {classes, dim, per_class}.")
        self.classes, self.per_class = classes, per_class
        self.register_buffer("vectors", torch.zeros(classes * per_class, dim))
        self.register_buffer("labels", torch.arange(classes).repeat_interleave(per_class), persistent=False)
        self.register_buffer("chosen", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def choose(self, pool: Float[Tensor, "c b d"], *, valid: Bool[Tensor, "c b"] | None = None) -> None:
        """Pick new points by greedy k-Center, far from the current ones.

        Args:
            pool: Embeddings of b candidates of each class.
            valid: Mask of the existing candidates, if classes have different numbers of them.
        """
        if len(pool) != self.classes or pool.shape[2] != self.vectors.shape[1]:
            raise InputError(
                f"The pool must be [{self.classes} classes, candidates, {self.vectors.shape[1]} dimensions]; got "
                f"{list(pool.shape)}."
            )
        present = self.vectors.view(self.classes, self.per_class, -1)
        picks = greedy_k_center(pool, self.per_class, centres=present if self.chosen else None, valid=valid)
        self.vectors.copy_(torch.take_along_dim(pool, picks[:, :, None], dim=1).flatten(0, 1))
        self.chosen.fill_(True)

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | Bool[Tensor, "n c"],
        ids: Int[Tensor, " n"] | None = None,
    ) -> View:
        """Return the points that were chosen last."""
        if not self.chosen:
            raise InputError(
                "This Cover has no points yet; call cover.choose(pool) with embeddings of each class first."
            )
        check_against_classes(embeddings, labels, self.vectors, self.classes)
        return View(self.vectors, self.labels)
