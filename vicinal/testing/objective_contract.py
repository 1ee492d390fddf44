"""Checks for a custom loss: gradient, order of items, unusual batches, half precision; and its data sheet."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from vicinal._util.code import Trust
from vicinal.criterion import Criterion
from vicinal.objectives import Traits, find_objective, options_of, traits_or_default
from vicinal.pairs import GEOMETRIES, masks
from vicinal.references import Batch, OneHot, Proxies
from vicinal.weights import WeightCurves, similarity_types, weight_curves

__all__ = ["check_objective"]

CLASSES, DIM = 4, 5
BARS = " ▁▂▃▄▅▆▇█"
COLUMNS = 41  # width of a curve in the terminal: an odd number has a column for cosine 0


def check_objective(
    objective: str | Callable[..., Tensor], *, gradcheck: bool = True, show: bool = True, **options: Any
) -> None:
    """Test a loss, and print its data sheet with the weight of a pair over its similarity.

    Args:
        objective: Function of (matrix, positive, negative), with or without `@vicinal.objectives.objective`; or a name.
        gradcheck: Whether to check the gradient; False for a loss that deliberately holds some of its factors
            constant, so that its gradient is not the derivative of its value.
        show: Whether to print.
        **options: Options of the loss.

    Raises:
        AssertionError: If a check fails, with a list of all failures.

    Example:
        >>> def pull(matrix, positive, negative):
        ...     return (1 - matrix).where(positive, 0.0).sum() / max(int(positive.sum()), 1)
        >>> check_objective(pull, show=False)
        >>> check_objective(lambda matrix, positive, negative: (1 - matrix)[positive].mean(), show=False)
        Traceback (most recent call last):
        ...
        AssertionError: <lambda> fails:
          - empty batch: without positives the value is nan, and not a finite number
          - empty batch: without any pairs the value is nan, and not a finite number
          - empty batch: without anchors the value is nan, and not a finite number
    """
    function = find_objective(objective, Trust.typed([objective])) if isinstance(objective, str) else objective
    name = getattr(function, "__name__", type(function).__name__)
    traits = traits_or_default(function)
    bound = partial(function, **options)
    wrong = {
        "gradient": _gradient(bound, traits) if gradcheck else [],
        "order of items": _order(bound, traits),
        "pairs in neither mask": _left_out(bound, traits),
        "empty batch": _empty(bound, traits),
        "duplicates": _duplicates(function, traits, options),
        "half precision": _half(function, traits, options),
    }
    if show:
        print(_sheet(name, function, traits))
        for check, lines in wrong.items():
            skipped = check == "gradient" and not gradcheck
            print(f"  {check:<22} {'not tried' if skipped else 'fails' if lines else 'ok'}")
        if not any(wrong.values()):
            print(_curves(weight_curves(function, points=COLUMNS, **options)))
            kinds = similarity_types(function, **options)
            depends = [kind for kind in ("own", "negative", "positive") if getattr(kinds, kind)]
            print(f"  The weight of a negative pair depends on similarities: {', '.join(depends) or 'none'}.")
    failures = [f"  - {check}: {line}" for check, lines in wrong.items() for line in lines]
    if failures:
        raise AssertionError("\n".join([f"{name} fails:", *failures]))


@final
@dataclass
class _Pairs:
    """Two items of each class against two references of each, class by class, in float64."""

    matrix: Tensor
    positive: Tensor
    negative: Tensor
    supplied: dict[str, Tensor]

    @classmethod
    def drawn(cls, traits: Traits, seed: int = 0) -> _Pairs:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(CLASSES).repeat_interleave(2)
        drawn = torch.rand(len(labels), len(labels), generator=generator, dtype=torch.float64)
        similar = GEOMETRIES[traits.geometry].similarity
        among = torch.rand(len(labels), len(labels), generator=generator, dtype=torch.float64)
        offered = {"reference_labels": labels, "reference_matrix": (among + among.T) / 2}
        return cls(
            0.05 + 0.9 * drawn if traits.usual == "one_hot" else 1.4 * drawn - 0.5 if similar else 0.2 + 1.4 * drawn,
            *masks(labels, labels),
            {need: offered[need] for need in traits.needs},
        )


def _traced(bound: Callable[..., Tensor], pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Return value and gradient."""
    leaf = pairs.matrix.detach().clone().requires_grad_()
    value = bound(leaf, pairs.positive, pairs.negative, **pairs.supplied)
    if not isinstance(value, Tensor) or value.ndim:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise AssertionError(f"A loss must return one number as a tensor of shape []; got {got}.")
    if not value.requires_grad:  # a constant has zero gradient
        return value, torch.zeros_like(leaf)
    (slope,) = torch.autograd.grad(value, leaf, allow_unused=True)
    return value.detach(), torch.zeros_like(leaf) if slope is None else slope


def _gradient(bound: Callable[..., Tensor], traits: Traits) -> list[str]:
    pairs = _Pairs.drawn(traits)
    _, slope = _traced(bound, pairs)
    if not slope.any():
        return ["it is zero everywhere: nothing would be learned"]

    def loss(matrix: Tensor) -> Tensor:
        return bound(matrix, pairs.positive, pairs.negative, **pairs.supplied)

    if torch.autograd.gradcheck(loss, pairs.matrix.requires_grad_(), atol=1e-6, rtol=1e-4, raise_exception=False):
        return []
    return ["it is not the derivative of the value; if that is intended, pass gradcheck=False"]


def _order(bound: Callable[..., Tensor], traits: Traits) -> list[str]:
    pairs = _Pairs.drawn(traits)
    value, _ = _traced(bound, pairs)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(len(pairs.matrix), generator=generator)
    # References of a class stay together, like stored proxies.
    columns = torch.arange(2 * CLASSES).view(CLASSES, 2)[torch.randperm(CLASSES, generator=generator)].flatten()
    moved = _Pairs(
        pairs.matrix[rows][:, columns],
        pairs.positive[rows][:, columns],
        pairs.negative[rows][:, columns],
        {need: part[columns] if part.ndim == 1 else part[columns][:, columns] for need, part in pairs.supplied.items()},
    )
    other, _ = _traced(bound, moved)
    return [] if torch.isclose(value, other, rtol=1e-8) else [f"{float(value):.6g} becomes {float(other):.6g}"]


def _left_out(bound: Callable[..., Tensor], traits: Traits) -> list[str]:
    pairs = _Pairs.drawn(traits)
    out = torch.rand(pairs.matrix.shape, generator=torch.Generator().manual_seed(2)) < 0.4
    pairs.positive, pairs.negative = pairs.positive & ~out, pairs.negative & ~out
    _, slope = _traced(bound, pairs)
    if not slope[out].any():
        return []
    return ["a pair that mining left out has a weight: use both masks, and neither ~positive nor ~negative"]


def _empty(bound: Callable[..., Tensor], traits: Traits) -> list[str]:
    wrong = []
    for without in ("positives", "negatives", "any pairs", "anchors"):
        pairs = _Pairs.drawn(traits)
        if without in ("positives", "any pairs"):
            pairs.positive = torch.zeros_like(pairs.positive)
        if without in ("negatives", "any pairs"):
            pairs.negative = torch.zeros_like(pairs.negative)
        if without == "anchors":
            pairs.matrix, pairs.positive, pairs.negative = pairs.matrix[:0], pairs.positive[:0], pairs.negative[:0]
        try:
            value, slope = _traced(bound, pairs)
        except (RuntimeError, ValueError, IndexError, ZeroDivisionError) as error:
            wrong.append(f"without {without} it raises {type(error).__name__}: {error}")
            continue
        if not value.isfinite():
            wrong.append(f"without {without} the value is {float(value)}, and not a finite number")
        elif not slope.isfinite().all():
            wrong.append(f"without {without} the gradient is not finite")
    return wrong


def _duplicates(function: Callable[..., Tensor], traits: Traits, options: dict[str, Any]) -> list[str]:
    """Test equal items, where distances are zero and square roots have no gradient."""
    rows = torch.eye(3, DIM)
    if traits.usual == "one_hot":  # which needs probabilities
        rows = rows.softmax(1)
    embeddings = torch.cat([rows[:1], rows[:1], rows[:1], rows[1:]]).requires_grad_()
    criterion = _criterion(function, traits, options)
    loss = criterion(embeddings, torch.tensor([0, 0, 1, 1, 2]))
    slope = torch.autograd.grad(loss, embeddings)[0] if loss.requires_grad else torch.zeros(())
    return [] if loss.isfinite() and slope.isfinite().all() else ["with equal items value or gradient is not finite"]


def _half(function: Callable[..., Tensor], traits: Traits, options: dict[str, Any]) -> list[str]:
    # Probabilities that bfloat16 represents exactly, in eight orders.
    generator = torch.Generator().manual_seed(0)
    orders = torch.stack([torch.randperm(DIM, generator=generator) for _ in range(2 * CLASSES)])
    embeddings = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16])[orders].bfloat16()
    labels, criterion = torch.arange(CLASSES).repeat(2), _criterion(function, traits, options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = criterion(embeddings, labels)
    wide = criterion(embeddings.float(), labels)
    if low.dtype == torch.float32 and torch.isclose(low, wide, rtol=1e-4, atol=1e-5):
        return []
    return [f"under autocast it is {float(low):.6g} in {low.dtype}, and {float(wide):.6g} without"]


def _criterion(function: Callable[..., Tensor], traits: Traits, options: dict[str, Any]) -> Criterion:
    references = {"batch": Batch(), "one_hot": OneHot(DIM)}.get(traits.usual) or Proxies(DIM, DIM)
    return Criterion(function, references=references, regularisers={}, **options)


def _sheet(name: str, function: Callable[..., Tensor], traits: Traits) -> str:
    lines = [name, f"  {(inspect.getdoc(function) or 'It has no docstring.').splitlines()[0]}"]
    others = "any" if len(traits.references) > 4 else ", ".join(traits.references)
    lines.append(f"  {'geometry':<22} {traits.geometry}")
    lines.append(f"  {'references':<22} {traits.usual}; runs on {others}")
    if traits.miner is not None:
        lines.append(f"  {'miner':<22} {traits.miner}")
    defaults = ", ".join(f"{option} = {value}" for option, value in options_of(function).items())
    lines.append(f"  {'options':<22} {defaults or 'none'}")
    if traits.paper:
        lines.append(f"  {'paper':<22} {traits.paper}")
    return "\n".join(lines)


def _curves(curves: WeightCurves) -> str:
    """Draw both curves as bars on one scale; weights below zero, which move a pair the wrong way, are empty."""
    inner = curves.similarity.abs() < 0.97  # at 1 the slope of a distance is unbounded
    top = float(torch.cat([curves.positive[inner], curves.negative[inner]]).max())

    def bars(weights: Tensor) -> str:
        steps = (weights / (top or 1.0) * (len(BARS) - 1)).round().clamp(0, len(BARS) - 1)
        return "".join(BARS[int(step)] for step in steps)

    half = COLUMNS // 2
    return "\n".join(
        [
            f"  {'positive is pulled':<22} |{bars(curves.positive)}|",
            f"  {'negative is pushed':<22} |{bars(curves.negative)}|  up to {top:.3g}",
            f"  {'cosine of the pair':<22}  {'-1':<{half}}0{'1':>{half}}",
        ]
    )
