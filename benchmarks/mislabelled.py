"""Wrong labels that were planted, found by `doubt_labels` and by cleanlab on the same embeddings, in one run.

    python benchmarks/mislabelled.py --embeddings cub.npz --classes 100: --seeds 3
    python benchmarks/mislabelled.py --embeddings omniglot.npz --classes 964: --seeds 1
    python benchmarks/mislabelled.py                                       # glyphs: pixels of drawn characters

A file has the arrays embeddings and labels, as `vicinal embed` writes it. Labels are made wrong at random, or into one
of the three classes whose centres are nearest. cleanlab (2.9) ranks by what it calls self confidence and normalised
margin, on probabilities from outside of it: those of the k = 10 nearest neighbours, each item left out, and of
logistic regressions (scikit-learn, C = 10, on vectors of length 1) that were trained on the other four fifths; and
its `find_label_issues` puts what it finds first. The best of its six figures is shown, with the way that had it, and
the least and the most that vicinal is ahead of it in one seed; CPU seconds are of vicinal and of the regressions. With
--kept, regressions and their CPU seconds are read from a folder if it has them.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from vicinal.collection import doubt_labels
from vicinal.data import glyphs
from vicinal.neighbours import find_neighbours

SHARES, HOWS = (0.02, 0.05, 0.10), ("random", "similar")
VOTERS, FOLDS, SIMILAR = 10, 5, 3


def plant(
    rows: NDArray[np.float32], labels: NDArray[np.int64], share: float, how: str, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    given, wrong, classes = labels.copy(), np.zeros(len(labels), bool), labels.max() + 1
    wrong[rng.choice(len(labels), round(share * len(labels)), replace=False)] = True
    if how == "random":
        given[wrong] = (labels[wrong] + rng.integers(1, classes, wrong.sum())) % classes
        return given, wrong
    centres = np.stack([rows[labels == label].mean(axis=0) for label in range(classes)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    alike = centres @ centres.T
    np.fill_diagonal(alike, -np.inf)
    near = np.argsort(-alike, axis=1)[:, :SIMILAR]
    given[wrong] = near[labels[wrong], rng.integers(0, SIMILAR, wrong.sum())]
    return given, wrong


def by_neighbours(rows: NDArray[np.float32], given: NDArray[np.int64]) -> NDArray[np.float64]:
    near = find_neighbours(rows, VOTERS).indices.numpy()
    votes = np.zeros((len(rows), given.max() + 1))
    np.add.at(votes, (np.arange(len(rows))[:, None], given[near]), 1 / VOTERS)
    return votes


def by_regression(rows: NDArray[np.float32], given: NDArray[np.int64]) -> NDArray[np.float64]:
    likely = np.zeros((len(rows), given.max() + 1))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for train, rest in folds.split(rows, given):
        model = LogisticRegression(C=10, max_iter=200).fit(rows[train], given[train])
        likely[np.ix_(rest, model.classes_)] = model.predict_proba(rows[rest])
    return likely


def kept_regression(
    rows: NDArray[np.float32], given: NDArray[np.int64], file: Path | None
) -> tuple[NDArray[np.float64], float]:
    """Return what the regressions say, and the CPU seconds that they took."""
    if file is not None and file.exists():
        stored = np.load(file)
        if not np.array_equal(stored["given"], given):
            raise SystemExit(f"{file} is of other labels; name another folder for --kept.")
        return stored["likely"].astype(np.float64), float(stored["seconds"])
    start = time.process_time()
    likely = by_regression(rows, given)
    seconds = time.process_time() - start
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, given=given, likely=likely, seconds=seconds)
    return likely, seconds


def figures(wrong: NDArray[np.bool_], scores: NDArray[np.float64]) -> tuple[float, float]:
    first = np.argsort(-scores, kind="stable")[: wrong.sum()]
    return float(wrong[first].mean()), float(roc_auc_score(wrong, scores))


def of_cleanlab(given: NDArray[np.int64], likely: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    from cleanlab.filter import find_label_issues  # pip install cleanlab: the tests do without
    from cleanlab.rank import get_label_quality_scores

    found = {}
    for method in ("self_confidence", "normalized_margin"):
        found[method] = -get_label_quality_scores(given, likely, method=method)
    issues = find_label_issues(given, likely, n_jobs=1)
    found["find_label_issues"] = found["self_confidence"] + 10.0 * issues
    return found


def compare(
    name: str, rows: NDArray[np.float32], labels: NDArray[np.int64], seeds: int, kept: Path | None = None
) -> None:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    print(f"\n{name}: {len(rows):,} items of {labels.max() + 1:,} classes, {rows.shape[1]}-D; means of {seeds} seeds\n")
    print("| wrong labels | share | vicinal: P, AUROC | cleanlab's best: P, AUROC | ahead in P | CPU s |")
    print("|---|---|---|---|---|---|", flush=True)
    for how in HOWS:
        for share in SHARES:
            cells: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
            spent = np.zeros(2)
            for seed in range(seeds):
                given, wrong = plant(rows, labels, share, how, seed)
                start = time.process_time()
                cells["vicinal"].append(figures(wrong, doubt_labels(rows, given).ranks))
                mine = time.process_time() - start
                file = kept and kept / f"{name}-{how}-{share:.0%}-{seed}.npz"
                regressed, theirs = kept_regression(rows, given, file)
                spent += [mine, theirs]
                for way, likely in {"neighbours": by_neighbours(rows, given), "regression": regressed}.items():
                    for method, scores in of_cleanlab(given, likely).items():
                        cells[f"{way}, {method}"].append(figures(wrong, scores))
            print(
                f"| {how} | {share:.0%} | {' | '.join(told(cells))} | {spent[0] / seeds:.0f}, {spent[1] / seeds:.0f} |"
            )


def told(cells: dict[str, list[tuple[float, float]]]) -> list[str]:
    """The words of a line: the figures of both sides, and how far vicinal is ahead in P, with its least and most."""
    means = {way: np.mean(values, axis=0) for way, values in cells.items()}
    peers = [way for way in cells if way != "vicinal"]
    best = [max(peers, key=lambda way, place=place: means[way][place]) for place in (0, 1)]
    mine, theirs = [], []
    for place, way in enumerate(best):
        bold = "**" * bool(means["vicinal"][place] >= means[way][place])
        mine.append(f"{bold}{means['vicinal'][place]:.4f}{bold}")
        theirs.append(f"{means[way][place]:.4f} ({way})")
    ahead = np.array(cells["vicinal"])[:, 0] - np.array(cells[best[0]])[:, 0]
    spread = f"{ahead.mean():+.3f} ({ahead.min():+.3f} to {ahead.max():+.3f})"
    return [", ".join(mine), ", ".join(theirs), spread]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, help="an .npz file; glyphs' pixels without it")
    parser.add_argument("--classes", default=":", help="first:last of the labels, to take a part")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kept", type=Path, help="a folder for the regressions of cleanlab's side")
    arguments = parser.parse_args()
    print(f"cleanlab {version('cleanlab')}, scikit-learn {version('scikit-learn')}")
    if arguments.embeddings is None:
        drawn = glyphs().with_role("test")
        small = drawn.items.reshape(len(drawn), 16, 2, 16, 2).mean(axis=(2, 4))
        rows, labels, name = small.reshape(len(drawn), -1).astype(np.float32), drawn.labels, "glyphs, 16 x 16 pixels"
    else:
        file = np.load(arguments.embeddings)
        rows, labels, name = file["embeddings"], file["labels"], arguments.embeddings.stem
        first, last = (int(end) if end else None for end in arguments.classes.split(":"))
        kept = (labels >= (first or 0)) & (labels < (labels.max() + 1 if last is None else last))
        rows, labels = rows[kept], labels[kept]
    compare(name, rows, np.unique(labels, return_inverse=True)[1], arguments.seeds, arguments.kept)


if __name__ == "__main__":
    main()
