"""Which submodules a choice of stages freezes."""

from __future__ import annotations

import pytest

from vicinal.backbones import build_backbone, frozen_modules
from vicinal.errors import InputError

pytestmark = pytest.mark.unit


def test_nothing_is_frozen_by_default():
    assert frozen_modules(build_backbone("convnet")) == ()


def test_stages_are_counted_from_the_output():
    network = build_backbone("mobilenet_v2")
    assert frozen_modules(network, train_stages=1) == tuple(f"features.{i}" for i in range(17))
    assert frozen_modules(network, train_stages=0) == tuple(f"features.{i}" for i in range(19))
    assert frozen_modules(network, train_stages=8) == ()


def test_batch_norm_is_frozen_in_trained_stages_too():
    network = build_backbone("convnet", widths=(4, 8))
    assert frozen_modules(network, batch_norm=True) == ("blocks.0.1", "blocks.1.1")


@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_count_that_is_not_there_is_refused(wrong):
    with pytest.raises(InputError, match=rf"between 0 and 4 .* block0, block1, block2, block3; got {wrong}"):
        frozen_modules(build_backbone("convnet"), train_stages=wrong)
