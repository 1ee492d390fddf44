"""Mislabelled items: those whose neighbours and class disagree with their label, with the label that would agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import coo_array
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
ROUNDS = 3  # rounds of reweighting labels by their probability of being right
WIDTHS = (0.1, 0.3)  # widths of the voting kernels, in units of the distance between the first and last neighbour
VOTES, MODEL, REGRESSION = [0, 1], 2, 4  # positions of the kinds of evidence; the last is optional
SHRINKAGES = (0.02, 0.1, 0.3, 0.7)
FITTED_ON = 4096  # largest number of items that settings are fitted on
RIVALS = 12  # other classes that an item is compared with: this many by votes, and as many by class models
STEPS = 50  # expectation-maximisation steps for the weights of opinions
DRAWN = 8  # random classes that represent all classes that are not rivals
UNSEEN = 0.05  # votes of a class that no neighbour has
CORE = 1 / 3  # share of the items predicted to be of a class that are its core: those most surely predicted
SHARE = (8.0, 40.0)  # wrong and right labels that are added to those counted in the cores: a prior of few wrong ones
HARD = 0.75  # share of the errors that the evidence expects in a core which is not counted as wrong labels
POOLED = 8.0  # labels at the share of all classes that are added to those counted in the core of a class
SPREAD = 1.0  # wrong labels of a class that are spread over all other classes, beside those counted
MOST_WRONG = 0.45  # largest share of wrong labels of a class
AFFORDABLE = 2e10  # items x dimensions x classes up to which regressions take a minute or two
BLOCK = 1 << 22  # numbers in a block of fits to classes


@final
@dataclass(frozen=True)
class Suspect:
    """Item whose label is probably wrong.

    Attributes:
        index: Index of the item.
        label: Current label.
        proposed: Label that would agree with its neighbours.
        score: Probability, between 0 and 1, that the label is wrong.
        own: Indices of its nearest neighbours with its own label, nearest first.
        other: Indices of its nearest neighbours with the proposed label.
    """

    index: int
    label: Any
    proposed: Any
    score: float
    own: tuple[int, ...]
    other: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "index": self.index,
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
        >>> suspect.index, suspect.label, suspect.proposed
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
    if items x dimensions x classes is at most 2e10, regressions on the other items.

    How often a class i is labelled j is counted in the core of class i: the third of the items predicted to be of class
    i that are most surely so, whatever their labels. Hard items are rarely in a core, wrong labels are as frequent
    there as elsewhere. The weight of each kind of evidence is then fitted to the labels, given these shares:
    p(label j) = sum_i p(i) p(j labelled | i). Labels that are probably wrong count less in the next round. The result
    is a mean of the probabilities from each kind of evidence alone and from all together, weighted by how well each
    explains the labels.

    The label is compared with the single most likely other class, not with all others together: an item that could
    belong to any of ten classes is hard, but hard items are not mislabelled ones.

    Formula:
        p(wrong) : p(right) = max_i p(i) p(label | i) : p(label) p(label | label)

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
        candidates = Candidates(rivals, codes, judged, len(classes))
        noise, _ = _noise(candidates, _log_probabilities(evidence @ weights, len(classes)), None)
        weights = _fit(evidence[judged], noise[judged], weights, len(classes))
        noise, _ = _noise(candidates, _log_probabilities(evidence @ weights, len(classes)), noise)
        weights = _fit(evidence[judged], noise[judged], weights, len(classes))
        odds, proposed = _log_odds(candidates, evidence @ weights, noise)
        believed = np.where(judged, expit(-odds), 1.0)
    if rows.size * len(classes) <= AFFORDABLE:
        regressed = np.take_along_axis(left_out_log_likelihoods(rows, codes, believed), rivals, axis=1)
        evidence = np.concatenate([evidence, regressed[:, :, None]], axis=2)
    pooled = _pooled(evidence, noise, judged, len(classes))
    noise, share = _noise(candidates, pooled, noise)
    odds, proposed = _log_odds(candidates, pooled, noise)
    odds[~judged] = -np.inf
    return LabelDoubts(tuple(classes), codes, expit(odds), odds, proposed, share)


@dataclass(frozen=True)
class Candidates:
    """Classes that each item may belong to.

    Attributes:
        rivals: Candidate classes of each item, its own first.
        codes: Class of each item.
        judged: Whether an item's class has others, so that there is evidence about it.
        classes: Number of classes.
    """

    rivals: Int64[np.ndarray, "n r"]
    codes: Int64[np.ndarray, " n"]
    judged: Bool[np.ndarray, " n"]
    classes: int

    @property
    def compared(self) -> int:
        """Number of columns that are compared; those after them are drawn, and represent all other classes."""
        return 1 + min(2 * RIVALS, self.classes - 1)


def _noise(
    candidates: Candidates, likely: Float64[np.ndarray, "n r"], before: Float64[np.ndarray, "n r"] | None
) -> tuple[Float64[np.ndarray, "n r"], float]:
    """Return the probability of each item's label if it is of each candidate class, and the share of wrong labels.

    The share of wrong labels of a class is counted in its core. Which class they name is counted among the items that
    are more likely than not of another class than their label's; pairs of classes are confused in both directions.

    Args:
        candidates: Candidate classes of each item.
        likely: Log probability of each candidate class.
        before: An earlier result; without one, items of the cores alone are counted.
    """
    rivals, codes, classes = candidates.rivals, candidates.codes, candidates.classes
    core, predicted = _core(candidates, likely)
    wrong = core[predicted[core] != codes[core]]
    sizes = np.bincount(predicted[core], minlength=classes)
    counts = np.bincount(predicted[wrong], minlength=classes).astype(np.float64)
    expected = HARD * (1.0 - np.exp(likely[core, : candidates.compared].max(axis=1))).sum()
    counts *= max(0.0, 1.0 - expected / max(len(wrong), 1))
    share = float((counts.sum() + SHARE[0]) / (len(core) + sum(SHARE)))
    shares = np.minimum((counts + POOLED * share) / (sizes + POOLED), MOST_WRONG)
    if before is None:
        pairs = coo_array((np.ones(len(wrong)), (predicted[wrong], codes[wrong])), shape=(classes, classes))
    else:
        joint = np.exp(likely + _standing_for(rivals.shape[1], classes)) * before
        joint /= joint.sum(axis=1, keepdims=True)
        item, column = np.nonzero((joint[:, 1:] > 0.5) & candidates.judged[:, None])
        named = (rivals[item, column + 1], codes[item])
        pairs = coo_array((joint[item, column + 1], named), shape=(classes, classes))
    both = (pairs + 0.5 * pairs.T).tocsr()
    totals = both.sum(axis=1) + SPREAD
    own = np.repeat(codes, rivals.shape[1] - 1)
    others = rivals[:, 1:]
    named_own = np.asarray(both[others.ravel(), own]).reshape(others.shape)
    noise = np.empty(rivals.shape)
    noise[:, 0] = 1.0 - shares[codes]
    noise[:, 1:] = shares[others] * (named_own + SPREAD / (classes - 1)) / totals[others]
    return noise, share


def _core(
    candidates: Candidates, likely: Float64[np.ndarray, "n r"]
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " n"]]:
    """Return the items in the cores of the classes, and the class that is predicted for each item.

    The core of a class is the third of the items predicted to be of it that are most surely so. Neither prediction nor
    sureness depends on the item's own label.
    """
    compared = likely[:, : candidates.compared]
    predicted = candidates.rivals[np.arange(len(likely)), compared.argmax(axis=1)]
    order = np.lexsort((-compared.max(axis=1), predicted))
    order = order[candidates.judged[order]]
    ordered = predicted[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return order[rank < np.ceil(CORE * np.bincount(ordered)[ordered])], predicted


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
    evidence: Float64[np.ndarray, "n r e"],
    noise: Float64[np.ndarray, "n r"],
    judged: Bool[np.ndarray, " n"],
    classes: int,
) -> Float64[np.ndarray, "n r"]:
    """Return the log probability of each rival in the mean of several opinions.

    Each kind of evidence is an opinion, and all kinds together are one more. A product of opinions is dominated by the
    most extreme one, often the class models; in the mean, a label is doubted only if no opinion supports it. The weight
    of an opinion is its share in explaining the labels (by expectation maximisation, with a prior of one label each).
    """
    everything = list(range(evidence.shape[2]))
    opinions = []
    for kinds in (VOTES, [MODEL], [kind for kind in everything if kind == REGRESSION], everything):
        if kinds:
            weights = _fit(evidence[judged][:, :, kinds], noise[judged], np.full(len(kinds), 0.5), classes)
            opinions.append(_log_probabilities(evidence[:, :, kinds] @ weights, classes))
    stand = _standing_for(evidence.shape[1], classes)
    seen = np.stack([(np.exp(opinion[judged] + stand) * noise[judged]).sum(axis=1) for opinion in opinions])
    parts = np.full((len(opinions), 1), 1.0 / len(opinions))
    for _ in range(STEPS):
        explained = parts * seen
        explained /= explained.sum(axis=0)
        parts = (explained.sum(axis=1, keepdims=True) + 1.0) / (seen.shape[1] + len(opinions))
    return logsumexp(opinions, axis=0, b=parts[:, :, None])


def _log_probabilities(scores: Float64[np.ndarray, "n r"], classes: int) -> Float64[np.ndarray, "n r"]:
    """Return the log probability of each candidate class, from its score."""
    return scores - logsumexp(scores + _standing_for(scores.shape[1], classes), axis=1, keepdims=True)


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
    evidence: Float64[np.ndarray, "n r e"],
    noise: Float64[np.ndarray, "n r"],
    start: Float64[np.ndarray, " e"],
    classes: int,
) -> Float64[np.ndarray, " e"]:
    """Return the weights of the kinds of evidence that explain the labels best.

    Args:
        evidence: Evidence for each candidate class of each item.
        noise: Probability of an item's label if it is of each candidate class.
        start: Weights to start from.
        classes: Number of classes.
    """
    fitted_on = np.unique(np.linspace(0, len(evidence) - 1, FITTED_ON).round().astype(int))
    chosen, labelled = evidence[fitted_on], noise[fitted_on]
    stand = _standing_for(evidence.shape[1], classes)

    def surprise(weights: Float64[np.ndarray, " e"]) -> tuple[float, Float64[np.ndarray, " e"]]:
        scores = chosen @ weights + stand
        likely = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        joint = likely * labelled
        seen = joint.sum(axis=1)
        slope = -np.einsum("nr,nre->e", joint / seen[:, None] - likely, chosen)
        return float(-np.log(seen).sum() + 0.5 * np.square(weights).sum()), slope + weights

    solution = minimize(surprise, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 20.0)] * len(start))
    return np.asarray(solution.x)


def _log_odds(
    candidates: Candidates, scores: Float64[np.ndarray, "n r"], noise: Float64[np.ndarray, "n r"]
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return the log odds of a wrong label, by the most likely other class, and the class to propose instead.

    The class that is proposed is the one with the best score, however often it is labelled so.

    Args:
        candidates: Candidate classes of each item.
        scores: Score of each candidate class.
        noise: Probability of an item's label if it is of each candidate class.
    """
    joint = (scores + np.log(noise))[:, : candidates.compared]
    best = 1 + scores[:, 1 : candidates.compared].argmax(axis=1)
    return joint[:, 1:].max(axis=1) - joint[:, 0], candidates.rivals[np.arange(len(joint)), best]


def _nearest_of(
    items: Any, codes: NDArray[np.int64], index: int, code: int, count: int, distance: str
) -> tuple[int, ...]:
    members = np.flatnonzero((codes == code) & (np.arange(len(codes)) != index))
    if not len(members):
        return ()
    near = find_neighbours(items[[index]], min(count, len(members)), gallery=items[members], distance=distance)
    return tuple(members[near.indices[0].numpy()].tolist())
