"""Every objective once more, as plain loops over single pairs, written from the formulas and not from the package.

An oracle takes the matrix and the two masks as nested lists and returns a float. `ORACLES` and `OPTIONS` are the only
places where a new objective must be named for the tests over all objectives to cover it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

Rows = list[list[float]]
Marks = list[list[bool]]


def marked(row: list[float], marks: list[bool]) -> list[float]:
    return [value for value, mark in zip(row, marks, strict=True) if mark]


def mean(values: Iterable[float]) -> float:
    """The mean, and zero of nothing: a batch without usable pairs has nothing to learn."""
    values = list(values)
    return math.fsum(values) / len(values) if values else 0.0


def log_sum(exponents: Iterable[float]) -> float:
    exponents = list(exponents)
    top = max(exponents)
    return top + math.log(math.fsum(math.exp(x - top) for x in exponents))


def columns(rows: list[list[Any]], width: int) -> list[list[Any]]:
    return [[row[j] for row in rows] for j in range(width)]


def contrastive(s: Rows, P: Marks, N: Marks, *, threshold: float = 0.5) -> float:
    return mean(
        sum(max(x - threshold, 0.0) for x in marked(row, n)) - sum(marked(row, p))
        for row, p, n in zip(s, P, N, strict=True)
    )


def contrastive_c1(s: Rows, P: Marks, N: Marks, *, threshold: float = 0.5) -> float:
    return mean(
        sum(max(1 - x - 1e-5, 0.0) for x in marked(row, p)) + sum(max(x - threshold, 0.0) for x in marked(row, n))
        for row, p, n in zip(s, P, N, strict=True)
    )


def contrastive_c2(d: Rows, P: Marks, N: Marks, *, positive_margin: float = 0.0, negative_margin: float = 0.5) -> float:
    pulls, pushes = [], []
    for row, p, n in zip(d, P, N, strict=True):
        pulls += [x - positive_margin for x in marked(row, p) if x > positive_margin]
        pushes += [negative_margin - x for x in marked(row, n) if x < negative_margin]
    return mean(pulls) + mean(pushes)


def margin(d: Rows, P: Marks, N: Marks, *, boundary: float = 1.2, margin: float = 0.2) -> float:
    losses = []
    for row, p, n in zip(d, P, N, strict=True):
        losses += [margin + (x - boundary) for x in marked(row, p)]
        losses += [margin - (x - boundary) for x in marked(row, n)]
    return mean(loss for loss in losses if loss > 0)


def every_triplet(d: Rows, P: Marks, N: Marks) -> Iterable[tuple[float, float]]:
    for row, p, n in zip(d, P, N, strict=True):
        for near in marked(row, p):
            for far in marked(row, n):
                yield near, far


def triplet(d: Rows, P: Marks, N: Marks, *, margin: float = 0.1, which: str = "all") -> float:
    wanted = {
        "all": lambda near, far: True,
        "semi_hard": lambda near, far: near < far,
        "hard": lambda near, far: far <= near,
    }[which]
    chosen = [near - far + margin for near, far in every_triplet(d, P, N) if wanted(near, far)]
    return mean(loss for loss in chosen if loss > 0)


def soft_triplet(d: Rows, P: Marks, N: Marks, *, margin: float = 0.0, scale: float = 1.0) -> float:
    return mean(log_sum([0.0, scale * (near - far + margin)]) for near, far in every_triplet(d, P, N))


def lifted_structure(
    s: Rows, P: Marks, N: Marks, *, margin: float = 0.5, positive_scale: float = 1.0, negative_scale: float = 1.0
) -> float:
    losses = []
    for row, p, n in zip(s, P, N, strict=True):
        if any(p) and any(n):
            pull = log_sum(-positive_scale * x for x in marked(row, p)) / positive_scale
            push = log_sum(negative_scale * x for x in marked(row, n)) / negative_scale
            losses.append(max(margin + pull + push, 0.0))
    return mean(losses)


def binomial_deviance(
    s: Rows, P: Marks, N: Marks, *, positive_scale: float = 2.0, negative_scale: float = 50.0, threshold: float = 0.5
) -> float:
    return mean(
        mean(log_sum([0.0, positive_scale * (threshold - x)]) for x in marked(row, p))
        + mean(log_sum([0.0, negative_scale * (x - threshold)]) for x in marked(row, n))
        for row, p, n in zip(s, P, N, strict=True)
    )


def multi_similarity(
    s: Rows, P: Marks, N: Marks, *, positive_scale: float = 2.0, negative_scale: float = 50.0, threshold: float = 0.5
) -> float:
    return mean(
        log_sum([0.0, *(positive_scale * (threshold - x) for x in marked(row, p))]) / positive_scale
        + log_sum([0.0, *(negative_scale * (x - threshold) for x in marked(row, n))]) / negative_scale
        for row, p, n in zip(s, P, N, strict=True)
    )


def against_negatives(own: Rows, others: Rows, P: Marks, N: Marks) -> float:
    """The cross-entropy of each positive pair alone among the negatives of its anchor."""
    losses = []
    for pulled, pushed, p, n in zip(own, others, P, N, strict=True):
        losses += [log_sum([x, *marked(pushed, n)]) - x for x in marked(pulled, p)]
    return mean(losses)


def scaled(rows: Rows, factor: float) -> Rows:
    return [[factor * x for x in row] for row in rows]


def n_pair(s: Rows, P: Marks, N: Marks, *, scale: float = 1.0) -> float:
    return against_negatives(scaled(s, scale), scaled(s, scale), P, N)


def nt_xent(s: Rows, P: Marks, N: Marks, *, temperature: float = 0.07) -> float:
    return n_pair(s, P, N, scale=1 / temperature)


def normalised_softmax(s: Rows, P: Marks, N: Marks, *, temperature: float = 0.05) -> float:
    return n_pair(s, P, N, scale=1 / temperature)


def proxy_nca_pp(d: Rows, P: Marks, N: Marks, *, temperature: float = 0.1) -> float:
    return n_pair(d, P, N, scale=-1 / temperature)


def cosface(s: Rows, P: Marks, N: Marks, *, margin: float = 0.35, scale: float = 64.0) -> float:
    return against_negatives([[scale * (x - margin) for x in row] for row in s], scaled(s, scale), P, N)


def arcface(s: Rows, P: Marks, N: Marks, *, margin_degrees: float = 28.6, scale: float = 64.0) -> float:
    widen = math.radians(margin_degrees)

    def lowered(x: float) -> float:
        angle = math.acos(min(max(x, -1.0), 1.0))
        return math.cos(angle + widen) if angle + widen < math.pi else x - widen * math.sin(widen)

    return against_negatives([[scale * lowered(x) for x in row] for row in s], scaled(s, scale), P, N)


def proxy_nca(d: Rows, P: Marks, N: Marks, *, scale: float = 1.0) -> float:
    return mean(
        scale * x + log_sum(-scale * y for y in marked(row, n))
        for row, p, n in zip(d, P, N, strict=True)
        if any(n)
        for x in marked(row, p)
    )


def supervised_contrastive(s: Rows, P: Marks, N: Marks, *, temperature: float = 0.1) -> float:
    losses = []
    for row, p, n in zip(s, P, N, strict=True):
        if any(p):
            everything = log_sum(x / temperature for x in marked(row, p) + marked(row, n))
            losses.append(mean(everything - x / temperature for x in marked(row, p)))
    return mean(losses)


def circle(s: Rows, P: Marks, N: Marks, *, margin: float = 0.4, scale: float = 80.0) -> float:
    losses = []
    for row, p, n in zip(s, P, N, strict=True):
        if any(p) and any(n):
            pull = log_sum(-scale * max(1 + margin - x, 0.0) * (x - 1 + margin) for x in marked(row, p))
            push = log_sum(scale * max(x + margin, 0.0) * (x - margin) for x in marked(row, n))
            losses.append(log_sum([0.0, pull + push]))
    return mean(losses)


def fast_ap(d: Rows, P: Marks, N: Marks, *, bins: int = 10, largest: float = 4.0) -> float:
    width = largest / bins

    def histogram(values: list[float]) -> list[float]:
        held = [min(max(x, 0.0), largest) for x in values]
        return [sum(max(1 - abs(x - edge * width) / width, 0.0) for x in held) for edge in range(bins + 1)]

    losses = []
    for row, p, n in zip(d, P, N, strict=True):
        if any(p):
            positives, negatives = histogram(marked(row, p)), histogram(marked(row, n))
            precision = 0.0
            for edge, here in enumerate(positives):
                found = sum(positives[: edge + 1])
                seen = found + sum(negatives[: edge + 1])
                precision += here * found / seen if here else 0.0
            losses.append(1 - precision / sum(p))
    return mean(losses)


def smooth_ap(s: Rows, P: Marks, N: Marks, *, temperature: float = 0.01) -> float:
    def step(x: float) -> float:
        return 0.5 * (1 + math.tanh(0.5 * x / temperature))

    losses = []
    for row, p, n in zip(s, P, N, strict=True):
        precision = []
        for j, x in enumerate(row):
            if p[j]:
                among_positives = 1 + sum(step(row[k] - x) for k in range(len(row)) if p[k] and k != j)
                precision.append(among_positives / (among_positives + sum(step(y - x) for y in marked(row, n))))
        if precision:
            losses.append(1 - mean(precision))
    return mean(losses)


def proxy_anchor(s: Rows, P: Marks, N: Marks, *, margin: float = 0.1, scale: float = 32.0) -> float:
    width = len(s[0]) if s else 0
    pulls, pushes = [], []
    for column, p, n in zip(columns(s, width), columns(P, width), columns(N, width), strict=True):
        if any(p):
            pulls.append(log_sum([0.0, *(-scale * (x - margin) for x in marked(column, p))]))
        pushes.append(log_sum([0.0, *(scale * (x + margin) for x in marked(column, n))]))
    return mean(pulls) + mean(pushes)


def proxy_repulsion(
    s: Rows,
    P: Marks,
    N: Marks,
    *,
    reference_labels: list[int],
    reference_matrix: Rows,
    margin: float = 0.1,
    scale: float = 32.0,
) -> float:
    pushes = [
        log_sum([0.0, *(scale * (x + margin) for x, b in zip(row, reference_labels, strict=True) if a != b)])
        for row, a in zip(reference_matrix, reference_labels, strict=True)
    ]
    nothing = [[False] * len(reference_labels) for _ in s]
    return proxy_anchor(s, P, nothing, margin=margin, scale=scale) + mean(pushes)


def proxy_gram(
    s: Rows,
    P: Marks,
    N: Marks,
    *,
    reference_labels: list[int],
    margin: float = 0.1,
    scale: float = 32.0,
    batch_mean: bool = False,
) -> float:
    size = len(s) if batch_mean else 1
    seen = columns(s, len(reference_labels))
    gram = [[math.fsum(x * y for x, y in zip(a, b, strict=True)) / size for b in seen] for a in seen]
    return proxy_repulsion(
        s, P, N, reference_labels=reference_labels, reference_matrix=gram, margin=margin, scale=scale
    )


def soft_triple(
    s: Rows,
    P: Marks,
    N: Marks,
    *,
    reference_labels: list[int],
    scale: float = 20.0,
    centre_temperature: float = 0.1,
    margin: float = 0.01,
) -> float:
    classes = sorted(set(reference_labels))
    losses = []
    for row, p, n in zip(s, P, N, strict=True):
        own, others = [], []
        for c in classes:
            of_class = [k for k, label in enumerate(reference_labels) if label == c]
            kept = [k for k in of_class if p[k] or n[k]]
            if not kept:
                continue
            norm = log_sum(row[k] / centre_temperature for k in kept)
            pooled = math.fsum(math.exp(row[k] / centre_temperature - norm) * row[k] for k in kept)
            (own if any(p[k] for k in kept) else others).append(pooled)
        for x in own:
            logit = scale * (x - margin)
            losses.append(log_sum([logit, *(scale * y for y in others)]) - logit)
    return mean(losses)


def usable(d: Rows, P: Marks, N: Marks) -> Iterable[tuple[list[float], list[float]]]:
    """The distances to positives and to negatives of each anchor that has both."""
    for row, p, n in zip(d, P, N, strict=True):
        if any(p) and any(n):
            yield marked(row, p), marked(row, n)


def nca(d: Rows, P: Marks, N: Marks, *, scale: float = 1.0) -> float:
    return mean(
        1 - math.exp(log_sum(-scale * x for x in near) - log_sum(-scale * x for x in near + far))
        for near, far in usable(d, P, N)
    )


def mcml(d: Rows, P: Marks, N: Marks, *, scale: float = 1.0) -> float:
    losses = []
    for near, far in usable(d, P, N):
        everything = log_sum(-scale * x for x in near + far)
        losses.append(sum((math.log(1 / len(near)) + scale * x + everything) / len(near) for x in near))
    return mean(losses)


def lmnn(d: Rows, P: Marks, N: Marks, *, push: float = 0.5, margin: float = 1.0) -> float:
    return mean(
        (1 - push) * sum(near) + push * sum(max(margin + x - y, 0.0) for x in near for y in far)
        for near, far in usable(d, P, N)
    )


def cross_entropy(x: Rows, P: Marks, N: Marks) -> float:
    return mean(-math.log(min(max(value, 1e-30), 1)) for row, p in zip(x, P, strict=True) for value in marked(row, p))


def concave(name: str, total: float) -> float:
    if name == "root":
        return math.sqrt(total + 1e-4) - math.sqrt(1e-4)
    return {"identity": total, "logarithm": math.log(1 + total), "saturating": 1 - math.exp(-total)}[name]


def weak_metric_cross_entropy(x: Rows, P: Marks, N: Marks, *, transform: str = "identity") -> float:
    losses = []
    for row, p, n in zip(x, P, N, strict=True):
        if any(p) or any(n):
            own = sum(-math.log(min(max(value, 1e-30), 1)) for value in marked(row, p))
            others = sum(-math.log(1 - min(max(value, 0), 1 - 2**-23)) for value in marked(row, n))
            losses.append(concave(transform, own + others))
    return mean(losses)


def metric_cross_entropy(
    x: Rows,
    P: Marks,
    N: Marks,
    *,
    k: float = 0.5,
    p: float = 0.75,
    smoothing: float = 1e-3,
    transform: str = "identity",
) -> float:
    def distance(gap: float) -> float:
        power = ((gap + smoothing) ** p - smoothing**p) / ((1 + smoothing) ** p - smoothing**p)
        return -math.log(1 - k * power)

    losses = []
    for row, own, others in zip(x, P, N, strict=True):
        if any(own) or any(others):
            gaps = [1 - value for value in marked(row, own)] + marked(row, others)
            losses.append(concave(transform, sum(distance(min(max(gap, 0), 1)) for gap in gaps)))
    return mean(losses)


ORACLES: dict[str, Callable[..., float]] = {
    function.__name__: function
    for function in (
        arcface,
        binomial_deviance,
        circle,
        contrastive,
        contrastive_c1,
        contrastive_c2,
        cosface,
        cross_entropy,
        fast_ap,
        lifted_structure,
        lmnn,
        margin,
        mcml,
        metric_cross_entropy,
        multi_similarity,
        n_pair,
        nca,
        normalised_softmax,
        nt_xent,
        proxy_anchor,
        proxy_gram,
        proxy_nca,
        proxy_nca_pp,
        proxy_repulsion,
        smooth_ap,
        soft_triple,
        soft_triplet,
        supervised_contrastive,
        triplet,
        weak_metric_cross_entropy,
    )
}

# Other settings than the defaults, mild enough for finite differences.
OPTIONS: dict[str, dict[str, Any]] = {
    "arcface": {"margin_degrees": 60.0, "scale": 8.0},
    "binomial_deviance": {"positive_scale": 3.0, "negative_scale": 5.0, "threshold": 0.2},
    "circle": {"margin": 0.25, "scale": 10.0},
    "contrastive": {"threshold": 0.1},
    "contrastive_c1": {"threshold": 0.1},
    "contrastive_c2": {"positive_margin": 0.6, "negative_margin": 1.3},
    "cosface": {"margin": 0.1, "scale": 8.0},
    "cross_entropy": {},
    "fast_ap": {"bins": 7, "largest": 3.0},
    "lifted_structure": {"margin": 0.3, "positive_scale": 2.0, "negative_scale": 4.0},
    "lmnn": {"push": 0.7, "margin": 0.4},
    "margin": {"boundary": 1.1, "margin": 0.3},
    "mcml": {"scale": 2.0},
    "metric_cross_entropy": {"k": 0.8, "p": 0.5, "smoothing": 0.05, "transform": "root"},
    "multi_similarity": {"positive_scale": 3.0, "negative_scale": 5.0, "threshold": 0.2},
    "n_pair": {"scale": 3.0},
    "nca": {"scale": 2.0},
    "normalised_softmax": {"temperature": 0.3},
    "nt_xent": {"temperature": 0.3},
    "proxy_anchor": {"margin": 0.2, "scale": 4.0},
    "proxy_gram": {"margin": 0.2, "scale": 4.0, "batch_mean": True},
    "proxy_nca": {"scale": 2.0},
    "proxy_nca_pp": {"temperature": 0.5},
    "proxy_repulsion": {"margin": 0.2, "scale": 4.0},
    "smooth_ap": {"temperature": 0.2},
    "soft_triple": {"scale": 5.0, "centre_temperature": 0.5, "margin": 0.2},
    "soft_triplet": {"margin": 0.2, "scale": 3.0},
    "supervised_contrastive": {"temperature": 0.4},
    "triplet": {"margin": 0.4},
    "weak_metric_cross_entropy": {"transform": "logarithm"},
}
