from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vicinal.data import CentreCrop, Fit, RandomAffine, RandomCrop, RandomResizedCrop, to_tensor
from vicinal.data.images import cut, draw_part, open_image, scaled_size
from vicinal.errors import InputError, UnknownName


def photograph(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Smooth colours with some detail, as photographs have."""
    rng = np.random.default_rng(seed)
    layers = [
        np.asarray(Image.fromarray(rng.integers(0, 256, (n, n, 3), dtype=np.uint8)).resize(size), dtype=np.float64)
        for n in (4, 16)
    ]
    return Image.fromarray((0.6 * layers[0] + 0.4 * layers[1]).astype(np.uint8))


def naive_centre(image: Image.Image, short_side: int, size: int) -> Image.Image:
    scale = short_side / min(image.size)
    whole = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = round((whole.width - size) / 2), round((whole.height - size) / 2)
    return whole.crop((left, top, left + size, top + size))


def pixels(tensor: torch.Tensor) -> np.ndarray:
    return tensor.permute(1, 2, 0).numpy() * 255


@pytest.mark.parametrize("size", [(400, 300), (300, 401), (256, 256), (2000, 300), (100, 80)])
def test_centre_crop_is_resize_and_crop(size: tuple[int, int]) -> None:
    image = photograph(size)
    ours = pixels(CentreCrop(224, 256, pixels="unit")(image))
    naive = np.asarray(naive_centre(image, 256, 224), dtype=np.float64)
    # The long side of the whole is rounded down to a pixel before the naive way crops it.
    assert np.abs(ours - naive).mean() < 1.0


@pytest.mark.parametrize("size", [(2400, 1800), (1100, 3000)])
def test_a_large_jpeg_is_decoded_small_and_looks_the_same(size: tuple[int, int], tmp_path: Path) -> None:
    photograph(size).save(tmp_path / "large.jpg", quality=90)
    opened = open_image(tmp_path / "large.jpg")
    ours = pixels(CentreCrop(224, 256, pixels="unit")(opened))
    assert opened.width * opened.height < size[0] * size[1] / 4
    naive = np.asarray(naive_centre(Image.open(tmp_path / "large.jpg"), 256, 224), dtype=np.float64)
    assert np.abs(ours - naive).mean() < 2.0


def test_draft_never_decodes_below_the_result(tmp_path: Path) -> None:
    photograph((1000, 800)).save(tmp_path / "a.jpg")
    for box, least in (((0, 0, 1000, 800), 224), ((100, 100, 400, 400), 746)):
        opened = open_image(tmp_path / "a.jpg")
        assert cut(opened, box, (224, 224), "RGB").size == (224, 224)
        assert opened.width >= least


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
def test_every_mode_becomes_three_channels(mode: str) -> None:
    image = photograph((60, 50)).convert(mode)
    for transform in (CentreCrop(16, 20), RandomResizedCrop(16), RandomCrop(16, 20), Fit(16, pixels="unit")):
        assert transform(image, np.random.default_rng(0)).shape == (3, 16, 16)
    assert RandomAffine(16)(image, np.random.default_rng(0)).shape == (1, 16, 16)


def test_random_crop_takes_a_window_of_the_image() -> None:
    image = photograph((40, 32))
    whole = np.asarray(image)
    for seed in range(20):
        part = pixels(RandomCrop(24, short_side=32, pixels="unit")(image, np.random.default_rng(seed)))
        windows = [
            whole[top : top + 24, left : left + 24, :][:, ::flip]
            for top in range(9)
            for left in range(17)
            for flip in (1, -1)
        ]
        assert min(np.abs(part - window).max() for window in windows) < 0.01


def test_flip_is_a_mirror_and_as_frequent_as_asked() -> None:
    image = photograph((32, 32))
    plain = RandomCrop(32, 32, flip=0.0)(image, np.random.default_rng(0))
    mirrored = RandomCrop(32, 32, flip=1.0)(image, np.random.default_rng(0))
    assert torch.equal(plain.flip(-1), mirrored)
    half = RandomCrop(32, 32)
    flips = sum(torch.equal(half(image, np.random.default_rng(s)), mirrored) for s in range(200))
    assert 70 < flips < 130


def test_resizing_first_blurs_a_small_part() -> None:
    """The reality check enlarges parts of a small picture; cutting from the full one keeps detail."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), dtype=np.uint8))
    parts = [
        RandomResizedCrop(227, area=(0.16, 0.16), short_side=short)(image, np.random.default_rng(1))
        for short in (128, None)
    ]
    rough = [part.diff(dim=-1).abs().mean().item() for part in parts]
    assert rough[0] < rough[1]


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.floats(0.01, 1),
    st.floats(0.1, 1),
    st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_a_drawn_part_lies_in_the_image(width: int, height: int, area: float, ratio: float, seed: int) -> None:
    left, top, w, h = draw_part(width, height, (area, 1.0), (ratio, 1 / ratio), np.random.default_rng(seed))
    assert w > 0
    assert h > 0
    assert 0 <= left <= width - w
    assert 0 <= top <= height - h


def test_a_drawn_part_has_the_area_and_ratio_asked_for() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([draw_part(1000, 1000, (0.1, 0.5), (0.75, 4 / 3), rng) for _ in range(500)])
    shares = drawn[:, 2] * drawn[:, 3] / 1e6
    ratios = drawn[:, 2] / drawn[:, 3]
    assert 0.099 < shares.min() < 0.12
    assert 0.45 < shares.max() < 0.501
    assert ratios.min() > 0.74
    assert ratios.max() < 1.34
    assert abs(shares.mean() - 0.3) < 0.02


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(8, 300))
@settings(max_examples=100, deadline=None)
def test_the_scaled_short_side_is_exact(width: int, height: int, short: int) -> None:
    w, h, scale = scaled_size((width, height), short)
    assert min(w, h) == short
    assert abs(max(w, h) - max(width, height) * scale) <= 1


def test_randomness_comes_from_the_generator_alone() -> None:
    image = photograph((64, 64))
    for transform in (RandomResizedCrop(32), RandomCrop(32, 48), RandomAffine(32)):
        torch.manual_seed(0)
        first = transform(image, np.random.default_rng(5))
        torch.manual_seed(1)
        assert torch.equal(first, transform(image, np.random.default_rng(5)))
        assert not torch.equal(first, transform(image, np.random.default_rng(6)))


def test_affine_fills_with_the_colour_of_the_corners() -> None:
    for paper in (255, 0):
        image = Image.new("L", (32, 32), paper)
        moved = RandomAffine(32, degrees=20.0, shift=0.3)(image, np.random.default_rng(3))
        assert Counter(moved.flatten().tolist()) == {paper / 255: 1024}


def test_affine_without_freedom_is_fit() -> None:
    image = photograph((50, 50))
    still = RandomAffine(32, degrees=0.0, scale=(1.0, 1.0), shift=0.0)(image, np.random.default_rng(0))
    assert torch.allclose(still, Fit(32)(image), atol=0.01)


def test_affine_moves_little() -> None:
    image = Image.new("L", (32, 32))
    image.paste(255, (14, 14, 18, 18))
    places = torch.nonzero(RandomAffine(32)(image, np.random.default_rng(1))[0] > 0.5).float().mean(0)
    assert (places - 15.5).abs().max() < 4


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match=r"1\.\.short_side; got size=300 and short_side=256"):
        CentreCrop(300)
    with pytest.raises(InputError, match="area must be rising"):
        RandomResizedCrop(area=(0.5, 0.1))
    with pytest.raises(UnknownName, match="did you mean 'imagenet'"):
        CentreCrop(8, 8, pixels="imagnet")(photograph((9, 9)))


def test_pixel_presets_by_hand() -> None:
    image = Image.new("RGB", (1, 1), (255, 128, 0))
    values = {name: to_tensor(image, name).flatten().tolist() for name in ("imagenet", "bn_inception", "unit")}
    expected = [(1 - 0.485) / 0.229, (128 / 255 - 0.456) / 0.224, (0 - 0.406) / 0.225]
    assert values["imagenet"] == pytest.approx(expected, abs=1e-6)
    assert values["bn_inception"] == pytest.approx([0 - 104, 128 - 117, 255 - 128])
    assert values["unit"] == pytest.approx([1, 128 / 255, 0])
    assert to_tensor(Image.new("L", (1, 1), 51), "grey").item() == pytest.approx(0.2)
    assert to_tensor(Image.new("L", (1, 1), 51), "ink").item() == pytest.approx(0.8)
    assert to_tensor(image, "unit").dtype == torch.float32
