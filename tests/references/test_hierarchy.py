"""Proxies of groups of classes."""

from __future__ import annotations

import copy

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.references import Hierarchy, Proxies, hierarchical_proxies


def two_bundles() -> Proxies:
    """Four classes, of which 0 and 2 point one way and 1 and 3 another."""
    proxies = Proxies(4, 2)
    proxies.assign(torch.tensor([[5.0, 0.1], [0.1, 1.0], [1.0, -0.1], [-0.1, 3.0]]))
    return proxies


def test_groups_are_bundles_of_directions_and_their_means_the_references() -> None:
    proxies = two_bundles()
    coarse = Hierarchy(proxies, 2)
    group = coarse.group.tolist()
    assert group[0] == group[2] != group[1] == group[3]
    view = coarse(torch.zeros(4, 2), torch.arange(4))
    unit = torch.nn.functional.normalize(proxies.vectors.detach())
    for g in range(2):
        torch.testing.assert_close(view.vectors[g], unit[coarse.group == g].mean(0))
    assert view.labels.tolist() == [0, 1]
    assert view.anchor_labels.tolist() == group


def test_gradients_pass_through_the_means_to_the_proxies() -> None:
    proxies = two_bundles()
    embeddings = torch.tensor([[1.0, 1.0], [-1.0, 0.3]], requires_grad=True)
    Criterion("proxy_anchor", references=[(proxies, 0.0), Hierarchy(proxies, 2)])(
        embeddings, torch.tensor([0, 1])
    ).backward()
    assert embeddings.grad.any()
    assert proxies.vectors.grad.abs().sum(1).gt(0).all()


def test_groups_are_found_again_every_so_many_training_steps() -> None:
    proxies = two_bundles()
    coarse = Hierarchy(proxies, 2, every=3)
    before = coarse.group.clone()
    proxies.assign(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]))
    batch = torch.zeros(1, 2), torch.tensor([0])
    coarse.eval()
    for _ in range(5):
        coarse(*batch)
    coarse.train()
    for _ in range(3):
        coarse(*batch)
        assert torch.equal(coarse.group, before)
    coarse(*batch)
    group = coarse.group.tolist()
    assert group[0] == group[1] != group[2] == group[3]


def test_a_hierarchy_without_its_proxies_would_never_train_them_and_is_refused() -> None:
    with pytest.raises(InputError, match="hierarchical_proxies"):
        Criterion("proxy_anchor", references=Hierarchy(two_bundles(), 2))


def test_hierarchical_proxies_are_two_terms_of_one_criterion() -> None:
    terms = hierarchical_proxies(6, 4, groups=2, weight=0.25, learning_rate_multiplier=10.0)
    criterion = Criterion("proxy_anchor", references=terms)
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6)
    (fine, _), (coarse, _) = terms
    alone = Criterion("proxy_anchor", references=fine)(embeddings, labels)
    grouped = Criterion("proxy_anchor", references=[(fine, 0.0), coarse])(embeddings, labels)
    torch.testing.assert_close(criterion(embeddings, labels), alone + 0.25 * grouped)
    assert len(list(criterion.parameters())) == 1
    assert [group["multiplier"] for group in criterion.parameter_groups()] == [10.0]


def test_copies_and_states_keep_proxies_and_groups_together() -> None:
    criterion = Criterion("proxy_anchor", references=hierarchical_proxies(6, 4, groups=2, every=2))
    embeddings, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    for _ in range(3):
        criterion(embeddings, labels)
    twin = copy.deepcopy(criterion)
    assert twin.references[1]._fine[0] is twin.references[0]
    other = Criterion("proxy_anchor", references=hierarchical_proxies(6, 4, groups=2, every=2, seed=5))
    other.load_state_dict(criterion.state_dict())
    assert torch.equal(twin(embeddings, labels), criterion(embeddings, labels))
    assert torch.equal(other.references[1].group, criterion.references[1].group)


def test_proxies_that_coincide_leave_a_group_empty_but_the_loss_finite() -> None:
    proxies = Proxies(3, 2)
    proxies.assign(torch.ones(3, 2))
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        coarse = Hierarchy(proxies, 2)
    embeddings = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = Criterion("proxy_anchor", references=[(proxies, 0.0), coarse])(embeddings, torch.arange(3))
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("labels", [[0, 4], [-1, 0]])
def test_labels_out_of_range(labels: list[int]) -> None:
    with pytest.raises(InputError, match=r"Labels must be 0\.\.3 for 4 classes"):
        Hierarchy(two_bundles(), 2)(torch.zeros(2, 2), torch.tensor(labels))


@pytest.mark.parametrize("groups", [1, 5])
def test_the_number_of_groups(groups: int) -> None:
    with pytest.raises(InputError, match=f"Hierarchy needs 2 to 4 groups .* got groups={groups}"):
        Hierarchy(two_bundles(), groups)
    with pytest.raises(InputError, match="every of at least 1; got groups=2, every=0"):
        Hierarchy(two_bundles(), 2, every=0)
