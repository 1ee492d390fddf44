"""Chance-constrained proxies where they were made for: a pretrained network's last stages, until nothing is gained.

    VICINAL_DATA=../shared/data python examples/ccp_trunk.py --losses c2,ms --folds 4 --out runs/ccp-trunk

Each loss with and without CCP by the recipe ccp/cub-trunk. A run is a folder that is resumed: started again, the script
does what is missing and prints what there is, fold by fold: how far validation and test got, whether the assumptions of
CCP were met (instances completed, lambda x distance moved, proxies that stay apart), and the geometry of the test
classes (covering radius; mean distance of two items of different classes, over all pairs). Then CCP less each loss
alone, with intervals: over test classes and folds for the scores and the radius, over test classes for joined models,
over folds for the steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vicinal as vc
from vicinal.cli.options import parse_pairs
from vicinal.evaluation import covering_radius
from vicinal.runs import Run
from vicinal.runs.joined import join_vectors
from vicinal.runs.recipe import Recipe
from vicinal.stats import AlignedPair, compare_aligned, seed_interval

HEAD = (
    "| loss | variant | fold | steps | best step | validation MAP@R | test MAP@R | P@1 | covering radius | inter-class "
    "| radius / inter | instances | lambda x distance moved | proxy spread, first and last |"
)
DIFFERENCES = (
    "| CCP less the loss alone | folds | MAP@R | folds won | joined: alone, CCP | difference | covering radius "
    "| radius / inter | steps to the best model |"
)
ROWS = 1000


@dataclass(frozen=True)
class Tried:
    """A finished run and what is compared of it.

    Args:
        run: The run.
        scores: MAP@R of every test item.
        radii: The covering radius of the class of every test item.
        inter: The mean distance of two test items of different classes.
    """

    run: Run
    scores: np.ndarray
    radii: np.ndarray
    inter: float

    @classmethod
    def open(cls, folder: Path) -> Tried:
        """Read the run of a folder and measure its test items."""
        run = Run.open(folder)
        items, distance = run.test_items(), run.record.distance
        classes, codes = np.unique(items.labels, return_inverse=True)
        members = [codes == code for code in range(len(classes))]
        radii = [covering_radius(items.embeddings[mine], items.labels[mine], distance=distance) for mine in members]
        inter = pairs_apart(items.embeddings, items.labels)
        return cls(run, scores_of(items.embeddings, items.labels, distance), np.array(radii)[codes], inter)

    @property
    def radius(self) -> float:
        """The covering radius, averaged over classes."""
        labels = self.run.test_items().labels
        return float(self.radii[np.unique(labels, return_index=True)[1]].mean())


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


def scores_of(embeddings: Any, labels: np.ndarray, distance: str) -> np.ndarray:
    """Return MAP@R of every item."""
    scores = vc.evaluate(embeddings, labels, distance=distance, also=[], intervals=None)
    return np.asarray(scores.per_query["MAP@R"])


def line(loss: str, variant: str, tried: Tried) -> str:
    """Return a row of the table of runs."""
    record = tried.run.record
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
        f"{tried.radius:.4f}",
        f"{tried.inter:.4f}",
        f"{tried.radius / tried.inter:.3f}",
        f"{len(instances)}, best in {best_instance(tried.run)}" if variant == "CCP" else "",
        f"{np.mean(pulls):.2g}" if pulls else "",
        f"{spreads[0]:.3f}, {spreads[-1]:.3f}" if spreads else "",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def best_instance(run: Run) -> int:
    """Return in which instance the best step is; in the first, the proxies have not been moved yet."""
    return 1 + sum(float(instance["last step"] or 0) < run.record.best_step for instance in run.record.instances)


def differences(found: dict[tuple[str, str, int], Tried]) -> Iterator[str]:
    """Return a row on each loss and on all: CCP less the loss alone, paired, over the folds that have both."""
    pairs: dict[str, list[tuple[Tried, Tried]]] = {}
    for (loss, variant, fold), tried in found.items():
        if variant == "CCP" and (loss, "alone", fold) in found:
            pairs.setdefault(loss, []).append((tried, found[loss, "alone", fold]))
    if len(pairs) > 1:
        pairs["all"] = [pair for both in list(pairs.values()) for pair in both]
    for loss, both in pairs.items():
        won = sum(ccp.run.record.test["MAP@R"] > alone.run.record.test["MAP@R"] for ccp, alone in both)
        cells = [
            loss,
            len(both),
            apart(both, lambda tried: tried.scores),
            f"{won} of {len(both)}",
            *(("", "") if loss == "all" or len(both) < 2 else joined(both)),
            apart(both, lambda tried: tried.radii),
            apart(both, lambda tried: tried.radii / tried.inter),
            steps_apart(both),
        ]
        yield f"| {' | '.join(map(str, cells))} |"


def apart(both: Sequence[tuple[Tried, Tried]], measure: Callable[[Tried], np.ndarray]) -> str:
    """Return the difference of a measure of every test item, over folds."""
    ccp, alone = ([measure(tried) for tried in side] for side in zip(*both, strict=True))
    return told(ccp, alone, both[0][0].run.test_items().labels)


def told(first: Sequence[np.ndarray], second: Sequence[np.ndarray], labels: np.ndarray) -> str:
    """Return the mean difference of scores and its interval.

    The interval is over test classes, and over folds too where there are several: one fold says whether two models
    differ, several say whether two methods do.

    Args:
        first: One score per test item, fold by fold.
        second: The same of what it is compared with.
        labels: The classes of the items.
    """
    codes = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(codes)
    sides = (np.array([np.bincount(codes, weights=fold) / counts for fold in side]) for side in (first, second))
    (gap,) = compare_aligned([AlignedPair("first", "second", *sides, counts)])
    return f"{gap.difference:+.4f} ({gap.interval.low:+.4f} to {gap.interval.high:+.4f})"


def joined(both: Sequence[tuple[Tried, Tried]]) -> list[str]:
    """Return MAP@R of the folds joined to one model, without and with CCP, and the difference."""
    record, labels = both[0][0].run.record, both[0][0].run.test_items().labels
    sides = ([tried.run.test_items() for tried in side] for side in zip(*both, strict=True))
    ccp, alone = (scores_of(join_vectors(record, side), labels, record.distance) for side in sides)
    return [f"{np.mean(alone):.4f}, {np.mean(ccp):.4f}", told([ccp], [alone], labels)]


def steps_apart(both: Sequence[tuple[Tried, Tried]]) -> str:
    """Return by how many steps CCP reached its best model later, with an interval over folds."""
    gaps = [float(ccp.run.record.best_step - alone.run.record.best_step) for ccp, alone in both]
    interval = "" if len(gaps) < 2 else " ({:+.0f} to {:+.0f})".format(*seed_interval(gaps))
    return f"{np.mean(gaps):+.0f}{interval}"


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
    found: dict[tuple[str, str, int], Tried] = {}
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
                found[loss, variant, fold] = Tried.open(folder)
                print(line(loss, variant, found[loss, variant, fold]), flush=True)
    print(f"\n{DIFFERENCES}\n" + "|---" * (DIFFERENCES.count("|") - 1) + "|")
    for row in differences(found):
        print(row)


if __name__ == "__main__":
    main()
