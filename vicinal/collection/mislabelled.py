"""Mislabelled items: those whose neighbours and class disagree with their label, with the label that would agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from vicinal.errors import InputError
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.inputs import ArrayLike, Labels, as_codes, as_embeddings

__all__ = [
    "LabelDoubts",
    "Suspect",
    "doubt_labels",
    "find_mislabelled",
    "fit_class_models",
    "left_out_fits",
    "left_out_log_likelihoods",
]


# Leave-one-out fit of an item to each class: Gaussian classes with a shared covariance, in closed form.


@dataclass(frozen=True)
class ClassModels:
    """Classes as Gaussians that differ only in their means.

    Attributes:
        rows: Items along the principal axes of the within-class covariance.
        means: Means of the classes along the same axes.
        variances: Within-class variances along each axis.
        weights: Weight of each item.
        sums: Sum of the weights in each class.
    """

    rows: Float64[np.ndarray, "n d"]
    means: Float64[np.ndarray, "c d"]
    variances: Float64[np.ndarray, " d"]
    weights: Float64[np.ndarray, " n"]
    sums: Float64[np.ndarray, " c"]


def fit_class_models(
    items: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> ClassModels:
    """Estimate the means of all classes and their shared covariance.

    Args:
        items: One row per item.
        codes: Class of each item, numbered from 0.
        weights: Weight of each item; small for a label that is probably wrong.
    """
    classes = int(codes.max()) + 1
    sums = np.bincount(codes, weights, minlength=classes)
    means = np.zeros((classes, items.shape[1]))
    np.add.at(means, codes, items * weights[:, None])
    means /= np.maximum(sums, 1e-12)[:, None]
    apart = (items - means[codes]) * np.sqrt(weights)[:, None]
    variances, axes = np.linalg.eigh(apart.T @ apart / weights.sum())
    return ClassModels(items @ axes, means @ axes, np.maximum(variances, 0.0), weights, sums)


def left_out_fits(
    models: ClassModels, codes: Int64[np.ndarray, " n"], shrinkage: float, rows: Int64[np.ndarray, " m"]
) -> Float64[np.ndarray, "m c"]:
    """Return the log density of some items under each class, with each item left out of the estimates.

    Leaving out one item moves the mean of its class and subtracts a matrix of rank one from the shared covariance, so
    nothing has to be estimated again (Sherman and Morrison, 1950). The mean of a few items deviates from the true mean
    by chance: the expected contribution of this to the distance is subtracted.

    Formula:
        D(i, c) = (x_i - m_c)' S_i^-1 (x_i - m_c) - tr(S^-1 W) / n_c,    fit = -D / 2,
        S = (1 - shrinkage) W + shrinkage tr(W) / d I,    m_c, n_c and S_i without item i

    Args:
        models: Models of all classes.
        codes: Class of each item.
        shrinkage: Shrinkage of the shared covariance towards a multiple of the identity, between 0 and 1.
        rows: Indices of the requested items.
    """
    shrunk = (1.0 - shrinkage) * models.variances
    scale = 1.0 / np.sqrt(shrunk + shrinkage * models.variances.mean() + 1e-12)
    items, means, own = models.rows[rows] * scale, models.means * scale, codes[rows]
    weights, total = models.weights[rows], models.weights.sum()
    rest = np.maximum(models.sums[own] - weights, 1e-12)
    apart = items - means[own]
    reach = np.square(apart).sum(axis=1)
    taken = (1.0 - shrinkage) / total * weights * models.sums[own] / rest
    less = taken / np.maximum(1.0 - taken * reach, 1e-9)
    squares = np.square(items).sum(axis=1)[:, None] - 2 * items @ means.T + np.square(means).sum(axis=1)
    along = (apart * items).sum(axis=1)[:, None] - apart @ means.T
    squares += less[:, None] * np.square(along)
    by_chance = float((models.variances * np.square(scale)).sum())
    squares -= by_chance / np.maximum(models.sums, 1e-12)
    here = np.arange(len(rows))
    grown = models.sums[own] / rest
    squares[here, own] = np.square(grown) * reach * (1.0 + less * reach) - by_chance / rest
    return -0.5 * squares


# Cross-validated class probabilities of each item: multinomial regressions on the other items.

FOLDS = 5
STRENGTH = 3.0  # weight of an item against the prior of small coefficients, for rows with a typical length of 1
ITERATIONS = 10  # enough with preconditioned axes; ranking items does not need the last digits


def left_out_log_likelihoods(
    rows: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> Float32[np.ndarray, "n c"]:
    """Return the log probability of each class, by a regression on the four folds that do not contain the item.

    The items of a class are assigned to the folds in turn, so that each fold has its share of every class.

    Args:
        rows: One centred row per item.
        codes: Class of each item, numbered from 0.
        weights: Weight of each item; small for a label that is probably wrong.
    """
    classes = int(codes.max()) + 1
    fold = np.empty(len(codes), dtype=np.int64)
    fold[np.argsort(codes, kind="stable")] = np.arange(len(codes)) % FOLDS
    scale = float(np.sqrt(np.square(rows).sum(axis=1).mean())) or 1.0
    squares, axes = np.linalg.eigh(rows.T @ rows / scale**2)
    # Along an axis the curvature of a class's loss is p (1 - p), about 1 / (2 classes), times the sum of squares, and
    # that of the prior is 1 / STRENGTH. With axes scaled to the same total curvature, few steps are needed.
    widths = 1.0 / np.sqrt(0.5 / classes * np.maximum(squares, 0.0) + 1.0 / STRENGTH)
    turned = (rows @ axes * (widths / scale)).astype(np.float32)
    prior = (np.square(widths) / STRENGTH).astype(np.float32)[:, None]
    likely = np.empty((len(codes), classes), dtype=np.float32)
    for number in range(FOLDS):
        rest, left_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        coefficients = _fit_regression(turned[rest], codes[rest], weights[rest].astype(np.float32), prior, classes)
        likely[left_out] = _log_softmax(turned[left_out] @ coefficients[:-1] + coefficients[-1])
    return likely


def _fit_regression(
    rows: Float32[np.ndarray, "n d"],
    codes: Int64[np.ndarray, " n"],
    weights: Float32[np.ndarray, " n"],
    prior: Float32[np.ndarray, "d 1"],
    classes: int,
) -> Float32[np.ndarray, "d1 c"]:
    """Return the coefficients of each class, with the intercepts in the last row."""
    here, shape = np.arange(len(rows)), (rows.shape[1] + 1, classes)

    def loss(values: Float64[np.ndarray, " v"]) -> tuple[float, Float64[np.ndarray, " v"]]:
        coefficients = values.reshape(shape).astype(np.float32)
        likely = _log_softmax(rows @ coefficients[:-1] + coefficients[-1])
        total = -float(np.dot(weights, likely[here, codes]))
        np.exp(likely, out=likely)
        likely[here, codes] -= 1.0
        likely *= weights[:, None]
        slope = np.concatenate([rows.T @ likely, likely.sum(axis=0, keepdims=True)])
        pull = prior * coefficients[:-1]
        slope[:-1] += pull
        return total + 0.5 * float((pull * coefficients[:-1]).sum()), slope.ravel().astype(np.float64)

    start = np.zeros(shape)
    start[-1] = np.log(np.bincount(codes, weights, minlength=classes) + 1e-3)
    solution = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return solution.x.reshape(shape).astype(np.float32)


def _log_softmax(scores: Float32[np.ndarray, "n c"]) -> Float32[np.ndarray, "n c"]:
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


# The probability that a label is wrong, from neighbours, class models and regressions.

NEIGHBOURS = 50
ROUNDS = 2  # rounds of reweighting labels by their probability of being right; a third changes nothing
WIDTHS = (0.1, 0.3)  # widths of the voting kernels, in units of the distance between the first and last neighbour
VOTES, MODEL, REGRESSION = [0, 1], 2, 4  # positions of the kinds of evidence; the last is optional
SHRINKAGES = (0.02, 0.1, 0.3, 0.7)
FITTED_ON = 4096  # largest number of items that settings are fitted on
RIVALS = 12  # other classes that an item is compared with: this many by votes, and as many by class models
STEPS = 50  # expectation-maximisation steps for the weights of opinions
DRAWN = 8  # random classes that represent all classes that are not rivals
UNSEEN = 0.05  # votes of a class that no neighbour has
SHARE = (2.0, 40.0)  # Beta prior of the share of wrong labels: a few per cent, unless the data says otherwise
AFFORDABLE = 2e10  # items x dimensions x classes up to which regressions take a minute or two
BLOCK = 1 << 22  # numbers in a block of fits to classes


@final
@dataclass(frozen=True)
class Suspect:
    """Item whose label is probably wrong.

    Attributes:
        place: Index of the item.
        label: Current label.
        proposed: Label that would agree with its neighbours.
        score: Probability, between 0 and 1, that the label is wrong.
        own: Indices of its nearest neighbours with its own label, nearest first.
        other: Indices of its nearest neighbours with the proposed label.
    """

    place: int
    label: Any
    proposed: Any
    score: float
    own: tuple[int, ...]
    other: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "place": self.place,
            "label": str(self.label),
            "proposed": str(self.proposed),
            "score": self.score,
            "own": list(self.own),
            "other": list(self.other),
        }


@final
@dataclass(frozen=True)
class LabelDoubts:
    """Probability that each label of a collection is wrong.

    Attributes:
        classes: Labels that occur.
        codes: Index of each item's label in the classes.
        scores: Probability that an item's label is wrong and the proposed one right, given that one of them is right;
            0 for the only item of a class, for which there is no evidence.
        ranks: Log odds to sort by, which distinguish items whose probabilities round to the same value.
        proposed: Index of the most likely other label of each item in the classes.
        share: Estimated share of wrong labels.
    """

    classes: tuple[Any, ...]
    codes: Int64[np.ndarray, " n"]
    scores: Float64[np.ndarray, " n"]
    ranks: Float64[np.ndarray, " n"]
    proposed: Int64[np.ndarray, " n"]
    share: float


def find_mislabelled(
    embeddings: ArrayLike,
    labels: Labels,
    *,
    k: int = NEIGHBOURS,
    distance: str = "cosine",
    least: float = 0.5,
    shown: int = 5,
) -> list[Suspect]:
    """List the items whose label is probably wrong, the most suspicious first.

    Args:
        embeddings: One row per item.
        labels: Label of each item.
        k: Number of neighbours that vote.
        distance: "cosine" or "euclidean".
        least: Smallest probability of being wrong that is listed.
        shown: Number of neighbours of either label that are returned as a reason.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> digits = load_digits()
        >>> labels = digits.target.copy()
        >>> labels[7] = 3
        >>> suspect = find_mislabelled(digits.data, labels, distance="euclidean")[0]
        >>> suspect.place, suspect.label, suspect.proposed
        (7, 3, 7)
    """
    items = as_embeddings(embeddings)
    doubts = doubt_labels(items, labels, k=k, distance=distance)
    suspects = np.flatnonzero((doubts.scores >= least) & (doubts.scores > 0))
    suspects = suspects[np.argsort(-doubts.ranks[suspects], kind="stable")]
    result = []
    for index in suspects.tolist():
        own, other = int(doubts.codes[index]), int(doubts.proposed[index])
        result.append(
            Suspect(
                index,
                doubts.classes[own],
                doubts.classes[other],
                float(doubts.scores[index]),
                _nearest_of(items, doubts.codes, index, own, shown, distance),
                _nearest_of(items, doubts.codes, index, other, shown, distance),
            )
        )
    return result


def doubt_labels(
    embeddings: ArrayLike, labels: Labels, *, k: int = NEIGHBOURS, distance: str = "cosine"
) -> LabelDoubts:
    """Estimate for every item the probability that its label is wrong.

    There are three kinds of evidence about an item, each computed without the item itself: its neighbours, which vote
    for their labels with a weight that decreases with distance; the classes as Gaussians with a shared covariance; and,
    if items x dimensions x classes is at most 2e10, regressions on the other items. The weight of each, and the share
    of wrong labels, are fitted to the labels, which may themselves be wrong:
    p(label) = (1 - share) p(class) + share / (classes - 1) (1 - p(class)). Labels that are probably wrong count less in
    the next round. The result is a mean of the probabilities from each kind of evidence alone and from all together,
    weighted by how well each explains the labels.

    The label is compared with the single most likely other class, not with all others together: an item that could
    belong to any of ten classes is hard, but hard items are not mislabelled ones.

    Formula:
        p(wrong) : p(right) = share / (classes - 1) max_i p(i) : (1 - share) p(label)

    Args:
        embeddings: One row per item.
        labels: Label of each item.
        k: Number of neighbours that vote.
        distance: "cosine" or "euclidean".
    """
    items = as_embeddings(embeddings)
    classes, (tensor,) = as_codes(labels, sizes=[len(items)])
    codes = tensor.numpy()
    if len(classes) < 2:
        raise InputError(f"At least 2 different labels are needed; all {len(items)} items have one label.")
    judged = np.bincount(codes)[codes] > 1
    if not judged.any():
        raise InputError(f"At least one label needs 2 items; each of the {len(items)} items has a label of its own.")
    rows = items.double().numpy()
    if distance == "cosine":
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    rows = rows - rows.mean(axis=0)
    near = find_neighbours(items, min(k, len(items) - 1), distance=distance)
    neighbours = near.indices.numpy()
    farness = near.values.numpy() * (-1.0 if distance == "cosine" else 1.0)
    farness = farness - farness[:, :1]
    unit = float(np.median(farness[:, -1])) or 1.0
    believed = np.ones(len(items))
    weights = np.array([0.5] * len(WIDTHS) + [0.1, 0.5])
    for _ in range(ROUNDS):
        rivals, evidence = _evidence(rows, codes, len(classes), neighbours, farness / unit, believed, judged)
        weights, share = _fit(evidence[judged], weights, len(classes))
        odds, proposed = _log_odds(rivals, evidence @ weights, share, len(classes))
        believed = np.where(judged, expit(-odds), 1.0)
    if rows.size * len(classes) <= AFFORDABLE:
        regressed = np.take_along_axis(left_out_log_likelihoods(rows, codes, believed), rivals, axis=1)
        evidence = np.concatenate([evidence, regressed[:, :, None]], axis=2)
    pooled, share = _pooled(evidence, judged, len(classes))
    odds, proposed = _log_odds(rivals, pooled, share, len(classes))
    odds[~judged] = -np.inf
    return LabelDoubts(tuple(classes), codes, expit(odds), odds, proposed, share)


def _evidence(
    rows: Float64[np.ndarray, "n d"],
    codes: Int64[np.ndarray, " n"],
    classes: int,
    neighbours: Int64[np.ndarray, "n k"],
    farness: Float64[np.ndarray, "n k"],
    believed: Float64[np.ndarray, " n"],
    judged: Bool[np.ndarray, " n"],
) -> tuple[Int64[np.ndarray, "n r"], Float64[np.ndarray, "n r e"]]:
    """Return the candidate classes of each item, its own first, and the evidence for each.

    The last few are drawn from the classes that are not rivals, if there are any, and represent all of them.
    """
    votes = [np.exp(-farness / width) * believed[neighbours] for width in WIDTHS]
    models = fit_class_models(rows, codes, believed)
    chosen = np.flatnonzero(judged)
    chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, FITTED_ON).round().astype(int))]
    shrinkage = min(SHRINKAGES, key=lambda value: _surprise(left_out_fits(models, codes, value, chosen), codes[chosen]))
    by_votes = min(RIVALS, classes - 1)
    more = min(RIVALS, classes - 1 - by_votes)
    drawn = min(DRAWN, classes - 1 - by_votes - more)
    rivals = np.empty((len(rows), 1 + by_votes + more + drawn), dtype=np.int64)
    evidence = np.empty((*rivals.shape, len(WIDTHS) + 2))
    sizes = np.log(np.maximum(models.sums, 1e-12))
    rng = np.random.default_rng(0)
    for block in np.array_split(np.arange(len(rows)), -(-len(rows) * classes // BLOCK)):
        here, own = np.arange(len(block))[:, None], codes[block][:, None]
        fits = left_out_fits(models, codes, shrinkage, block)
        tallies = []
        for vote in votes:
            tally = np.full((len(block), classes), UNSEEN / classes)
            np.add.at(tally, (here, codes[neighbours[block]]), vote[block])
            tallies.append(np.log(tally))
        names = np.concatenate([own, _largest(tallies[-1], by_votes, but=own)], axis=1)
        names = np.concatenate([names, _largest(fits, more, but=names)], axis=1)
        names = np.concatenate([names, _largest(rng.random(fits.shape), drawn, but=names)], axis=1)
        fitting = fits[here, names]
        parts = [*(tally[here, names] for tally in tallies), fitting - fitting.max(axis=1, keepdims=True), sizes[names]]
        rivals[block], evidence[block] = names, np.stack(parts, axis=2)
    return rivals, evidence


def _pooled(
    evidence: Float64[np.ndarray, "n r e"], judged: Bool[np.ndarray, " n"], classes: int
) -> tuple[Float64[np.ndarray, "n r"], float]:
    """Return the log probability of each rival in the mean of several opinions, and the share of wrong labels.

    Each kind of evidence is an opinion, and all kinds together are one more. A product of opinions is dominated by the
    most extreme one, often the class models; in the mean, a label is doubted only if no opinion supports it. The weight
    of an opinion is its share in explaining the labels (by expectation maximisation, with a prior of one label each).
    """
    everything = list(range(evidence.shape[2]))
    opinions = []
    for kinds in (VOTES, [MODEL], [kind for kind in everything if kind == REGRESSION], everything):
        if kinds:
            weights, share = _fit(evidence[judged][:, :, kinds], np.full(len(kinds), 0.5), classes)
            scores = evidence[:, :, kinds] @ weights
            total = logsumexp(scores + _standing_for(evidence.shape[1], classes), axis=1, keepdims=True)
            opinions.append(scores - total)
    own = np.exp([opinion[judged, 0] for opinion in opinions])
    seen = (1.0 - share) * own + share / (classes - 1) * (1.0 - own)  # share: that of the last opinion, by all together
    parts = np.full((len(opinions), 1), 1.0 / len(opinions))
    for _ in range(STEPS):
        explained = parts * seen
        explained /= explained.sum(axis=0)
        parts = (explained.sum(axis=1, keepdims=True) + 1.0) / (own.shape[1] + len(opinions))
    return logsumexp(opinions, axis=0, b=parts[:, :, None]), share


def _standing_for(columns: int, classes: int) -> Float64[np.ndarray, " r"]:
    """Return the log of the number of classes that each column represents: drawn ones represent all non-rivals."""
    rivals = 1 + min(2 * RIVALS, classes - 1)
    stand = np.zeros(columns)
    if columns > rivals:
        stand[rivals:] = np.log((classes - rivals) / (columns - rivals))
    return stand


def _largest(
    values: Float64[np.ndarray, "n c"], count: int, *, but: Int64[np.ndarray, "n b"]
) -> Int64[np.ndarray, "n r"]:
    """Return the indices of the largest values of each row, in any order, except for the indices `but`."""
    if not count:
        return np.empty((len(values), 0), dtype=np.int64)
    allowed = values.copy()
    np.put_along_axis(allowed, but, -np.inf, axis=1)
    return np.argpartition(-allowed, count - 1, axis=1)[:, :count]


def _surprise(fits: Float64[np.ndarray, "n c"], codes: Int64[np.ndarray, " n"]) -> float:
    """Return the mean negative log-likelihood of the labels at the best of some temperatures, bounded per label."""
    means = []
    for temperature in 2.0 ** np.arange(9):
        scaled = fits / temperature
        likely = np.exp(scaled[np.arange(len(codes)), codes] - logsumexp(scaled, axis=1))
        means.append(-np.log(0.95 * likely + 0.05 / fits.shape[1]).mean())
    return float(min(means))


def _fit(
    evidence: Float64[np.ndarray, "n r e"], start: Float64[np.ndarray, " e"], classes: int
) -> tuple[Float64[np.ndarray, " e"], float]:
    """Return the weights of the kinds of evidence and the share of wrong labels that explain the labels best."""
    chosen = evidence[np.unique(np.linspace(0, len(evidence) - 1, FITTED_ON).round().astype(int))]
    stand = _standing_for(evidence.shape[1], classes)
    wrong, right = SHARE

    def surprise(values: Float64[np.ndarray, " v"]) -> tuple[float, Float64[np.ndarray, " v"]]:
        weights, share = values[:-1], values[-1]
        scores = chosen @ weights + stand
        likely = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        own, elsewhere = likely[:, 0], share / (classes - 1)
        seen = (1.0 - share) * own + elsewhere * (1.0 - own)
        slope = own * (chosen[:, 0] - np.einsum("nr,nre->ne", likely, chosen)).T
        by_weights = -((1.0 - share - elsewhere) / seen * slope).sum(axis=1)
        by_share = -(((1.0 - own) / (classes - 1) - own) / seen).sum()
        prior = -(wrong - 1.0) * np.log(share) - (right - 1.0) * np.log1p(-share) + 0.5 * np.square(weights).sum()
        by_share += -(wrong - 1.0) / share + (right - 1.0) / (1.0 - share)
        return float(-np.log(seen).sum() + prior), np.append(by_weights + weights, by_share)

    bounds = [(0.0, 20.0)] * len(start) + [(1e-4, 0.5)]
    solution = minimize(surprise, np.append(start, 0.03), jac=True, method="L-BFGS-B", bounds=bounds)
    return solution.x[:-1], float(solution.x[-1])


def _log_odds(
    rivals: Int64[np.ndarray, "n r"], scores: Float64[np.ndarray, "n r"], share: float, classes: int
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return the log odds of the most likely other class against the label's, and that class.

    Args:
        rivals: Candidate classes of each item, its own first.
        scores: Score of each candidate class.
        share: Share of wrong labels.
        classes: Number of classes.
    """
    here, best = np.arange(len(rivals)), 1 + scores[:, 1:].argmax(axis=1)
    ratio = scores[here, best] - scores[:, 0]
    return np.log(share / (1.0 - share) / (classes - 1)) + ratio, rivals[here, best]


def _nearest_of(
    items: Any, codes: NDArray[np.int64], index: int, code: int, count: int, distance: str
) -> tuple[int, ...]:
    members = np.flatnonzero((codes == code) & (np.arange(len(codes)) != index))
    if not len(members):
        return ()
    near = find_neighbours(items[[index]], min(count, len(members)), gallery=items[members], distance=distance)
    return tuple(members[near.indices[0].numpy()].tolist())
