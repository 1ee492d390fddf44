"""Pairs of transforms for training and testing, by name; foreign callables; transforms as plain data."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vicinal.data.cutting import Source, open_image
from vicinal.data.transforms import CentreCrop, Fit, RandomAffine, RandomCrop, RandomResizedCrop, Transform
from vicinal.errors import InputError, look_up

TRANSFORMS: dict[str, Callable[..., Transform]] = {
    "CentreCrop": CentreCrop,
    "Fit": Fit,
    "RandomAffine": RandomAffine,
    "RandomCrop": RandomCrop,
    "RandomResizedCrop": RandomResizedCrop,
}


class Pipeline(NamedTuple):
    """The transform to train with and the one to test with."""

    train: Transform
    test: Transform


PIPELINES: dict[str, Pipeline] = {
    "reality-check": Pipeline(RandomResizedCrop(227, area=(0.16, 1.0), short_side=256), CentreCrop(227)),
    "thesis": Pipeline(RandomResizedCrop(224), CentreCrop(224)),
    "raw": Pipeline(RandomCrop(227), CentreCrop(227)),
    "plain": Pipeline(CentreCrop(224), CentreCrop(224)),
    "small": Pipeline(RandomAffine(32), Fit(32)),
}


def pipeline(name: str, *, size: int | None = None, pixels: str | None = None) -> Pipeline:
    """The two transforms of a pipeline, for another size or other pixels if asked.

    - "reality-check" (Musgrave et al. 2020): short side 256, 16-100 % of the area to 227; centre 227.
    - "thesis": 8-100 % of the area to 224; short side 256, centre 224.
    - "raw": short side 256, any 227 x 227; centre 227.
    - "plain": short side 256, centre 224, in training too: for heads on frozen features.
    - "small": for drawings and digits of 28-64 pixels; a light random affine map to 32; as it is.

    Args:
        name: A name in `PIPELINES`.
        size: Height and width of the result; a short side changes in proportion.
        pixels: A name in `PIXELS`.

    Example:
        >>> pipeline("thesis", size=112).test
        CentreCrop(size=112, short_side=128, pixels='imagenet', resampling='bilinear')
    """
    train, test = look_up("pipeline", name, PIPELINES)
    return Pipeline(_changed(train, size, pixels), _changed(test, size, pixels))


def _changed(transform: Any, size: int | None, pixels: str | None) -> Transform:
    changes: dict[str, Any] = {}
    if size is not None:
        changes["size"] = size
        if getattr(transform, "short_side", None):
            changes["short_side"] = round(transform.short_side * size / transform.size)
    if pixels is not None:
        changes["pixels"] = pixels
    return replace(transform, **changes)


@final
@dataclass(frozen=True)
class Seeded:
    """A callable of one image, run with torch's and Python's generators seeded and put back after it."""

    function: Callable[[Image.Image], Tensor]

    def __call__(self, image: Source, rng: np.random.Generator) -> Tensor:
        """Call the function on the image in RGB."""
        seed = int(rng.integers(2**63))
        before = random.getstate()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            try:
                return self.function(open_image(image).convert("RGB"))
            finally:
                random.setstate(before)


def as_transform(function: Callable[..., Tensor]) -> Transform:
    """Let any callable stand in for a transform.

    One that needs two arguments is called with the item and a `numpy.random.Generator`; one that
    needs a single argument (as torchvision's do) with the image in RGB, and what it draws from
    torch's or Python's global generator is the same whatever the number of workers.
    """
    if type(function) in (*TRANSFORMS.values(), Seeded):
        return function
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return Seeded(function)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [a for a in arguments if a.kind in positional and a.default is inspect.Parameter.empty]
    return function if len(needed) >= 2 else Seeded(function)


def describe(transform: Transform) -> dict[str, Any]:
    """A transform as plain data that JSON can hold; `restore` brings it back.

    Example:
        >>> describe(Fit(28))
        {'name': 'Fit', 'size': 28, 'pixels': 'grey'}
    """
    kind = type(transform)
    if kind not in TRANSFORMS.values():
        raise InputError(f"a transform of type {kind.__name__} cannot be described; only {', '.join(TRANSFORMS)} can.")
    values = asdict(transform)  # type: ignore[call-overload]
    if values.get("resampling") == "bilinear":  # descriptions that were written before there was another stay true
        del values["resampling"]
    return {"name": kind.__name__, **values}


def restore(description: dict[str, Any]) -> Transform:
    """The transform that `describe` described.

    Example:
        >>> restore({"name": "Fit", "size": 28})
        Fit(size=28, pixels='grey', resampling='bilinear')
    """
    kind = look_up("transform", description.get("name", ""), TRANSFORMS)
    fields = {key: value for key, value in description.items() if key != "name"}
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
