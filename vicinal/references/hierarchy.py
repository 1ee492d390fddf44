"""Proxies of groups of classes, from a clustering of the class proxies (HPL)."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vicinal.errors import InputError
from vicinal.objectives.traits import Kind
from vicinal.pairs import to_sphere
from vicinal.references.batch import View
from vicinal.references.proxies import Proxies, check_against_classes

__all__ = ["Hierarchy", "hierarchical_proxies"]


@final
class Hierarchy(nn.Module):
    """Compare items with the means of groups of proxies: their own group is positive, the others are negative.

    Groups come from k-means on the directions of the proxies, repeated every few training steps. Gradients flow through
    the means to the proxies. Use it in addition to the proxies themselves: `hierarchical_proxies` returns both.

    Args:
        proxies: Proxies of the classes.
        groups: Number of groups.
        every: Number of training steps between two groupings.
        seed: Seed of the k-means.

    Example:
        >>> coarse = Hierarchy(Proxies(classes=6, dim=4), groups=2)
        >>> coarse(torch.zeros(3, 4), torch.tensor([0, 1, 2])).vectors.shape
        torch.Size([2, 4])
    """

    kind: ClassVar[Kind] = "proxies"
    group: Tensor
    steps: Tensor

    def __init__(self, proxies: Proxies, groups: int, *, every: int = 100, seed: int = 0) -> None:
        super().__init__()
        if not 2 <= groups <= proxies.classes or every < 1:
            raise InputError(
                f"Hierarchy needs 2 to {proxies.classes} groups (the number of classes) and every of at least 1; got "
                f"groups={groups}, every={every}."
            )
        # Held in a tuple so that the proxies, which are references themselves, are not registered twice.
        self._fine = (proxies,)
        self.groups, self.every, self.seed = groups, every, seed
        self.register_buffer("group", torch.zeros(proxies.classes, dtype=torch.long))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._regroup()

    @property
    def proxies(self) -> Proxies:
        """Proxies of the classes."""
        return self._fine[0]

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], ids: Int[Tensor, " n"] | None = None
    ) -> View:
        """Return the mean of each group, with the anchors labelled by their group."""
        fine = self.proxies
        check_against_classes(embeddings, labels, fine.vectors, fine.classes)
        if self.training:
            if self.steps > 0 and self.steps % self.every == 0:
                self._regroup()
            self.steps += 1
        member = torch.nn.functional.one_hot(self.group[fine.labels], self.groups).to(fine.vectors.dtype)
        # Coinciding proxies may leave a group without members; its mean is then zero.
        means = (member.T @ to_sphere(fine.vectors)) / member.sum(0).clamp_min(1)[:, None]
        return View(means, torch.arange(self.groups, device=means.device), anchor_labels=self.group[labels])

    def _regroup(self) -> None:
        from sklearn.cluster import KMeans  # slow to import

        fine = self.proxies
        of_class = to_sphere(fine.vectors.detach()).view(fine.classes, fine.per_class, -1).mean(1)
        groups = KMeans(self.groups, n_init=1, random_state=self.seed).fit_predict(of_class.cpu().numpy())
        self.group.copy_(torch.as_tensor(groups, dtype=torch.long))


def hierarchical_proxies(
    classes: int,
    dim: int,
    *,
    groups: int,
    weight: float = 0.1,
    every: int = 100,
    learning_rate_multiplier: float = 100.0,
    seed: int = 0,
) -> list[tuple[nn.Module, float]]:
    """Return proxies of classes and of groups of classes, as the two terms of a criterion.

    Args:
        classes: Number of classes.
        dim: Dimension of the embeddings.
        groups: Number of groups.
        weight: Weight of the term on groups; the term on classes has weight 1.
        every: Number of training steps between two groupings.
        learning_rate_multiplier: Ratio of the learning rate of the proxies to that of the network.
        seed: Seed of the initial proxies and of the grouping.

    Reference:
        Yang et al., "Hierarchical proxy-based loss for deep metric learning", WACV 2022.

    Example:
        >>> terms = hierarchical_proxies(classes=100, dim=64, groups=10)
        >>> [(type(references).__name__, weight) for references, weight in terms]
        [('Proxies', 1.0), ('Hierarchy', 0.1)]
    """
    proxies = Proxies(classes, dim, learning_rate_multiplier=learning_rate_multiplier, seed=seed)
    return [(proxies, 1.0), (Hierarchy(proxies, groups, every=every, seed=seed), weight)]
