"""Backbones from timm and from Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal._util.reading import read_json
from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import renormalise
from vicinal.errors import InputError, MissingExtra, look_up

__all__ = ["HUB_NETWORKS", "HubImages", "HubNetwork", "timm", "transformers"]


# Networks on the Hugging Face hub by short names, with licence and sizes to look up before a download.


@dataclass(frozen=True)
class HubNetwork:
    """A network that the backbone "transformers" downloads by a short name.

    Attributes:
        repository: Repository on the hub.
        licence: Licence of its weights. "DINOv3" must be accepted on its page before the hub serves them.
        size: Height and width of its images.
        features: Length of its feature vectors.
        millions: Millions of parameters of the vision part.
    """

    repository: str
    licence: str
    size: int
    features: int
    millions: int


HUB_NETWORKS: dict[str, HubNetwork] = {
    "dinov2-small": HubNetwork("facebook/dinov2-small", "Apache-2.0", 224, 384, 22),
    "dinov2-base": HubNetwork("facebook/dinov2-base", "Apache-2.0", 224, 768, 87),
    "dinov2-large": HubNetwork("facebook/dinov2-large", "Apache-2.0", 224, 1024, 304),
    "dinov3-small": HubNetwork("facebook/dinov3-vits16-pretrain-lvd1689m", "DINOv3", 224, 384, 22),
    "dinov3-base": HubNetwork("facebook/dinov3-vitb16-pretrain-lvd1689m", "DINOv3", 224, 768, 86),
    "dinov3-convnext-tiny": HubNetwork("facebook/dinov3-convnext-tiny-pretrain-lvd1689m", "DINOv3", 224, 768, 28),
    "siglip-base": HubNetwork("google/siglip-base-patch16-224", "Apache-2.0", 224, 768, 93),
    "siglip-so400m": HubNetwork("google/siglip-so400m-patch14-384", "Apache-2.0", 384, 1152, 428),
    "siglip2-base": HubNetwork("google/siglip2-base-patch16-224", "Apache-2.0", 224, 768, 93),
    "vit-base": HubNetwork("google/vit-base-patch16-224-in21k", "Apache-2.0", 224, 768, 86),
    "convnext-tiny": HubNetwork("facebook/convnext-tiny-224", "Apache-2.0", 224, 768, 28),
}


# Preprocessing of images for a network of the hub, read from its preprocessor_config.json.

Resampling = Literal["bilinear", "bicubic", "lanczos"]
FILTERS: dict[str, Resampling] = {"1": "lanczos", "2": "bilinear", "3": "bicubic"}  # Pillow's numbers
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHOLE_FROM = 384  # ConvNeXt's rule: from this size on, images are not cropped


@dataclass(frozen=True)
class HubImages:
    """Size, normalisation and interpolation of a network's images.

    Attributes:
        size: Height and width of the network's input.
        short_side: Length that the short side is scaled to before the centre crop; None scales the image to `size`.
        mean: Mean of each channel, subtracted from values in [0, 1].
        std: Standard deviation of each channel, to divide by.
        resampling: Interpolation of pixels.

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
        """Read the settings of a transformers image processor.

        Args:
            described: Content of preprocessor_config.json; if it is empty, images are scaled to `side`.
            side: Value of `image_size` in the network's configuration.
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
        """Return a copy with other values; a size without a short side changes the short side in proportion."""
        unknown = set(values) - {field.name for field in fields(self)}
        if unknown:
            raise InputError(
                f"images takes {', '.join(field.name for field in fields(self))}; got {', '.join(sorted(unknown))}."
            )
        changes: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        if "size" in changes and "short_side" not in changes and self.short_side is not None:
            changes["short_side"] = round(self.short_side * changes["size"] / self.size)
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON and TOML."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _side(size: Any) -> int:
    """Return the side of a square, in any notation of image processors."""
    if isinstance(size, Mapping):
        sides = {int(value) for name, value in size.items() if name in ("height", "width", "shortest_edge") and value}
    else:
        sides = {int(size)}
    if len(sides) != 1:
        raise InputError(f"Only networks with square images are supported; this one takes {size}.")
    return sides.pop()


# Model types of configurations, and the transformers class of the network without a task head.
NETWORKS = {
    "clip_vision_model": "CLIPVisionModel",
    "convnext": "ConvNextModel",
    "convnextv2": "ConvNextV2Model",
    "dinov2": "Dinov2Model",
    "dinov2_with_registers": "Dinov2WithRegistersModel",
    "dinov3_convnext": "DINOv3ConvNextModel",
    "dinov3_vit": "DINOv3ViTModel",
    "siglip_vision_model": "SiglipVisionModel",
    "vit": "ViTModel",
}
FIXED_SIDE = (
    "clip_vision_model",
    "siglip_vision_model",
    "vit",
)  # their position embeddings are interpolated only on request
MOST_LAYERS = 1000
# Fields of a configuration that are not part of the architecture. Some would make transformers download and run code
# (attention kernels, custom classes of a repository) or quantise the weights.
NOT_THE_SHAPE = (
    "_attn_implementation", "_attn_implementation_internal", "_experts_implementation", "_name_or_path",
    "architectures", "attn_implementation", "auto_map", "dtype", "experts_implementation", "id2label", "label2id",
    "out_features", "out_indices", "problem_type", "quantization_config", "stage_names", "torch_dtype",
    "transformers_version",
)  # fmt: skip


def transformers(
    model: str | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    images: Mapping[str, Any] | None = None,
    source: str = "",
) -> Transformers:
    """Build a vision network of the transformers library, pretrained or with random weights.

    Only the architecture, the weights in safetensors and the image preprocessing are read from a repository or
    folder; code in it is never run.

    Args:
        model: Pretrained network: a name in `HUB_NETWORKS`, a repository on the hub ("facebook/dinov2-small"), or a
            folder that `save_pretrained` wrote.
        config: Architecture as a transformers configuration with a `model_type`, for random weights.
        images: Image preprocessing that overrides the network's own: see `HubImages`.
        source: Origin of the weights; filled in here, and saved with embedders.
    """
    try:
        import transformers as library
    except ImportError:
        raise MissingExtra("transformers", f"The backbone transformers:{model or ''}") from None
    if (model is None) == (config is None):
        raise InputError(
            'The backbone "transformers" needs either the option model (a name, a repository of the hub or a folder: '
            f"{', '.join(HUB_NETWORKS)}, ...) or the option config (a table, for random weights)."
        )
    if model is None:
        shape = _shape(library, config or {})
        usual = HubImages.of({}, int(getattr(shape, "image_size", 224)))
        network = _network(library, shape)
    else:
        network, usual = _pretrained(library, model)
        source = source or (Path(model).name if Path(model).is_dir() else model)
    return Transformers(network, usual.changed(images or {}), source)


class Transformers(Backbone):
    """A network of the transformers library, from images to vectors pooled by its own method.

    Attributes:
        options: Options that build the same network with random weights and without a download.
    """

    def __init__(self, network: Any, images: HubImages, source: str = "") -> None:
        super().__init__()
        self.network: nn.Module = network
        self.images = images
        described = {name: value for name, value in network.config.to_dict().items() if name not in NOT_THE_SHAPE}
        self.options: dict[str, Any] = {"config": described, "images": images.as_dict(), "source": source}
        self.channels = int(getattr(network.config, "hidden_size", None) or network.config.hidden_sizes[-1])
        self.input = Input("imagenet", 3, images.size, images.short_side, images.resampling)
        self.stages = _stages(network)
        fixed = network.config.model_type in FIXED_SIDE and network.config.image_size != images.size
        self._stretch = {"interpolate_pos_encoding": True} if fixed else {}

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """Return the pooled features; for a ViT, whose pooling belongs to a task, the first token."""
        inputs = renormalise(images, self.images.mean, self.images.std)
        output = self.network(pixel_values=inputs, **self._stretch)
        pooled = getattr(output, "pooler_output", None)
        return output.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)


def _pretrained(library: Any, model: str) -> tuple[nn.Module, HubImages]:
    """Return a network with the weights of a repository or folder, and its image preprocessing."""
    named = HUB_NETWORKS.get(model)
    repository = named.repository if named else model
    wrong = f"transformers could not get {model!r}"
    with _quiet(library):
        try:
            whole = library.AutoConfig.from_pretrained(repository, trust_remote_code=False)
            path = library.utils.cached_file(
                repository, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{wrong}: {str(error).strip().splitlines()[0]} Give a folder with config.json and model.safetensors, "
                f"a repository that you have access to, or a name: {', '.join(HUB_NETWORKS)}."
            ) from None
        shape = _shape(library, getattr(whole, "vision_config", whole).to_dict())
        images = HubImages.of(read_json(Path(path)) if path else {}, int(getattr(shape, "image_size", 224)))
        try:
            network, loading_info = _class(library, shape).from_pretrained(
                repository,
                config=shape,
                use_safetensors=True,  # pickles may run code
                dtype=torch.float32,
                attn_implementation=_attention(shape),
                output_loading_info=True,
                **_without_pooling(shape),
            )
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise InputError(f"{wrong}: {str(error).strip().splitlines()[0]}") from None
    missing = sorted(loading_info["missing_keys"])
    if missing:
        raise InputError(f"{wrong}: its weights lack {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}.")
    return network, images


def _shape(library: Any, config: Mapping[str, Any]) -> Any:
    """Return a configuration with only the fields of the architecture."""
    architecture = {name: value for name, value in config.items() if name not in NOT_THE_SHAPE}
    kind = str(architecture.pop("model_type", ""))
    look_up("kind of network (model_type)", kind, NETWORKS)
    layers = architecture.get("num_hidden_layers", architecture.get("depths", 0))
    if max(layers if isinstance(layers, list | tuple) else [layers]) > MOST_LAYERS:
        raise InputError(f"The network has {layers} layers; at most {MOST_LAYERS} are supported.")
    if architecture.get("num_channels", 3) != 3:
        raise InputError(f"The network takes images of {architecture['num_channels']} channels; RGB has 3.")
    return library.AutoConfig.for_model(kind, **architecture)


def _network(library: Any, shape: Any) -> nn.Module:
    shape._attn_implementation = _attention(shape)
    return _class(library, shape)(shape, **_without_pooling(shape))


def _class(library: Any, shape: Any) -> Any:
    return getattr(library, NETWORKS[shape.model_type])


def _attention(shape: Any) -> str:
    """Return torch's attention implementation, whatever the configuration requests."""
    return "eager" if "convnext" in shape.model_type else "sdpa"


def _without_pooling(shape: Any) -> dict[str, bool]:
    """Return arguments that leave out a pooling layer that belongs to a task head, or is not in the file at all."""
    return {"add_pooling_layer": False} if shape.model_type == "vit" else {}


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Silence messages and progress bars of transformers: the task heads that are left out do not matter to users."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _stages(network: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the stages: everything before the blocks, then each block; the last one includes everything after.

    Example:
        >>> stem, body, norm = nn.Linear(2, 2), nn.ModuleList([nn.Linear(2, 2)]), nn.LayerNorm(2)
        >>> _stages(nn.ModuleDict({"stem": stem, "body": body, "norm": norm}))
        {'stem': ('network.stem',), 'block0': ('network.body.0', 'network.norm')}
    """
    path, blocks = next((name, module) for name, module in network.named_modules() if isinstance(module, nn.ModuleList))
    names = [name for name, _ in network.named_parameters()]
    first = next(index for index, name in enumerate(names) if name.startswith(f"{path}."))
    before = dict.fromkeys(_beside(name, path) for name in names[:first])
    after = dict.fromkeys(_beside(name, path) for name in names[first:] if not name.startswith(f"{path}."))
    stages = {"stem": tuple(f"network.{name}" for name in before)} if before else {}
    stages |= {f"block{number}": (f"network.{path}.{number}",) for number in range(len(blocks))}
    stages[f"block{len(blocks) - 1}"] += tuple(f"network.{name}" for name in after)
    return stages


def _beside(name: str, path: str) -> str:
    """Return the largest module that contains a parameter but none of the blocks at a path."""
    parts = name.split(".")[:-1]
    prefixes = (".".join(parts[: count + 1]) for count in range(len(parts)))
    return next(prefix for prefix in prefixes if not f"{path}.".startswith(f"{prefix}."))


# Networks of the timm library, which is an optional dependency.


def timm(model: str, pretrained: bool = False) -> Timm:
    """Build a network of the timm library without its classifier.

    Args:
        model: Name in timm, such as "vit_small_patch16_224".
        pretrained: Whether timm downloads pretrained weights.
    """
    try:
        import timm as library
    except ImportError:
        raise MissingExtra("timm", f"The backbone timm:{model}") from None
    if ":" in model and not pretrained:  # timm would download its configuration
        raise InputError(f"timm's {model!r} is on the hub: it can be downloaded only with pretrained=True.")
    try:
        network = library.create_model(model, pretrained=pretrained, num_classes=0)
    except RuntimeError as error:
        raise InputError(f"timm could not build {model!r}: {error}. timm.list_models() names what it has.") from None
    return Timm(network, library.data.resolve_model_data_config(network))


class Timm(Backbone):
    """A timm network, from images to vectors pooled by its own method.

    Transformers and convolutional networks of timm arrange their features differently, so pooling
    is left to timm and the head receives vectors.
    """

    def __init__(self, network: Any, settings: dict[str, Any]) -> None:
        super().__init__()
        self.network: nn.Module = network
        self.mean: tuple[float, ...] = tuple(settings["mean"])
        self.std: tuple[float, ...] = tuple(settings["std"])
        self.channels = int(getattr(network, "head_hidden_size", network.num_features))
        side = int(settings["input_size"][-1])
        self.input = Input("imagenet", 3, size=side, short_side=round(side / settings["crop_pct"]))
        self.stages = {
            name: (f"network.{name}",)
            for name, child in network.named_children()
            if any(True for _ in child.parameters())
        }

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """Return the pooled features."""
        return self.network(renormalise(images, self.mean, self.std))
