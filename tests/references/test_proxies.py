"""Learned proxies as references."""

from __future__ import annotations

import pytest
import torch

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.references import Proxies


def test_labels_class_by_class_and_a_start_by_seed() -> None:
    proxies = Proxies(3, 5, per_class=2, seed=4)
    assert proxies.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert proxies.vectors.shape == (6, 5)
    assert proxies.vectors.requires_grad
    assert torch.equal(proxies.vectors, Proxies(3, 5, per_class=2, seed=4).vectors)
    assert not torch.equal(proxies.vectors, Proxies(3, 5, per_class=2, seed=5).vectors)


def test_the_start_is_kaimings_normal_of_fan_out() -> None:
    proxies = Proxies(2000, 16)
    assert proxies.vectors.std().item() == pytest.approx((2 / 2000) ** 0.5, rel=0.02)


def test_gradients_reach_proxies_and_embeddings() -> None:
    proxies = Proxies(3, 4)
    embeddings = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    Criterion("proxy_anchor", references=proxies)(embeddings, torch.tensor([0, 1, 2, 0, 1])).backward()
    assert embeddings.grad.abs().sum(1).gt(0).all()
    assert proxies.vectors.grad.abs().sum(1).gt(0).all()


def test_assign_keeps_the_parameter() -> None:
    proxies = Proxies(2, 3)
    parameter = proxies.vectors
    proxies.assign(torch.ones(2, 3))
    assert proxies.vectors is parameter
    assert (parameter == 1).all()
    with pytest.raises(InputError, match=r"Proxies are \[2, 3\]; got vectors of \[3, 3\]"):
        proxies.assign(torch.ones(3, 3))


@pytest.mark.parametrize(
    ("labels", "range_"), [([0, 3], r"0\.\.3"), ([-1, 0], r"-1\.\.0"), ([0, 2**40], rf"0\.\.{2**40}")]
)
def test_labels_out_of_range(labels: list[int], range_: str) -> None:
    with pytest.raises(
        InputError,
        match=rf"Labels must be 0\.\.2 for 3 classes; got {range_}\. .*torch\.unique\(labels, return_inverse",
    ):
        Proxies(3, 4)(torch.zeros(2, 4), torch.tensor(labels))


def test_dimension_of_embeddings() -> None:
    with pytest.raises(InputError, match="Embeddings have 5 dimensions but the references have 4"):
        Proxies(3, 4)(torch.zeros(2, 5), torch.tensor([0, 1]))


@pytest.mark.parametrize("arguments", [{"classes": 0, "dim": 4}, {"classes": 3, "dim": 0}])
def test_sizes_of_at_least_one(arguments: dict[str, int]) -> None:
    name = next(key for key, value in arguments.items() if value < 1)
    with pytest.raises(InputError, match=f"Proxies needs {name} of at least 1; got 0"):
        Proxies(**arguments)
    with pytest.raises(InputError, match="Proxies needs per_class of at least 1; got -2"):
        Proxies(3, 4, per_class=-2)


def test_parameter_groups_and_state() -> None:
    proxies = Proxies(3, 4, learning_rate_multiplier=100.0)
    criterion = Criterion("proxy_anchor", references=proxies)
    (group,) = criterion.parameter_groups()
    assert group == {"name": "proxies", "params": [proxies.vectors], "multiplier": 100.0}
    assert group["params"][0] is proxies.vectors
    other = Criterion("proxy_anchor", references=Proxies(3, 4, seed=9))
    other.load_state_dict(criterion.state_dict())
    assert torch.equal(other.references[0].vectors, proxies.vectors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_embeddings_of_another_precision(dtype: torch.dtype) -> None:
    criterion = Criterion("proxy_anchor", classes=3, dim=4)
    embeddings, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    leaf = embeddings.to(dtype).requires_grad_()
    loss = criterion(leaf, labels)
    loss.backward()
    assert leaf.grad.dtype == dtype
    assert criterion.references[0].vectors.grad.dtype == torch.float32
    torch.testing.assert_close(loss.float(), criterion(embeddings.to(dtype).float(), labels))
