"""The class `Embedder`: transform, backbone, head and normalisation in one module that encodes, saves and loads."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Float32
from PIL import Image
from torch import Tensor, nn

from vicinal._util.code import is_code, name_of, works_elsewhere
from vicinal._util.html import html_page, html_table
from vicinal._util.reading import reading
from vicinal._util.warnings import warn_caller
from vicinal.backbones import (
    BACKBONES,
    Backbone,
    Fetched,
    as_backbone,
    build_backbone,
    channels_last,
    frozen_modules,
    offline_options,
    rebuilt_by,
)
from vicinal.data import as_dataset, is_foreign
from vicinal.embedder.calibration import Calibration, Sameness
from vicinal.embedder.encode import BatchOptions, Precision, embed_each, embed_in_batches
from vicinal.embedder.engines import Choice, EngineName
from vicinal.embedder.folder import (
    CONFIG,
    Card,
    Config,
    Rounding,
    identity,
    model_in,
    read_calibration,
    read_folder,
    sealed,
    write_folder,
)
from vicinal.embedder.head import Head, Normalisation, Pooling, first_numbers, pool
from vicinal.embedder.inputs import Inputs, default_transform, describe_transform, reader, restore_transform
from vicinal.embedder.lora import merged
from vicinal.embedder.onnx import export_onnx
from vicinal.embedder.queries import embed_queries
from vicinal.errors import DataError, InputError
from vicinal.neighbours.rounding import Numbers, check_numbers, middle_of
from vicinal.neighbours.similarity import exact_pairs, readable, vectors

__all__ = ["Embedder"]


@final
class Embedder(nn.Module):
    """Map images or feature vectors to embeddings.

    Args:
        backbone: Name in `vicinal.backbones.BACKBONES`, or a custom network: any `torch.nn.Module` from images or
            vectors to features, or the class or function that builds it. It can be saved if it can be imported by
            name; a module that is already built must also equal what its class builds without arguments.
        dim: Length of the embeddings, made by a head that has to be trained; None for the pooled features of the
            backbone as they are.
        pooling: "average", "max", or "both" for the sum of the two.
        normalisation: "sphere" (length 1), "ball" (length at most 1), "softmax" (class probabilities) or "none".
        bias: Whether the head's linear map has a bias.
        kaiming: Whether to initialise the head by He's rule (fan-out) instead of PyTorch's default.
        transform: Test-time transform from a PIL image to the backbone's input; None for the backbone's default.
        weights: "imagenet", or a path or URL of weights for the backbone; None for random ones.
        options: Options of the named backbone, e.g. `{"in_channels": 3}`.
        allow_code: Modules or files whose code the backbone's name may refer to.

    Attributes:
        card: Content of the README in the saved folder: title, data, recipe and scores.

    Example:
        >>> embedder = Embedder("convnet", dim=16)
        >>> embedder.encode(np.zeros((5, 28, 28), np.uint8)).shape
        (5, 16)
    """

    def __init__(
        self,
        backbone: str | nn.Module | Callable[..., nn.Module],
        *,
        dim: int | None = None,
        pooling: Pooling = "average",
        normalisation: Normalisation = "sphere",
        bias: bool = True,
        kaiming: bool = False,
        transform: Callable[[Image.Image], Tensor] | None = None,
        weights: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
        allow_code: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.name: str | None = None
        self.options = dict(options or {})
        pretrained = weights is not None
        if not isinstance(backbone, nn.Module):
            self.name = name_of("backbone", backbone, {})
            backbone = build_backbone(self.name, weights, allow_code=allow_code, **self.options)
            if isinstance(backbone, Fetched):  # so that it is not fetched again
                self.options, pretrained = dict(backbone.options), True
        elif weights is not None or options:
            raise InputError("weights and options are for a backbone given by name; this one is built already.")
        backbone = as_backbone(backbone)
        self.backbone: Backbone = backbone
        if self.name is not None and is_code(self.name):
            self.options["input"] = asdict(backbone.input)  # may have been inferred by a trial run
        self.head = Head(
            backbone.channels, dim, pooling=pooling, normalisation=normalisation, bias=bias, kaiming=kaiming
        )
        self.transform = transform or default_transform(backbone.input)
        self.random_head = pretrained and dim is not None  # until it is trained, or has its weights loaded
        self.card = Card()  # content of the saved folder's README
        self.frozen: tuple[str, ...] = ()
        self.rounding: Rounding | None = None  # rounding of embeddings to fewer bytes; see `shortened`
        self.calibration: Calibration | None = None  # threshold from which two items count as the same
        self.skipped: tuple[int, ...] = ()  # positions of the items that the last `encode` could not read
        self.encoded_by = ""  # engine of the last `encode`, and why a requested one was not used

    @property
    def dim(self) -> int:
        """Length of the embeddings."""
        return self.head.dim

    @property
    def distance(self) -> str:
        """Distance that compares the embeddings: off the sphere lengths matter too, which cosines ignore."""
        return "euclidean" if self.head.normalisation in ("ball", "none") else "cosine"

    @property
    def numbers(self) -> Numbers:
        """Number format of the embeddings: "float32", "int8" or "bits"."""
        return "float32" if self.rounding is None else self.rounding.numbers

    @property
    def device(self) -> torch.device:
        """Device of the parameters; the CPU if there are none."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    def forward(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Return the embeddings of transformed images [n, c, h, w] or vectors [n, c]."""
        self.random_head &= not (self.training and torch.is_grad_enabled())
        return self.head(self.backbone(channels_last(inputs)))

    def unnormalised(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Return the embeddings before normalisation."""
        return self.head.unnormalised(self.backbone(channels_last(inputs)))

    def features(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        """Return the pooled features, from which `head` computes the embeddings."""
        return pool(self.backbone(channels_last(inputs)), self.head.pooling)

    def freeze(self, *, train_stages: int | None = None, batch_norm: bool = False) -> Embedder:
        """Choose which part of the backbone is trained from now on; the head always is.

        Frozen parts get no gradient and stay in evaluation mode even after `train()`, so running
        statistics do not change. Each call replaces the previous one: `freeze()` unfreezes everything.

        Args:
            train_stages: Number of the backbone's last stages that are trained; None for all, 0 for none.
            batch_norm: Whether batch norm is frozen in the trained stages too.
        """
        self.frozen = frozen_modules(self.backbone, train_stages=train_stages, batch_norm=batch_norm)
        self.backbone.requires_grad_(True)
        for name in self.frozen:
            self.backbone.get_submodule(name).requires_grad_(False)
        return self.train(self.training)

    def _repr_html_(self) -> str:
        """Return a summary as HTML, for notebooks."""
        facts = {
            "backbone": self.name or type(self.backbone).__name__,
            "dimensions": self.dim,
            "distance": self.distance,
            "parameters": sum(parameter.numel() for parameter in self.parameters()),
            **self.card.scores,
        }
        return html_page(self.card.title or "Embedder", html_table(["", ""], facts.items()))

    def train(self, mode: bool = True) -> Embedder:
        """Set training or evaluation mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        for name in self.frozen:
            self.backbone.get_submodule(name).eval()
        return self

    def encode(
        self,
        inputs: Inputs,
        *,
        batch_size: int = 32,
        workers: int | None = None,
        engine: EngineName = "auto",
        precision: Precision = "float32",
        skip_bad: bool = False,
        progress: bool = False,
    ) -> Float32[np.ndarray, "n d"]:
        """Embed files, images or arrays, in evaluation mode and without gradients.

        The network runs on the engine that finishes this number of items first. Its first embeddings are compared with
        those of the plain network; if they differ, the plain network is used, and `encoded_by` says why.

        Args:
            inputs: A path, a PIL image, a uint8 image array [h, w] or [h, w, 3], a float vector, a
                tensor that is already transformed; a sequence or stack of those; a `Dataset`, or anything
                `vicinal.data.as_dataset` converts: a torch dataset of (x, y), a DataLoader, a Hugging Face dataset.
            batch_size: Maximum number of items per forward pass.
            workers: Number of threads that open items and run the network; 0 for the calling thread only, None for
                one per core.
            engine: "eager" (the network as it is), "folded" (batch norm folded, channels last), "onnxruntime",
                "autocast" (half precision, for GPUs), or "auto" for the fastest: measured at the first run that is
                long enough, and stored in the cache folder.
            precision: "bfloat16" runs the convolutions and linear maps of the engine "eager" in bfloat16: faster if
                the processor supports it, slower otherwise. Embeddings are float32 either way.
            skip_bad: Whether to leave out items that cannot be read instead of raising an error: a warning lists
                them, and `skipped` holds their positions.
            progress: Whether to show a progress bar on standard error.
        """
        if self.random_head:
            warn_caller(
                f"The head of this embedder is random: its {self.dim} numbers are a random projection of the network's "
                "features. Train it with vicinal.fit, or leave dim out to use the features as they are."
            )
        options = BatchOptions(batch_size, workers, engine, precision, progress)
        count, item = reader(inputs, self.backbone.input)
        embeddings = np.empty((count, self.dim), dtype=np.float32)
        unreadable: dict[int, str] = {}
        run = partial(embed_in_batches, options=options, chosen=self._note)
        for position, row in embed_each(self, item, range(count), skip=(DataError,) if skip_bad else (), run=run):
            if isinstance(row, Exception):
                unreadable[position] = str(row).splitlines()[0]
            else:
                embeddings[position] = row
        self.skipped = tuple(unreadable)
        if unreadable:
            listed = "\n".join(f"  - {unreadable[position]}" for position in self.skipped[:20])
            warn_caller(f"{len(unreadable)} of {count} items were skipped:\n{listed}")
            return np.delete(embeddings, list(self.skipped), axis=0)
        return embeddings

    def rounded(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Round embeddings of the network as requested in `shortened`; return them unchanged if no rounding is set."""
        return rows if self.rounding is None else self.rounding(rows)

    def shortened(
        self, dim: int | None = None, numbers: Numbers = "float32", *, middle: Float[np.ndarray, "n d"] | None = None
    ) -> Embedder:
        """Return a copy whose embeddings take fewer bytes: only the first numbers, in 8 bits or 1 bit each.

        It can be scored, saved, calibrated and indexed like any other; its embeddings are float32 arrays that a file or
        an index stores in fewer bytes without loss. The calibration is dropped, since similarities change.

        Args:
            dim: Number of leading dimensions to keep; None for all.
            numbers: "float32", "int8" or "bits"; the latter two only for embeddings compared by cosine.
            middle: Embeddings from this embedder, for example of training classes. Each bit is whether a number is
                above its median; without them, whether it is above zero.

        Example:
            >>> embedder = Embedder("linear", dim=16, options={"features": 3}).shortened(8, "int8")
            >>> embedder.dim, embedder.numbers
            (8, 'int8')
        """
        if self.rounding is not None:
            raise InputError(f"The embeddings are already rounded to {self.numbers}; shorten the original embedder.")
        if self.head.normalisation == "softmax":
            raise InputError("Class probabilities cannot be shortened; use another normalisation.")
        if middle is not None and numbers != "bits":
            raise InputError(f"middle needs numbers='bits'; got numbers={numbers!r}.")
        check_numbers(numbers, self.distance)
        short = copy.deepcopy(merged(self))
        short.calibration = None
        if dim is not None:
            short.head = first_numbers(short.head, dim)
        if numbers != "float32":
            medians = None if middle is None else tuple(middle_of(_checked(middle, self.dim)[:, :dim]).tolist())
            short.rounding = Rounding(numbers=numbers, middle=medians)
        short.card = replace(short.card, scores={})  # scores are of the full embeddings
        return short.eval()

    def labelled(self, data: Any) -> Any:
        """Convert a dataset of another library to one that this embedder can be scored on."""
        return as_dataset(data) if is_foreign(data) else data

    def _note(self, choice: Choice) -> None:
        self.encoded_by = f"{choice.engine.name} ({choice.note})" if choice.note else choice.engine.name

    def same(self, first: Inputs, second: Inputs) -> Sameness:
        """Decide whether two items are of one class, by the calibration.

        Args:
            first: Item of any kind that `encode` accepts: a path, an image, a vector.
            second: Item to compare it with.
        """
        if self.calibration is None:
            raise InputError(
                "This embedder has no similarity threshold. Calibrate it on classes that it was not trained on: "
                "vicinal calibrate MODEL DATA"
            )
        # Each item separately, as an index embeds its queries: the result does not depend on earlier calls.
        rows, others = (torch.from_numpy(embed_queries(self, item)) for item in (first, second))
        if len(rows) != 1 or len(others) != 1:
            raise InputError(f"same() compares two single items; got {len(rows)} and {len(others)}.")
        left, right = vectors(rows, others, distance=self.distance)
        only = torch.zeros(1, dtype=torch.int64)
        value = float(readable(exact_pairs(left, only, right, only[:, None]), right))
        return Sameness.on(value if self.distance == "cosine" else -value, self.calibration)

    def identity(self) -> str:
        """Return a hash of everything that the embeddings depend on: equal for a copy, different after a training step.

        Example:
            >>> embedder = Embedder("linear", dim=2, options={"features": 3})
            >>> len(embedder.identity())
            64
        """
        return identity(sealed(self._config(), merged(self).state_dict())[0])

    def _config(self) -> Config:
        linear = self.head.linear
        name, options = (self.name, self.options) if self.name else (None, {})
        if name is None or not works_elsewhere(name):
            name, options = rebuilt_by(self.backbone)
        return Config(
            backbone=name,
            options=offline_options(name, options),
            dim=None if linear is None else linear.out_features,
            pooling=self.head.pooling,
            normalisation=self.head.normalisation,
            bias=linear is not None and linear.bias is not None,
            transform=describe_transform(self.transform),
            card=self.card,
            rounding=self.rounding,
        )

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors, README.md and the calibration, from which `load` rebuilds it."""
        config = self._config()
        plain = {key: value for key, value in config.options.items() if not isinstance(value, Mapping)}
        facts = {
            "backbone": " ".join([config.backbone, *(f"{key}={value}" for key, value in plain.items())]),
            "embedding": f"{self.dim} numbers ({self.numbers}), normalisation: {config.normalisation}",
            "pooling": config.pooling,
            "transform": self.transform,
            "parameters": f"{sum(parameter.numel() for parameter in self.parameters()):,}",
        }
        write_folder(Path(folder), config, merged(self).state_dict(), facts, self.calibration)

    @classmethod
    def load(cls, folder: str | Path, *, allow_code: Sequence[str] = ()) -> Embedder:
        """Rebuild a saved embedder, in evaluation mode.

        Args:
            folder: Folder that `save` wrote; or the folder of a run or a comparison, to load its best embedder.
            allow_code: Modules or files whose code the folder may refer to: loading an embedder with a custom network
                runs that network's code.
        """
        config, state = read_folder(Path(folder))
        with reading(model_in(Path(folder)) / CONFIG, "the description of an embedder"):
            transform = restore_transform(config.transform)
            # Weights come from the folder: nothing is downloaded, whatever the config says.
            options = offline_options(config.backbone, config.options)
            build = partial(
                cls,
                config.backbone,
                dim=config.dim,
                pooling=config.pooling,
                normalisation=config.normalisation,
                bias=config.bias,
                transform=transform,
                options=options,
                allow_code=allow_code,
            )
            # timm networks, and possibly custom ones, read their own parameter values while they are built.
            if config.backbone in BACKBONES and config.backbone != "timm":
                with torch.device("meta"):  # networks of any size take no memory there
                    _require_fit(build(), state, folder)
            embedder = build()
        _require_fit(embedder, state, folder)
        embedder.load_state_dict(state)
        embedder.random_head = False  # it has the saved weights
        embedder.card = config.card
        embedder.rounding = config.rounding
        _require_rounding(embedder, folder)
        embedder.calibration = read_calibration(model_in(Path(folder)), identity(config))
        return embedder.eval()

    def export_onnx(self, path: str | Path) -> float:
        """Write the network and the normalisation as one ONNX file with a dynamic batch size.

        The graph takes the inputs of `forward`; the transform is described in the file's metadata under
        `vicinal.transform`. The file is checked with onnxruntime before it appears.

        Returns:
            Largest absolute difference between the file's embeddings and torch's.
        """
        if self.rounding is not None:
            raise InputError(
                f"An ONNX file has the embeddings before they are rounded to {self.numbers}: export the embedder that "
                "this one was shortened from, or one with --numbers float32."
            )
        expects = self.backbone.input
        shape = (expects.channels,) if expects.pixels is None else (expects.channels, expects.size, expects.size)
        sample = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
        network = copy.deepcopy(merged(self)).cpu().eval()
        transform = json.dumps(describe_transform(self.transform))
        return export_onnx(network, sample, Path(path), {"vicinal.transform": transform})


def _checked(rows: Float[np.ndarray, "n d"], dim: int) -> Float[np.ndarray, "n d"]:
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != dim:
        raise InputError(f"middle must be embeddings of this embedder, rows of {dim} numbers; got {list(rows.shape)}.")
    return rows


def _require_rounding(embedder: Embedder, folder: str | Path) -> None:
    """Raise an error if the rounding in a folder does not fit its embedder."""
    rounding = embedder.rounding
    if rounding is None:
        return
    if embedder.distance != "cosine" or len(rounding.middle or ()) not in (0, embedder.dim):
        raise DataError(
            f"{folder} says that embeddings are rounded to {rounding.numbers} around {len(rounding.middle or ())} "
            f"numbers, but they have {embedder.dim} and are compared by the {embedder.distance} distance."
        )


def _require_fit(embedder: Embedder, state: Mapping[str, Tensor], folder: str | Path) -> None:
    """Raise an error if the weights in a folder do not fit the embedder that its config.json describes."""
    own = embedder.state_dict()
    problems = [f"missing: {name}" for name in own if name not in state]
    problems += [f"not expected: {name}" for name in state if name not in own]
    problems += [
        f"shape of {name}: {tuple(state[name].shape)} in the file, {tuple(own[name].shape)} in the network"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if problems:
        raise DataError(f"The weights in {folder} do not fit its config.json.", problems)
