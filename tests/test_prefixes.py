"""Matryoshka: the loss over prefixes is the mean of the losses of cut embeddings."""

from __future__ import annotations

import pytest
import torch

from vicinal.criterion import Criterion
from vicinal.data import digits
from vicinal.errors import InputError
from vicinal.references import OneHot, Proxies
from vicinal.runs.build import build_criterion
from vicinal.runs.recipe import Recipe


@pytest.mark.parametrize("loss", ["multi_similarity", "contrastive", "margin", "triplet"])
def test_a_batch_is_cut(loss: str) -> None:
    torch.manual_seed(0)
    rows, labels = torch.nn.functional.normalize(torch.randn(12, 8)), torch.arange(12) % 3
    parts = [Criterion(loss)(rows[:, :length], labels) for length in (2, 4, 8)]
    torch.testing.assert_close(Criterion(loss, prefixes=[4, 2])(rows, labels), torch.stack(parts).mean())


def test_proxies_are_cut_as_the_embeddings_are() -> None:
    torch.manual_seed(0)
    rows, labels = torch.randn(12, 8), torch.arange(12) % 3
    proxies = Proxies(3, 8, seed=0)
    parts = []
    for length in (3, 8):
        cut = Proxies(3, length, seed=0)
        with torch.no_grad():
            cut.vectors.copy_(proxies.vectors[:, :length])
        parts.append(Criterion("proxy_anchor", references=cut)(rows[:, :length], labels))
    found = Criterion("proxy_anchor", references=proxies, prefixes=[3])(rows, labels)
    torch.testing.assert_close(found, torch.stack(parts).mean())
    found.backward()
    assert proxies.vectors.grad is not None


def test_without_prefixes_nothing_changes() -> None:
    rows, labels = torch.randn(12, 8), torch.arange(12) % 3
    assert torch.equal(Criterion("triplet")(rows, labels), Criterion("triplet", prefixes=())(rows, labels))


def test_a_recipe_has_them() -> None:
    plain = Recipe(data="digits", loss="triplet", backbone="convnet")
    recipe = Recipe(data="digits", loss="triplet", backbone="convnet", prefixes=(8, 16))
    assert build_criterion(recipe, digits(), 32).prefixes == (8, 16)
    assert recipe.key() != plain.key()


def test_what_cannot_be_cut() -> None:
    with pytest.raises(InputError, match="at least 1"):
        Criterion("triplet", prefixes=[0])
    with pytest.raises(InputError, match="shorter than the embeddings"):
        Criterion("triplet", prefixes=[8])(torch.randn(4, 8), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(InputError, match="one-hot"):
        Criterion("cross_entropy", references=OneHot(3), prefixes=[1])
