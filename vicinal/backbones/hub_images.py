"""What images go through before a network of the hub, read from its preprocessor_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from vicinal.errors import InputError, look_up

__all__ = ["HubImages", "Resampling"]

Resampling = Literal["bilinear", "bicubic", "lanczos"]
FILTERS: dict[str, Resampling] = {"1": "lanczos", "2": "bilinear", "3": "bicubic"}  # Pillow's numbers
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHOLE_FROM = 384  # ConvNeXt's rule: from this side on nothing is cut off


@dataclass(frozen=True)
class HubImages:
    """The size, scale and filter of a network's images.

    Attributes:
        size: Height and width of what the network gets.
        short_side: What the short side is scaled to before the middle is cut out; None scales all of it to `size`.
        mean: Of each channel, taken off values from 0 to 1.
        std: Of each channel, divided by.
        resampling: How pixels are interpolated.

    Example:
        >>> images = HubImages.of({"size": {"shortest_edge": 256}, "crop_size": 224, "resample": 2}, side=518)
        >>> images.size, images.short_side, images.resampling
        (224, 256, 'bilinear')
    """

    size: int
    short_side: int | None
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    resampling: Resampling = "bicubic"

    def __post_init__(self) -> None:
        if not 0 < self.size <= 4096 or (self.short_side is not None and not self.size <= self.short_side <= 8192):
            raise InputError(
                f"images needs a size of 1 to 4096 and a short_side of at least that, or none; got size={self.size} "
                f"and short_side={self.short_side}."
            )
        if len(self.mean) != 3 or len(self.std) != 3 or 0 in self.std:
            raise InputError(f"images needs three means and three deviations; got {self.mean} and {self.std}.")
        if self.resampling not in get_args(Resampling):
            raise InputError(f"resampling is one of {', '.join(get_args(Resampling))}; got {self.resampling!r}.")

    @classmethod
    def of(cls, described: Mapping[str, Any], side: int) -> HubImages:
        """Read what transformers' image processors write down.

        Args:
            described: The content of preprocessor_config.json; where it is empty, images are scaled to `side`.
            side: The `image_size` of the network's configuration.
        """
        size, crop = described.get("size", side), described.get("crop_size", side)
        square = _side(crop) if described.get("do_center_crop", "crop_size" in described) else None
        short = size.get("shortest_edge") if isinstance(size, Mapping) else size if square else None
        if "crop_pct" in described:
            edge = _side(size)
            square, short = (edge, None) if edge >= WHOLE_FROM else (edge, int(edge / described["crop_pct"]))
        return cls(
            size=square or (int(short) if short else _side(size)),
            short_side=int(short) if short else None,
            mean=tuple(described.get("image_mean") or IMAGENET[0]),
            std=tuple(described.get("image_std") or IMAGENET[1]),
            resampling=look_up("filter", str(described.get("resample", 3)), FILTERS),
        )

    def changed(self, values: Mapping[str, Any]) -> HubImages:
        """Return the same with other values; a size alone changes the short side in proportion."""
        unknown = set(values) - {field.name for field in fields(self)}
        if unknown:
            raise InputError(
                f"images takes {', '.join(field.name for field in fields(self))}; got {', '.join(sorted(unknown))}."
            )
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        if "size" in given and "short_side" not in given and self.short_side is not None:
            given["short_side"] = round(self.short_side * given["size"] / self.size)
        return replace(self, **given)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON and TOML can hold it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _side(size: Any) -> int:
    """Return the side of a square, however an image processor says it."""
    if isinstance(size, Mapping):
        sides = {int(value) for name, value in size.items() if name in ("height", "width", "shortest_edge") and value}
    else:
        sides = {int(size)}
    if len(sides) != 1:
        raise InputError(f"Only networks of square images are backbones here; this one's are {size}.")
    return sides.pop()
