from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data import PIPELINES, CentreCrop, RandomResizedCrop, as_transform, describe, pipeline, restore
from vicinal.errors import InputError, UnknownName


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_gives_squares_of_its_size(name: str) -> None:
    image = Image.new("RGB", (400, 300), "red")
    for transform in pipeline(name):
        assert transform(image, np.random.default_rng(0)).shape[1:] == (transform.size, transform.size)


def test_pipelines_of_the_papers() -> None:
    check, thesis, raw = (pipeline(name) for name in ("reality-check", "thesis", "raw"))
    assert (check.train.size, check.train.area, check.train.short_side) == (227, (0.16, 1.0), 256)
    assert check.train.ratio == (3 / 4, 4 / 3)
    assert (thesis.train.size, thesis.train.area, thesis.train.short_side) == (224, (0.08, 1.0), None)
    assert (raw.train.size, raw.train.short_side) == (227, 256)
    for tests, size in ((check, 227), (thesis, 224), (raw, 227)):
        assert tests.test == CentreCrop(size, 256)


def test_size_and_pixels_can_be_changed() -> None:
    train, test = pipeline("reality-check", size=128, pixels="bn_inception")
    assert (train.size, train.short_side, train.pixels) == (128, 144, "bn_inception")
    assert test == CentreCrop(128, 144, "bn_inception")
    with pytest.raises(UnknownName, match="did you mean 'reality-check'"):
        pipeline("reality_check")


@pytest.mark.parametrize("name", PIPELINES)
def test_transforms_survive_json(name: str) -> None:
    for transform in pipeline(name):
        assert restore(json.loads(json.dumps(describe(transform)))) == transform


def test_what_cannot_be_described_or_restored() -> None:
    with pytest.raises(InputError, match="type function cannot be described"):
        describe(lambda image, rng: torch.zeros(1))
    with pytest.raises(UnknownName, match="Unknown transform 'Crop'"):
        restore({"name": "Crop"})


def test_a_foreign_callable_of_one_image_is_seeded() -> None:
    def jitter(image: Image.Image) -> torch.Tensor:
        assert image.mode == "RGB"
        return torch.rand(2) + random.random()

    transform = as_transform(jitter)
    torch.manual_seed(7)
    random.seed(7)
    before = (torch.get_rng_state(), random.getstate())
    first = transform(Image.new("L", (4, 4)), np.random.default_rng(0))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert torch.equal(first, transform(Image.new("L", (4, 4)), np.random.default_rng(0)))
    assert not torch.equal(first, transform(Image.new("L", (4, 4)), np.random.default_rng(1)))


def test_a_foreign_callable_with_a_generator_is_left_alone() -> None:
    def noise(image: Image.Image, rng: np.random.Generator) -> torch.Tensor:
        return torch.tensor(rng.random())

    def sized(image: Image.Image, size: int = 3) -> torch.Tensor:
        return torch.zeros(size)

    assert as_transform(noise) is noise
    assert as_transform(sized)(Image.new("RGB", (2, 2)), np.random.default_rng(0)).shape == (3,)
    ours = RandomResizedCrop(8)
    assert as_transform(ours) is ours


def test_a_module_is_a_callable_of_one_image() -> None:
    class Mean(torch.nn.Module):
        def forward(self, image: Image.Image) -> torch.Tensor:
            return torch.from_numpy(np.array(image)).float().mean()

    value = as_transform(Mean())(Image.new("RGB", (2, 2), (3, 3, 3)), np.random.default_rng(0))
    assert value.item() == 3
