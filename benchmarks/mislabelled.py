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

    python benchmarks/mislabelled.py --embeddings pets.npz --calibration --seeds 2

measures the probabilities instead of the order, on ordinary folders: subsets of 20 to 60 classes with 10 to 30 items
each, clean or with 2, 5 and 10 % of their labels replaced at random, by the most similar class ("nearest"), or swapped
within the most similar pairs of classes ("pairs"; half of the classes). ECE is the expected calibration error in 15
bins. "could" is the number of wrong labels that the order would list from a probability of 0.5 on if its probabilities
were perfect (isotonic regression on the truth), "listed" and "right" are those that it does list, and "false" is their
share in the right labels. cleanlab lists what its `find_label_issues` finds, on the regressions.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from vicinal.collection import doubt_labels
from vicinal.data import glyphs
from vicinal.neighbours import find_neighbours

SHARES, HOWS = (0.02, 0.05, 0.10), ("random", "similar")
VOTERS, FOLDS, SIMILAR = 10, 5, 3
FOLDERS = ((20, 12), (24, 30), (60, 15))  # classes and items per class of a subset
BINS = 15


def plant(
    rows: NDArray[np.float32], labels: NDArray[np.int64], share: float, how: str, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    given, wrong, classes = labels.copy(), np.zeros(len(labels), bool), labels.max() + 1
    wrong[rng.choice(len(labels), round(share * len(labels)), replace=False)] = True
    if how == "random":
        given[wrong] = (labels[wrong] + rng.integers(1, classes, wrong.sum())) % classes
        return given, wrong
    alike = similarities(rows, labels)
    near = np.argsort(-alike, axis=1)[:, :SIMILAR]
    given[wrong] = near[labels[wrong], rng.integers(0, SIMILAR, wrong.sum())]
    return given, wrong


def similarities(rows: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Similarity of the centres of all classes, -inf of a class with itself."""
    centres = np.stack([rows[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    alike = centres @ centres.T
    np.fill_diagonal(alike, -np.inf)
    return alike


def subset(
    rows: NDArray[np.float32], labels: NDArray[np.int64], classes: int, size: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Some classes, with two to four thirds of a size each; rotated into as few dimensions as possible."""
    chosen = []
    for label in rng.choice(labels.max() + 1, min(classes, labels.max() + 1), replace=False):
        members = np.flatnonzero(labels == label)
        chosen.append(rng.choice(members, min(len(members), rng.integers(2 * size // 3, 4 * size // 3 + 1)), False))
    picked = np.concatenate(chosen)
    left, stretch, _ = np.linalg.svd(rows[picked], full_matrices=False)
    return (left * stretch).astype(np.float32), np.unique(labels[picked], return_inverse=True)[1]


def confuse(
    rows: NDArray[np.float32], labels: NDArray[np.int64], share: float, how: str, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    alike, swapped, wrong = similarities(rows, labels), labels.copy(), np.zeros(len(labels), bool)
    partner = alike.argmax(axis=1)
    pool = np.arange(len(labels))
    if how == "pairs":
        partner = np.full(len(alike), -1)
        for place in np.argsort(-np.triu(alike, 1) - np.tril(np.full(alike.shape, -np.inf)), axis=None):
            one, other = np.unravel_index(place, alike.shape)
            if partner[one] < 0 and partner[other] < 0 and (partner >= 0).sum() < len(alike) // 2:
                partner[one], partner[other] = other, one
        pool = np.flatnonzero(partner[labels] >= 0)
    wrong[rng.choice(pool, min(round(share * len(labels)), len(pool) // 3), replace=False)] = True
    if how == "random":
        swapped[wrong] = (labels[wrong] + rng.integers(1, len(alike), wrong.sum())) % len(alike)
    else:
        swapped[wrong] = partner[labels[wrong]]
    return swapped, wrong


def calibration_error(scores: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float:
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    sums = np.bincount(bins, scores - wrong, minlength=BINS)
    return float(np.abs(sums).sum() / len(scores))


def could_be_listed(ranks: NDArray[np.float64], wrong: NDArray[np.bool_]) -> int:
    if not wrong.any():
        return 0
    ideal = IsotonicRegression().fit_transform(np.argsort(np.argsort(ranks)), wrong.astype(float))
    return int((wrong & (ideal >= 0.5)).sum())


def calibrate(name: str, rows: NDArray[np.float32], labels: NDArray[np.int64], seeds: int, *, referee: bool) -> None:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    print(f"\n{name}: {seeds * len(FOLDERS)} subsets for each line\n")
    print(
        "| wrong labels | share | ECE | could | right | of listed | right / could | false | cleanlab: right of listed |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for how in ("clean", "random", "nearest", "pairs"):
        for share in (0.0,) if how == "clean" else SHARES:
            scores, truths, could, issues = [], [], 0, np.zeros(2, dtype=int)
            for seed in range(seeds):
                for number, (classes, size) in enumerate(FOLDERS):
                    rng = np.random.default_rng([seed, number])
                    some, right = subset(rows, labels, classes, size, rng)
                    given, wrong = confuse(some, right, share, how, rng)
                    doubts = doubt_labels(some, given)
                    scores.append(doubts.scores)
                    truths.append(wrong)
                    could += could_be_listed(doubts.ranks, wrong)
                    if referee:
                        from cleanlab.filter import find_label_issues

                        codes = np.unique(given, return_inverse=True)[1]
                        listed = find_label_issues(codes, by_regression(some, codes), n_jobs=1)
                        issues += [(listed & wrong).sum(), listed.sum()]
            every, wrong = np.concatenate(scores), np.concatenate(truths)
            listed = every >= 0.5
            hits = int((listed & wrong).sum())
            ratio = f"{hits / could:.2f}" if could else ""
            theirs = f"{issues[0]} of {issues[1]}" if referee else ""
            print(
                f"| {how} | {share:.0%} | {calibration_error(every, wrong):.3f} | {could} | {hits} | {listed.sum()} "
                f"| {ratio} | {(listed & ~wrong).sum() / (~wrong).sum():.2%} | {theirs} |",
                flush=True,
            )


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
    parser.add_argument("--calibration", action="store_true", help="measure probabilities instead of the order")
    parser.add_argument("--referee", action="store_true", help="let cleanlab list as well; with --calibration")
    parser.add_argument("--kept", type=Path, help="a folder for the regressions of cleanlab's side")
    arguments = parser.parse_args()
    if arguments.referee or not arguments.calibration:
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
    codes = np.unique(labels, return_inverse=True)[1]
    if arguments.calibration:
        calibrate(name, rows, codes, arguments.seeds, referee=arguments.referee)
    else:
        compare(name, rows, codes, arguments.seeds, arguments.kept)


if __name__ == "__main__":
    main()
