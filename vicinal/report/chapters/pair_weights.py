"""Chapter on the pair weights of each loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from vicinal.errors import VicinalError
from vicinal.leaderboard import Leaderboard
from vicinal.mining import find_miner
from vicinal.objectives import find_objective, options_of
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose
from vicinal.report.charts import Curve, small_lines
from vicinal.runs import Run
from vicinal.weights import WeightCurves, weight_curves

__all__ = ["pair_weight_curves"]

RANDOM = ("distance_weighted", "random")
POINTS = 101


def pair_weight_curves(board: Leaderboard) -> list[Chapter]:
    """Plot the weight of a pair over its similarity, one small panel per loss."""
    panels, without = [], []
    for entry in board.of_network():
        try:
            curves, mined = _traced(entry.runs[0])
        except VicinalError:  # a custom loss that this installation does not know
            without.append(f"{entry.name} (its code is not available here)")
            continue
        if not mined:
            without.append(f"the miner of {entry.name} (it draws at random)")
        panels.append(_panel(entry.name, curves))
    if not panels:
        return []
    blocks: list[Block] = [
        Chart(
            "pair-weights",
            tuple(panels),
            "Weight of a positive pair (blue, solid) and of a negative pair (orange, dashed) in the gradient of each "
            "loss, against the cosine similarity of the pair; the other pairs of the anchor are fixed. Scales differ: "
            "compare the shapes, not the values.",
            size="small",
        )
    ]
    if without:
        blocks.append(Prose(f"Not shown: {'; '.join(without)}.", kind="note"))
    return [Chapter("Pair weights", tuple(blocks))]


def _traced(run: Run) -> tuple[WeightCurves, bool]:
    """Return the curves of a run's loss, and whether they include its miner."""
    recipe = run.record.recipe
    name = str(recipe.get("loss", run.record.name))
    function = find_objective(name, run.trust)
    options = {key: value for key, value in recipe.get("loss_options", {}).items() if key in options_of(function)}
    mining = recipe.get("mining")
    miner: Callable[..., tuple[Tensor, Tensor]] | None = None
    if mining is not None and mining not in RANDOM:
        mining_options: dict[str, Any] = recipe.get("mining_options", {})
        miner = partial(find_miner(mining, run.trust), **mining_options)
    return weight_curves(function, mining=miner, points=POINTS, **options), mining not in RANDOM


def _panel(name: str, curves: WeightCurves) -> Panel:
    # The derivative of a distance by the cosine is unbounded at 1: exclude that spike from the scale.
    inner = curves.similarity.abs() < 0.97
    shown = [*curves.positive[inner].tolist(), *curves.negative[inner].tolist()]
    pad = 0.06 * (max(shown) - min(shown) or 1.0)
    cosines = curves.similarity.tolist()
    pull = list(zip(cosines, curves.positive.tolist(), strict=True))
    push = list(zip(cosines, curves.negative.tolist(), strict=True))
    alt = (
        f"{name}: the weight of a positive pair is largest at cosine {_peak(pull):.1f}, of a negative pair at cosine "
        f"{_peak(push):.1f}"
    )
    svg = small_lines(
        [],
        [Curve(pull, "accent"), Curve(push, "contrast dashed")],
        alt=alt,
        low=min(shown) - pad,
        high=max(shown) + pad,
    )
    return Panel(svg, alt, title=name)


def _peak(points: list[tuple[float, float]]) -> float:
    return max((point for point in points if abs(point[0]) < 0.97), key=lambda point: point[1])[0]
