"""The test-time transform of an embedder: the backbone's own, and the ones that can be saved."""

from __future__ import annotations

from typing import Any

from vicinal.backbones.backbone import Input
from vicinal.data.pipelines import describe, restore
from vicinal.data.transforms import CentreCrop, Fit
from vicinal.errors import InputError, look_up

__all__ = ["default_transform", "describe_transform", "restore_transform"]

SAVED = {"CentreCrop": CentreCrop, "Fit": Fit}


def default_transform(expects: Input) -> CentreCrop | Fit | None:
    """Return the transform that a backbone's test images go through; None for feature vectors.

    Example:
        >>> default_transform(Input("imagenet", 3, size=224, short_side=256))
        CentreCrop(size=224, short_side=256, pixels='imagenet', resampling='bilinear')
    """
    if expects.pixels is None:
        return None
    if expects.short_side is None:
        return Fit(expects.size, pixels=expects.pixels, resampling=expects.resampling)
    return CentreCrop(expects.size, expects.short_side, pixels=expects.pixels, resampling=expects.resampling)


def describe_transform(transform: object) -> dict[str, Any] | None:
    """Return a transform as a name and numbers.

    Example:
        >>> describe_transform(Fit(32, pixels="grey"))
        {'name': 'Fit', 'size': 32, 'pixels': 'grey'}
    """
    if transform is None:
        return None
    if not isinstance(transform, CentreCrop | Fit):
        raise InputError(
            f"The transform {transform!r} cannot be written down as a name and numbers; only those of the kinds "
            f"{' and '.join(SAVED)} can. Set embedder.transform to one of them before you save or export."
        )
    return describe(transform)


def restore_transform(description: dict[str, Any] | None) -> CentreCrop | Fit | None:
    """Return the transform that `describe_transform` described."""
    if description is None:
        return None
    look_up("transform", str(description.get("name")), SAVED)
    try:
        transform = restore(description)
    except TypeError as error:
        raise InputError(f"No transform can be made of {description}: {error}.") from None
    return transform if isinstance(transform, CentreCrop | Fit) else None
