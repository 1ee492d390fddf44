"""Proxies repel each other as the batch sees them."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vicinal.objectives.proxy_anchor import pull_to_references
from vicinal.objectives.stable import log1p_sum_exp
from vicinal.objectives.traits import objective

__all__ = ["proxy_gram"]


ROWS = 1024


@objective(
    geometry="cosine",
    paper="'Metric learning: a deep dive', eq 6.2",
    usual="proxies",
    references=("proxies", "cover"),
    needs=("reference_labels",),
    why_not="it correlates the columns of all classes over the batch; items of a batch or memory are not classes",
)
def proxy_gram(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    reference_labels: Int[Tensor, " m"],
    margin: float = 0.1,
    scale: float = 32.0,
    batch_mean: bool = False,
) -> Float[Tensor, ""]:
    r"""Pull items to the references of their class; push apart references that are similar in terms of the batch.

    Formula:
        (1/|W+|) sum_{w in W+} log(1 + sum_{x in X_w+} e^(-z (w.x - margin)))
        + (1/|W|) sum_w log(1 + sum_{w' of other classes} e^(z (g(w, w') + margin))),
        g(w, w') = sum_x (w.x)(x.w'), or its mean over the batch

    Weights:
        Positives as in `proxy_anchor`; an item pushes two references apart as far as it is similar to both.

    Args:
        reference_labels: Class of each reference; a `Criterion` supplies it.
        margin: lambda.
        scale: z (alpha).
        batch_mean: Divide g by the batch size. The paper's sum is not bounded by 1 (about batch / dimension for
            isotropic embeddings), so its strength depends on the batch size; the mean does not.

    Needs:
        References of every class. The m x m correlations are computed in blocks and never held at once.

    Relations:
        `proxy_repulsion` compares the references directly.

    Reference:
        "Metric learning: a deep dive", thesis, eq 6.2; in log-sum-exp form, where float32 would overflow.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> labels = torch.tensor([0, 1])
        >>> proxy_gram(torch.tensor([[0.1, -1.0]]), same, ~same, reference_labels=labels)
        tensor(1.3863)
    """
    columns = matrix / max(len(matrix), 1) ** 0.5 if batch_mean else matrix
    push = matrix.new_zeros(())
    for start in range(0, matrix.shape[1], ROWS):
        rows = slice(start, start + ROWS)
        push = push + checkpoint(_push_of_rows, columns, reference_labels, rows, margin, scale, use_reentrant=False)
    return pull_to_references(matrix, positive, margin, scale) + push / max(matrix.shape[1], 1)


def _push_of_rows(columns: Tensor, labels: Tensor, rows: slice, margin: float, scale: float) -> Float[Tensor, ""]:
    alike = columns[:, rows].T @ columns
    return log1p_sum_exp(alike, labels[rows, None] != labels[None, :], scale=scale, threshold=-margin).sum()
