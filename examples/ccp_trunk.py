"""Chance-constrained proxies where they were made for: a pretrained network's last stages, until nothing is gained.

    VICINAL_DATA=../shared/data python examples/ccp_trunk.py --losses c2,ms --folds 4 --out runs/ccp-trunk

Each loss with and without CCP by the recipe ccp/cub-trunk. A run is a folder that is resumed: started again, the script
does what is missing and prints what there is, fold by fold: how far validation and test got, whether the assumptions of
CCP were met (instances completed, lambda x distance moved, proxies that stay apart), and the geometry of the test
classes (covering radius; mean distance of two items of different classes, over all pairs).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vicinal as vc
from vicinal.cli.values import parse_pairs
from vicinal.evaluation import covering_radius
from vicinal.recipe import Recipe
from vicinal.results import Run
from vicinal.statistics import paired_difference

HEAD = (
    "| loss | variant | fold | steps | best step | validation MAP@R | test MAP@R | P@1 | covering radius | inter-class "
    "| radius / inter | instances | lambda x distance moved | proxy spread, first and last |"
)
ROWS = 1000


def recipe_of(loss: str, fold: int, changes: dict[str, Any]) -> Recipe:
    """Return the recipe of a run; `loss` is the name of a file in ccp/losses."""
    changes = dict(changes)
    base = Recipe.read(str(changes.pop("recipe")), f"ccp/losses/{loss}")
    alternated = {name: value for name, value in changes.items() if not name.startswith("ccp.") or base.ccp is not None}
    return base.changed({**alternated, "fold": fold, "seed": fold})


def pairs_apart(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean distance of two items of different classes, over all pairs of items.

    Example:
        >>> pairs_apart(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]))
        4.0
    """
    points, codes = torch.from_numpy(embeddings).double(), torch.from_numpy(np.asarray(labels))
    total, count = 0.0, 0
    for start in range(0, len(points), ROWS):
        here = slice(start, start + ROWS)
        other = codes[here][:, None] != codes[None]
        total += float(torch.cdist(points[here], points)[other].sum())
        count += int(other.sum())
    return total / count


def line(loss: str, variant: str, run: Run) -> str:
    """Return a row of the table."""
    record, items = run.record, run.test_items()
    radius = covering_radius(items.embeddings, items.labels, distance=record.distance)
    inter = pairs_apart(items.embeddings, items.labels)
    instances = record.instances
    pulls = [instance["proximal pull"] for instance in instances if instance.get("proximal pull") is not None]
    spreads = [instance["proxy spread"] for instance in instances if instance.get("proxy spread") is not None]
    cells = [
        loss,
        variant,
        record.recipe["fold"],
        record.steps,
        record.best_step,
        f"{record.validation.get('MAP@R', float('nan')):.4f}",
        f"{record.test['MAP@R']:.4f}",
        f"{record.test['P@1']:.4f}",
        f"{radius:.4f}",
        f"{inter:.4f}",
        f"{radius / inter:.3f}",
        len(instances) if variant == "CCP" else "",
        f"{np.mean(pulls):.2g}" if pulls else "",
        f"{spreads[0]:.3f}, {spreads[-1]:.3f}" if spreads else "",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def differences(found: dict[tuple[str, str, int], Run]) -> Iterator[str]:
    """Return a sentence on each loss: CCP less the loss alone, paired over test classes, folds that have both."""
    for loss in dict.fromkeys(name for name, _, _ in found):
        folds = [fold for name, variant, fold in found if name == loss and variant == "CCP"]
        both = [fold for fold in folds if (loss, "alone", fold) in found]
        if not both:
            continue
        sides = [
            np.mean([scores_of(found[loss, variant, fold]) for fold in both], axis=0) for variant in ("CCP", "alone")
        ]
        gap = paired_difference(*sides, found[loss, "CCP", both[0]].test_items().labels)
        won = sum(
            found[loss, "CCP", f].record.test["MAP@R"] > found[loss, "alone", f].record.test["MAP@R"] for f in both
        )
        low, high = gap.interval
        yield f"{loss}: CCP {gap.mean:+.4f} ({low:+.4f} to {high:+.4f}) in MAP@R, {won} of {len(both)} folds won"


def scores_of(run: Run) -> np.ndarray:
    """Return MAP@R of every test item."""
    items = run.test_items()
    scores = vc.evaluate(items.embeddings, items.labels, distance=run.record.distance, full_ranking=False, draws=0)
    return np.asarray(scores.per_query["MAP@R"])


def some_of(*names: str) -> Callable[[str], list[str]]:
    """Return what reads a list with commas of these names alone."""

    def read(text: str) -> list[str]:
        given = text.split(",")
        unknown = [name for name in given if name not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(names)}")
        return given

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/ccp-trunk"))
    parser.add_argument("--recipe", default="ccp/cub-trunk", help="the conditions, by name or as a file")
    losses = ("c2", "ms", "c1", "triplet")
    parser.add_argument("--losses", type=some_of(*losses), default=",".join(losses), help=f"of {', '.join(losses)}")
    parser.add_argument("--folds", type=int, default=4, help="do only so many of them now")
    parser.add_argument("--train-stages", type=int, help="how many of the network's last stages are trained")
    parser.add_argument("--steps", type=int, help="at most")
    parser.add_argument("-o", "--option", action="append", default=[], help="any other setting: name=value")
    parser.add_argument("--tables", action="store_true", help="print what there is, run nothing")
    given = parser.parse_args()
    flags = {"train_stages": given.train_stages, "steps": given.steps}
    changes: dict[str, Any] = {"recipe": given.recipe, **parse_pairs(given.option, "--option")}
    changes |= {name: value for name, value in flags.items() if value is not None}
    found: dict[tuple[str, str, int], Run] = {}
    print(HEAD)
    print("|---" * (HEAD.count("|") - 1) + "|")
    for fold in range(given.folds):
        for loss in given.losses:
            for variant, name in (("alone", loss), ("CCP", f"{loss}-ccp")):
                folder = given.out / f"{name}-{fold}"
                if not (folder / "record.json").exists():
                    if given.tables:
                        continue
                    print(f"{name}, fold {fold}", file=sys.stderr)
                    vc.train(recipe_of(name, fold, changes), folder=folder, resume=True, progress=False)
                found[loss, variant, fold] = Run.open(folder)
                print(line(loss, variant, found[loss, variant, fold]), flush=True)
    print("\n" + "\n".join(differences(found)))


if __name__ == "__main__":
    main()
