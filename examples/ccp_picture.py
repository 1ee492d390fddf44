"""Pictures of chance-constrained proxies: through their iterations in two dimensions, and on classes never seen.

    python examples/ccp_picture.py --out docs
    VICINAL_DATA=../shared/data python examples/ccp_picture.py --out docs --only instances --steps 1500

`ccp-iterations.png` (after Gurbuz et al. 2024, supplement, Fig. 1): digits in the unit disc; squares are converged
proxies, rings the next ones. `ccp-unseen.png` (Fig. 2): a map of the test classes of glyphs. `ccp-instances.png` (as
Fig. 2 has it, and only where it is asked for): a map of ten test classes of CUB at the ends of three instances of the
last stages of a pretrained network; what was embedded is kept in the run's folder, and drawn from there again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from ccp_trunk import pairs_apart
from sklearn.manifold import TSNE
from torch import Tensor, nn

import vicinal as vc
from vicinal.cli.options import parse_pairs
from vicinal.evaluation import class_distances, covering_radius
from vicinal.pairs import to_ball
from vicinal.references import Batch, Proxies, greedy_k_center
from vicinal.runs.recipe import Recipe
from vicinal.training.ccp import ChanceConstrainedProxies, proxy_spread
from vicinal.training.engine import Stream, run_training
from vicinal.training.settings import CCP, Settings
from vicinal.training.state import Hook, TrainingState

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = plt.get_cmap("tab10")
PER_CLASS, POOL = 4, 16


def snapshots(patience: int, steps: int) -> list[dict[str, Any]]:
    """Train on half of the digits in two dimensions; return what each instance came to, and the last state."""
    data = vc.data.digits(vectors=True)
    first, second = data.subset(np.arange(0, len(data), 2)), data.subset(np.arange(1, len(data), 2))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
    proxies = Proxies(10, 2, per_class=PER_CLASS)
    margins = {"positive_margin": 0.0, "negative_margin": 0.4}
    criterion = vc.Criterion("contrastive_c2", references=[proxies, (Batch(), 0.1)], normalise="ball", **margins)
    found: list[dict[str, Any]] = []

    def embed(items: vc.data.Dataset) -> Tensor:
        with torch.no_grad():
            return network(torch.from_numpy(items.items))

    def state() -> dict[str, Any]:
        points = to_ball(embed(second))
        return {
            "points": points,
            "labels": second.labels,
            "proxies": to_ball(proxies.vectors.detach().clone()).view(10, PER_CLASS, 2),
            "radius": covering_radius(points, second.labels, distance="euclidean"),
            "inter": class_distances(points, second.labels, distance="euclidean")[0],
        }

    def pool(_: nn.Module, instance: int) -> Tensor:
        rng = np.random.default_rng(instance)
        rows = np.stack([rng.permutation(np.flatnonzero(first.labels == label))[:POOL] for label in range(10)])
        drawn = embed(first)[torch.from_numpy(rows)]
        if instance:
            centres = proxies.vectors.detach().view(10, PER_CLASS, 2)
            picks = greedy_k_center(drawn, PER_CLASS, centres=centres)
            chosen = torch.take_along_dim(drawn, picks[:, :, None], dim=1)
            found.append({**state(), "next": to_ball(chosen.flatten(0, 1)).view_as(chosen)})
        return drawn

    def score(_: nn.Module) -> dict[str, float]:
        return {"MAP@R": vc.evaluate(embed(second), second.labels, distance="euclidean", also=[])["MAP@R"]}

    run_training(
        network,
        criterion,
        Stream(first, None, vc.sampling.class_sampler(first.labels, 8, 4)),
        Settings(steps=steps, evaluate_every=25, learning_rate=2e-3, optimiser="adam"),
        score=score,
        hooks=[
            ChanceConstrainedProxies(
                CCP(proxies_per_class=PER_CLASS, pool=POOL, patience=patience, monitor="fresh"), pool
            )
        ],
        progress=False,
    )
    return [*found, state()]


def draw_iterations(path: Path) -> None:
    """Draw proxies that are never moved anew, and those of the first four instances."""
    alone = snapshots(10**6, 900)[-1:]
    alternated = snapshots(3, 3000)[:4]
    titles = ["proxies alone", *(f"CCP, iteration {number}" for number in range(1, 5))]
    figure, axes = plt.subplots(1, 5, figsize=(15, 3.6))
    for axis, title, state in zip(axes, titles, [*alone, *alternated], strict=False):
        colours = [COLOURS(int(label)) for label in state["labels"]]
        axis.scatter(*state["points"].T, c=colours, s=4, alpha=0.35, linewidths=0)
        for label in range(10):
            style = {"color": COLOURS(label), "edgecolors": "black", "linewidths": 0.7, "zorder": 3}
            axis.scatter(*state["proxies"][label].T, marker="s", s=30, **style)
            if "next" in state:
                ring = {"facecolors": "none", "edgecolors": COLOURS(label), "linewidths": 1.4, "zorder": 4}
                axis.scatter(*state["next"][label].T, marker="o", s=60, **ring)
        axis.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
        axis.set(xticks=[], yticks=[], aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
        axis.set_title(title, fontsize=10)
        spread = proxy_spread(state["proxies"])
        axis.set_xlabel(
            f"proxy spread {spread:.3f}\nradius {state['radius']:.3f}, inter-class {state['inter']:.3f}", fontsize=9
        )
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def draw_unseen(path: Path, folder: Path) -> None:
    """Draw a map of unseen classes after proxies alone and after alternated ones."""
    split = vc.split(vc.data.glyphs(), "fixed-validation", validation=0.25)
    recipe = {
        "loss": "contrastive_c2",
        "loss_options": {"positive_margin": 0.0, "negative_margin": 0.5},
        "normalisation": "ball",
        "dim": 32,
        "backbone_options": {"widths": [16, 32, 64], "size": 28},
        "steps": 600,
        "evaluate_every": 20,
        "learning_rate": 1e-3,
        "optimiser": "adam",
        "progress": False,
    }
    runs = {
        "proxies alone": {"preset": "code", "patience": 10**6},
        "alternated (CCP)": {"preset": "code"},
    }
    figure, axes = plt.subplots(1, 2, figsize=(10, 5))
    for axis, (title, ccp) in zip(axes, runs.items(), strict=True):
        run = folder / title.split()[0]
        model = vc.fit(split, ccp=ccp, folder=run, resume=True, **recipe)
        embeddings, labels = model.encode(split.test), split.test.labels
        shown = np.flatnonzero(labels < 10)
        flat = TSNE(random_state=0, perplexity=15).fit_transform(embeddings[shown])
        axis.scatter(*flat.T, c=[COLOURS(int(label)) for label in labels[shown]], s=12)
        scores = vc.evaluate(embeddings, labels, distance="euclidean", also=[])
        radius = covering_radius(embeddings, labels, distance="euclidean")
        inter = class_distances(embeddings, labels, distance="euclidean")[0]
        instances = len(json.loads((run / "record.json").read_text())["instances"])
        axis.set_title(f"{title}, converged instances: {instances}", fontsize=11)
        axis.set_xlabel(
            f"MAP@R {scores['MAP@R']:.3f}, covering radius {radius:.3f}, inter-class distance {inter:.3f},\n"
            f"radius / distance {radius / inter:.3f}"
        )
        axis.set(xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(path, dpi=110)


class Snapshots(Hook):
    """Embeds some items at every evaluation."""

    def __init__(self, items: vc.data.Dataset) -> None:
        self.items = items
        self.embeddings: dict[int, np.ndarray] = {}

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Embed the items by the present weights."""
        self.embeddings[state.step] = state.model.encode(self.items, engine="folded")


def embedded_instances(folder: Path, recipe: Recipe) -> dict[str, np.ndarray]:
    """Train and return labels and what ten test classes were embedded to at each evaluation, or read it.

    They take no part in training: neither the step nor the proxies are chosen by them.
    """
    kept = folder / "snapshots.npz"
    if not kept.exists():
        data = vc.data.load(str(recipe.data))
        test = recipe.split(data).test
        some = test.of_classes(test.classes[:10])
        snapshots = Snapshots(some)
        vc.train(recipe, data=data, folder=folder, hooks=[snapshots], progress=False)
        steps = {str(step): embeddings for step, embeddings in snapshots.embeddings.items()}
        np.savez(kept, labels=some.labels, **steps)
    with np.load(kept) as file:
        return dict(file)


def draw_instances(path: Path, folder: Path, recipe: Recipe) -> None:
    """Draw a map of test classes at the best step of the first, a middle and the best instance."""
    embedded = embedded_instances(folder, recipe)
    labels = embedded.pop("labels")
    instances = json.loads((folder / "record.json").read_text())["instances"]
    if not instances:
        raise SystemExit(f"No instance was completed in {folder}: give more --steps.")
    best = max(range(len(instances)), key=lambda number: instances[number]["MAP@R"])  # on validation classes
    chosen = sorted({0, (best + 1) // 2, best})
    figure, axes = plt.subplots(1, len(chosen), figsize=(5 * len(chosen), 5), squeeze=False)
    for axis, number in zip(axes[0], chosen, strict=True):
        instance = instances[number]
        points = embedded[str(int(instance["best step"]))]
        flat = TSNE(random_state=0, perplexity=min(30, len(points) // 4)).fit_transform(points)
        codes = np.unique(labels, return_inverse=True)[1]
        axis.scatter(*flat.T, c=[COLOURS(int(code)) for code in codes], s=12)
        radius, inter = covering_radius(points, labels, distance="euclidean"), pairs_apart(points, labels)
        found = vc.evaluate(points, labels, distance="euclidean", also=[], intervals=None)
        axis.set_title(f"instance {number + 1} of {len(instances)}, step {int(instance['best step'])}", fontsize=11)
        axis.set_xlabel(
            f"MAP@R {found['MAP@R']:.3f}, covering radius {radius:.3f}, inter-class distance {inter:.3f},\n"
            f"radius / distance {radius / inter:.3f}"
        )
        axis.set(xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--runs", type=Path, default=Path("runs/ccp-picture"))
    parser.add_argument("--only", choices=["iterations", "unseen", "instances"], help="draw this one")
    parser.add_argument("--recipe", default="ccp/cub-trunk", help="of `instances`: the conditions")
    parser.add_argument("--loss", default="c2", help="of `instances`: c1, c2, ms or triplet")
    parser.add_argument("--steps", type=int, help="of `instances`: at most")
    parser.add_argument("-o", "--option", action="append", default=[], help="of `instances`: any setting, name=value")
    given = parser.parse_args()
    if given.only in (None, "iterations"):
        draw_iterations(given.out / "ccp-iterations.png")
    if given.only in (None, "unseen"):
        draw_unseen(given.out / "ccp-unseen.png", given.runs)
    if given.only == "instances":
        changes = {"fold": 0, **parse_pairs(given.option, "--option")}
        changes |= {} if given.steps is None else {"steps": given.steps}
        recipe = Recipe.read(given.recipe, f"ccp/losses/{given.loss}-ccp", **changes)
        draw_instances(given.out / "ccp-instances.png", given.runs / f"instances-{given.loss}", recipe)


if __name__ == "__main__":
    main()
