"""Items whose neighbours and class disagree with their label, with the label that would agree."""

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


# How well an item fits each class when it is left out: Gaussian classes of one shape, in closed form.


@dataclass(frozen=True)
class ClassModels:
    """Classes as Gaussians that differ in their means alone.

    Attributes:
        rows: Items along the principal axes of what varies within classes.
        means: Of the classes, along the same axes.
        variances: Within classes, along each axis.
        weights: How much each item counts.
        sums: Of the weights in each class.
    """

    rows: Float64[np.ndarray, "n d"]
    means: Float64[np.ndarray, "c d"]
    variances: Float64[np.ndarray, " d"]
    weights: Float64[np.ndarray, " n"]
    sums: Float64[np.ndarray, " c"]


def fit_class_models(
    items: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> ClassModels:
    """Estimate the means of all classes and the variance that they share.

    Args:
        items: One row per item.
        codes: The class of each, from 0 on.
        weights: How much each counts; a label that is probably wrong counts little.
    """
    many = int(codes.max()) + 1
    sums = np.bincount(codes, weights, minlength=many)
    means = np.zeros((many, items.shape[1]))
    np.add.at(means, codes, items * weights[:, None])
    means /= np.maximum(sums, 1e-12)[:, None]
    apart = (items - means[codes]) * np.sqrt(weights)[:, None]
    variances, axes = np.linalg.eigh(apart.T @ apart / weights.sum())
    return ClassModels(items @ axes, means @ axes, np.maximum(variances, 0.0), weights, sums)


def left_out_fits(
    models: ClassModels, codes: Int64[np.ndarray, " n"], shrinkage: float, rows: Int64[np.ndarray, " m"]
) -> Float64[np.ndarray, "m c"]:
    """Return the log density of some items under each class, as if each item had not been seen before.

    Taking one item out moves the mean of its class and takes a matrix of rank one off the shared variance, so that
    nothing has to be estimated again (Sherman and Morrison, 1950). A mean of few items lies away from the class's by
    chance: what that adds to the distance on average is taken off.

    Formula:
        D(i, c) = (x_i - m_c)' S_i^-1 (x_i - m_c) - tr(S^-1 W) / n_c,    fit = -D / 2,
        S = (1 - shrinkage) W + shrinkage tr(W) / d I,    m_c, n_c and S_i without item i

    Args:
        models: All classes.
        codes: The class of each item.
        shrinkage: Between 0 and 1: how far the shared variance is the same in all directions.
        rows: The items that are asked for.
    """
    kept = (1.0 - shrinkage) * models.variances
    scale = 1.0 / np.sqrt(kept + shrinkage * models.variances.mean() + 1e-12)
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


# How likely each class is for an item that is left out: multinomial regressions on the other items.

FOLDS = 5
STRENGTH = 3.0  # of an item against the prior of small coefficients, for rows whose usual length is 1
ITERATIONS = 10  # along axes that were made alike; an order of items does not need the last digits


def left_out_log_likelihoods(
    rows: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> Float32[np.ndarray, "n c"]:
    """Return the log probability of each class, by a regression on the four fifths that an item is not in.

    The items of a class are dealt to the fifths in turn, so that each fifth has its share of every class.

    Args:
        rows: One per item, centred.
        codes: The class of each, from 0 on.
        weights: How much each counts; a label that is probably wrong counts little.
    """
    many = int(codes.max()) + 1
    fold = np.empty(len(codes), dtype=np.int64)
    fold[np.argsort(codes, kind="stable")] = np.arange(len(codes)) % FOLDS
    scale = float(np.sqrt(np.square(rows).sum(axis=1).mean())) or 1.0
    squares, axes = np.linalg.eigh(rows.T @ rows / scale**2)
    # Along an axis the loss of a class bends by p (1 - p) of what varies there, about 1 / (2 classes), and the prior by
    # 1 / STRENGTH: in units in which they bend alike few steps are needed.
    widths = 1.0 / np.sqrt(0.5 / many * np.maximum(squares, 0.0) + 1.0 / STRENGTH)
    turned = (rows @ axes * (widths / scale)).astype(np.float32)
    prior = (np.square(widths) / STRENGTH).astype(np.float32)[:, None]
    likely = np.empty((len(codes), many), dtype=np.float32)
    for number in range(FOLDS):
        rest, left_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        coefficients = _fit_regression(turned[rest], codes[rest], weights[rest].astype(np.float32), prior, many)
        likely[left_out] = _log_softmax(turned[left_out] @ coefficients[:-1] + coefficients[-1])
    return likely


def _fit_regression(
    rows: Float32[np.ndarray, "n d"],
    codes: Int64[np.ndarray, " n"],
    weights: Float32[np.ndarray, " n"],
    prior: Float32[np.ndarray, "d 1"],
    classes: int,
) -> Float32[np.ndarray, "d1 c"]:
    """Return the coefficients of each class, and in a last line its constant."""
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
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return found.x.reshape(shape).astype(np.float32)


def _log_softmax(scores: Float32[np.ndarray, "n c"]) -> Float32[np.ndarray, "n c"]:
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


NEIGHBOURS = 50
ROUNDS = 2  # of weighing labels by how far they are believed; a third changes nothing
WIDTHS = (0.1, 0.3)  # of the votes' kernels, in units of how far the last neighbour is beyond the first
VOTES, MODEL, REGRESSION = [0, 1], 2, 4  # kinds of evidence, by their places; the last where it can be afforded
SHRINKAGES = (0.02, 0.1, 0.3, 0.7)
FITTED_ON = 4096  # items at most that settings are chosen by
RIVALS = 12  # classes beside its own that an item is compared with: by votes, and again by class models
STEPS = 50  # of weighing opinions; each is nearer than the one before
DRAWN = 8  # classes that stand for all that are no rivals
UNSEEN = 0.05  # votes of a class that no neighbour has
SHARE = (2.0, 40.0)  # Beta prior of the share of wrong labels: a few in a hundred, unless the data knows better
AFFORDABLE = 2e10  # items x numbers x classes up to which regressions take a minute or two
BLOCK = 1 << 22  # numbers of a block of fits to classes


@final
@dataclass(frozen=True)
class Suspect:
    """An item whose label is probably wrong.

    Attributes:
        place: Of the item.
        label: That it has.
        proposed: The label that would agree with its neighbours.
        score: Probability, between 0 and 1, that the label is wrong.
        own: Places of its nearest neighbours of its label, nearest first.
        other: Places of its nearest neighbours of the proposed label.
    """

    place: int
    label: Any
    proposed: Any
    score: float
    own: tuple[int, ...]
    other: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
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
    """What is thought of every label of a collection.

    Attributes:
        classes: The labels that occur.
        codes: Of each item's label among the classes.
        scores: Probability that an item's label is wrong and the proposed one right, if one of them is right; 0 for
            the only item of a class, which nothing speaks of.
        ranks: What to sort by: the log odds, which tell items apart whose probabilities round to the same.
        proposed: The most likely other label of each item, among the classes.
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
        labels: One per item.
        k: Neighbours that vote.
        distance: "cosine" or "euclidean".
        least: The least probability of being wrong that is listed.
        shown: Neighbours of both labels that are given as a reason.

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
    found = []
    for place in suspects.tolist():
        own, other = int(doubts.codes[place]), int(doubts.proposed[place])
        found.append(
            Suspect(
                place,
                doubts.classes[own],
                doubts.classes[other],
                float(doubts.scores[place]),
                _nearest_of(items, doubts.codes, place, own, shown, distance),
                _nearest_of(items, doubts.codes, place, other, shown, distance),
            )
        )
    return found


def doubt_labels(
    embeddings: ArrayLike, labels: Labels, *, k: int = NEIGHBOURS, distance: str = "cosine"
) -> LabelDoubts:
    """Estimate for every item the probability that its label is wrong.

    Three things speak of an item that is left out: its neighbours, who vote for their labels by how near they are, the
    classes as Gaussians of one shape, and at last, where items x numbers x classes are at most 2e10, regressions on
    the other items. What each is worth, and the share of wrong labels, is fitted to the labels there are, which may be
    wrong themselves: p(label) = (1 - share) p(class) + share / (classes - 1) (1 - p(class)). Labels that are not
    believed count less in the next round. What counts at last is a mean of the probabilities by each of the three
    alone and by all of them together, in which each has the weight of what it explains of the labels.

    The label is weighed against the one other class that is most likely, not against all others together: an item that
    could be of any of ten classes is hard, and hard items are not wrong ones.

    Formula:
        p(wrong) : p(right) = share / (classes - 1) max_i p(i) : (1 - share) p(label)

    Args:
        embeddings: One row per item.
        labels: One per item.
        k: Neighbours that vote.
        distance: "cosine" or "euclidean".
    """
    items = as_embeddings(embeddings)
    classes, (tensor,) = as_codes(labels, sizes=[len(items)])
    codes = tensor.numpy()
    if len(classes) < 2:
        raise InputError(f"A label can only be wrong where there are several; all {len(items)} items have one label.")
    judged = np.bincount(codes)[codes] > 1
    if not judged.any():
        raise InputError(f"Each of the {len(items)} items has a label of its own; no label has two items to compare.")
    rows = items.double().numpy()
    if distance == "cosine":
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    rows = rows - rows.mean(axis=0)
    near = find_neighbours(items, min(k, len(items) - 1), distance=distance)
    places = near.indices.numpy()
    farness = near.values.numpy() * (-1.0 if distance == "cosine" else 1.0)
    farness = farness - farness[:, :1]
    unit = float(np.median(farness[:, -1])) or 1.0
    believed = np.ones(len(items))
    weights = np.array([0.5] * len(WIDTHS) + [0.1, 0.5])
    for _ in range(ROUNDS):
        rivals, evidence = _evidence(rows, codes, len(classes), places, farness / unit, believed, judged)
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
    places: Int64[np.ndarray, "n k"],
    farness: Float64[np.ndarray, "n k"],
    believed: Float64[np.ndarray, " n"],
    judged: Bool[np.ndarray, " n"],
) -> tuple[Int64[np.ndarray, "n r"], Float64[np.ndarray, "n r e"]]:
    """Return the classes that each item may be of, its own first, and what speaks for each.

    The last few are drawn among the classes that are no rivals, where there are such: they stand for all of them.
    """
    votes = [np.exp(-farness / width) * believed[places] for width in WIDTHS]
    models = fit_class_models(rows, codes, believed)
    chosen = np.flatnonzero(judged)
    chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, FITTED_ON).round().astype(int))]
    shrinkage = min(SHRINKAGES, key=lambda value: _surprise(left_out_fits(models, codes, value, chosen), codes[chosen]))
    many = min(RIVALS, classes - 1)
    more = min(RIVALS, classes - 1 - many)
    drawn = min(DRAWN, classes - 1 - many - more)
    rivals = np.empty((len(rows), 1 + many + more + drawn), dtype=np.int64)
    evidence = np.empty((*rivals.shape, len(WIDTHS) + 2))
    sizes = np.log(np.maximum(models.sums, 1e-12))
    rng = np.random.default_rng(0)
    for block in np.array_split(np.arange(len(rows)), -(-len(rows) * classes // BLOCK)):
        here, own = np.arange(len(block))[:, None], codes[block][:, None]
        fits = left_out_fits(models, codes, shrinkage, block)
        tallies = []
        for vote in votes:
            tally = np.full((len(block), classes), UNSEEN / classes)
            np.add.at(tally, (here, codes[places[block]]), vote[block])
            tallies.append(np.log(tally))
        names = np.concatenate([own, _largest(tallies[-1], many, but=own)], axis=1)
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

    Each kind of evidence is an opinion, and all together are one more. A product of opinions is ruled by whichever is
    most extreme, and class models often are; in the mean a label is doubted as far as nobody stands up for it. An
    opinion counts as much as it explains of the labels (by expectation and maximisation, as if it had explained one).
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
    seen = (1.0 - share) * own + share / (classes - 1) * (1.0 - own)  # share: by all together, the last
    parts = np.full((len(opinions), 1), 1.0 / len(opinions))
    for _ in range(STEPS):
        explained = parts * seen
        explained /= explained.sum(axis=0)
        parts = (explained.sum(axis=1, keepdims=True) + 1.0) / (own.shape[1] + len(opinions))
    return logsumexp(opinions, axis=0, b=parts[:, :, None]), share


def _standing_for(columns: int, classes: int) -> Float64[np.ndarray, " r"]:
    """The log of how many classes each column of rivals stands for: the drawn ones for all that are no rivals."""
    rivals = 1 + min(2 * RIVALS, classes - 1)
    stand = np.zeros(columns)
    if columns > rivals:
        stand[rivals:] = np.log((classes - rivals) / (columns - rivals))
    return stand


def _largest(
    values: Float64[np.ndarray, "n c"], many: int, *, but: Int64[np.ndarray, "n b"]
) -> Int64[np.ndarray, "n r"]:
    """Places of the largest values of each row, in any order, except for some places."""
    if not many:
        return np.empty((len(values), 0), dtype=np.int64)
    allowed = values.copy()
    np.put_along_axis(allowed, but, -np.inf, axis=1)
    return np.argpartition(-allowed, many - 1, axis=1)[:, :many]


def _surprise(fits: Float64[np.ndarray, "n c"], codes: Int64[np.ndarray, " n"]) -> float:
    """The mean surprise at labels, at the best of some temperatures; no single label can surprise without end."""
    means = []
    for temperature in 2.0 ** np.arange(9):
        scaled = fits / temperature
        likely = np.exp(scaled[np.arange(len(codes)), codes] - logsumexp(scaled, axis=1))
        means.append(-np.log(0.95 * likely + 0.05 / fits.shape[1]).mean())
    return float(min(means))


def _fit(
    evidence: Float64[np.ndarray, "n r e"], start: Float64[np.ndarray, " e"], classes: int
) -> tuple[Float64[np.ndarray, " e"], float]:
    """Return what each kind of evidence is worth, and the share of wrong labels, that explain the labels best."""
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
    found = minimize(surprise, np.append(start, 0.03), jac=True, method="L-BFGS-B", bounds=bounds)
    return found.x[:-1], float(found.x[-1])


def _log_odds(
    rivals: Int64[np.ndarray, "n r"], scores: Float64[np.ndarray, "n r"], share: float, classes: int
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return the log odds of the most likely other class against the label's, and that class.

    Args:
        rivals: The classes that each item may be of, its own first.
        scores: What speaks for each of them.
        share: Of wrong labels.
        classes: How many there are.
    """
    here, best = np.arange(len(rivals)), 1 + scores[:, 1:].argmax(axis=1)
    ratio = scores[here, best] - scores[:, 0]
    return np.log(share / (1.0 - share) / (classes - 1)) + ratio, rivals[here, best]


def _nearest_of(
    items: Any, codes: NDArray[np.int64], place: int, code: int, many: int, distance: str
) -> tuple[int, ...]:
    members = np.flatnonzero((codes == code) & (np.arange(len(codes)) != place))
    if not len(members):
        return ()
    near = find_neighbours(items[[place]], min(many, len(members)), gallery=items[members], distance=distance)
    return tuple(members[near.indices[0].numpy()].tolist())
