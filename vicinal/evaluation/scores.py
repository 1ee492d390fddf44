"""Scores of an evaluation: printed as a table, saved as JSON, compared and plotted; and scores by chance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vicinal._util.files import replacing, write_atomically
from vicinal._util.html import html_page, html_table
from vicinal._util.style import ACCENT, styled
from vicinal._util.text import counted
from vicinal.errors import DataError, InputError, look_up
from vicinal.neighbours.inputs import Labels, as_codes
from vicinal.stats.intervals import Difference, Interval, class_sums, paired_difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Scores", "chance_scores", "recall_curve", "worst_classes"]


SCHEMA = "vicinal.scores/1"


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Scores of one set of embeddings.

    Args:
        overall: Each score by name; for retrieval scores, the mean over the scored queries.
        intervals: Interval of each score that has one.
        classes: Labels in ascending order.
        query_classes: For each query, the index of its label in `classes`.
        per_query: Each retrieval score of each query; NaN for queries without a reference of their class.
        references: Number of references that were searched.
        settings: Settings of the evaluation: distance, confidence, draws, seed.
        notes: Caveats to read before relying on the numbers.

    Example:
        >>> from vicinal.evaluation import evaluate
        >>> scores = evaluate([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"])
        >>> scores["MAP@R"]
        1.0
    """

    overall: Mapping[str, float]
    intervals: Mapping[str, Interval]
    classes: tuple[int, ...] | tuple[str, ...]
    query_classes: NDArray[np.int64]
    per_query: Mapping[str, NDArray[np.float64]]
    references: int
    settings: Mapping[str, str | float | int | bool | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return look_up("score", name, self.overall)

    def __str__(self) -> str:
        return self.table()

    def table(self, names: Sequence[str] | None = None) -> str:
        """Return scores as a table of text, with the number of queries and all notes.

        Args:
            names: Scores to show; by default all.
        """
        shown = list(self.overall if names is None else names)
        confidence = float(self.settings.get("confidence") or 0.95)
        wide = max([len(name) for name in shown], default=0)
        lines = [f"{'score':<{wide}}  {'value':>9}  {f'{100 * confidence:g} % interval over classes':>28}"]
        for name in shown:
            ends = self.intervals.get(name)
            between = f"{ends.low:.4f} to {ends.high:.4f}" if ends else ""
            lines.append(f"{name:<{wide}}  {self.overall[name]:>9.4f}  {between:>28}".rstrip())
        lines += ["", self.summary(), *(f"Note: {note}" for note in self.notes)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table as HTML, for notebooks."""
        ends = {name: f"{ends.low:.4f} to {ends.high:.4f}" for name, ends in self.intervals.items()}
        rows = [[name, float(value), ends.get(name, "")] for name, value in self.overall.items()]
        notes = "".join(f"<p>Note: {escape(note)}</p>" for note in self.notes)
        return html_page(self.summary(), html_table(["score", "value", "interval over classes"], rows), notes)

    def keys(self) -> Iterable[str]:
        """Return the names of the scores, so that `dict(scores)` works."""
        return self.overall.keys()

    def to_dict(self) -> dict[str, float]:
        """Return each score by name.

        Example:
            >>> from vicinal.evaluation import evaluate
            >>> evaluate([[1.0], [2.0], [-1.0], [-2.0]], [0, 0, 1, 1]).to_dict()["P@1"]
            1.0
        """
        return {name: float(value) for name, value in self.overall.items()}

    def to_pandas(self) -> DataFrame:
        """Return a data frame with a row per score, with the ends of its interval if it has one."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_pandas needs pandas: pip install pandas") from None
        rows = [
            {
                "score": name,
                "value": float(value),
                "low": ends.low if ends else None,
                "high": ends.high if ends else None,
            }
            for name, value in self.overall.items()
            for ends in [self.intervals.get(name)]
        ]
        return pd.DataFrame(rows, columns=["score", "value", "low", "high"]).set_index("score")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:.4f}" for name, value in list(self.overall.items())[:4])
        return f"Scores({shown}, ...)" if len(self.overall) > 4 else f"Scores({shown})"

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.query_classes)

    @property
    def left_out(self) -> int:
        """Number of queries that have no score because no reference has their class."""
        first = next(iter(self.per_query.values()), np.zeros(self.queries))
        return int(np.isnan(first).sum())

    def summary(self) -> str:
        """Return the numbers of queries, references and classes, and of queries without a score, as a sentence."""
        left = self.left_out
        out = f" {left:,} of {self.queries:,} queries left out: no reference has their class." if left else ""
        return (
            f"{counted(self.queries - left, 'query', 'queries')} scored against "
            f"{counted(self.references, 'reference')}, {counted(len(self.classes), 'class')}.{out}"
        )

    def per_class(self, name: str) -> dict[int | str, float]:
        """Return the mean of a score over the queries of each class that has any, worst class first.

        Example:
            >>> from vicinal.evaluation import evaluate
            >>> evaluate([[1.0], [2.0], [-1.0]], ["a", "a", "b"]).per_class("P@1")
            {'a': 1.0}
        """
        scores = look_up("score per query", name, self.per_query)
        sums, counts = class_sums(scores, self.query_classes, len(self.classes))
        scored = np.flatnonzero(counts)
        means = sums[scored] / counts[scored]
        order = np.argsort(means, kind="stable")
        return {self.classes[scored[index]]: float(means[index]) for index in order}

    def difference(self, other: Scores, name: str = "MAP@R", *, draws: int = 5000) -> Difference:
        """Return how much better these embeddings are than `other` on the same queries, with a p-value.

        Example:
            >>> from vicinal.evaluation import evaluate
            >>> good = evaluate([[1.0], [2.0], [-1.0], [-2.0]], [0, 0, 1, 1])
            >>> poor = evaluate([[1.0], [-2.0], [-1.0], [2.0]], [0, 0, 1, 1])
            >>> good.difference(poor).mean
            1.0
        """
        own_labels, other_labels = ([scores.classes[code] for code in scores.query_classes] for scores in (self, other))
        if own_labels != other_labels:
            raise InputError(
                "A paired comparison needs the same queries in the same order; "
                f"got {self.queries} and {other.queries} queries whose labels differ."
            )
        first, second = (look_up("score per query", name, scores.per_query) for scores in (self, other))
        confidence = float(self.settings.get("confidence") or 0.95)
        return paired_difference(first, second, self.query_classes, draws=draws, confidence=confidence)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the R@k curve and the worst classes; save the figure if a path is given."""

        figure = overview(self)
        if path is not None:
            with replacing(Path(path)) as file:
                figure.savefig(file, format=Path(path).suffix[1:].lower() or "png")
        return figure

    def to_json(self, path: str | Path | None = None, *, per_query: bool = True) -> str:
        """Return everything as JSON, which `from_json` reads back, and write it if a path is given.

        Args:
            path: File to write.
            per_query: Whether to include the scores of single queries; without them the record is small, but
                classes and differences are lost.
        """
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "overall": {name: _number(value) for name, value in self.overall.items()},
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "counts": {
                "queries": self.queries,
                "left out": self.left_out,
                "references": self.references,
                "classes": len(self.classes),
            },
            "per class": {name: list(self.per_class(name).items()) for name in self.per_query},
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }
        if per_query:
            record["classes"] = list(self.classes)
            record["query classes"] = self.query_classes.tolist()
            record["per query"] = {
                name: [_number(value) for value in values] for name, values in self.per_query.items()
            }
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        if path is not None:
            write_atomically(Path(path), text + "\n")
        return text

    @classmethod
    def from_json(cls, text: str) -> Scores:
        """Read back what `to_json` wrote.

        Example:
            >>> from vicinal.evaluation import evaluate
            >>> scores = evaluate([[1.0], [2.0], [-1.0], [-2.0]], [0, 0, 1, 1])
            >>> Scores.from_json(scores.to_json())["P@1"]
            1.0
        """
        record: dict[str, Any] = json.loads(text)
        if record.get("schema") != SCHEMA:
            raise DataError(f"Not a file of scores: the schema is {record.get('schema')!r}, expected {SCHEMA!r}.")
        if "per query" not in record:
            raise DataError("These scores were written without their queries; write them with per_query=True.")
        return cls(
            overall={name: _value(value) for name, value in record["overall"].items()},
            intervals={name: Interval(*ends) for name, ends in record["intervals"].items()},
            classes=tuple(record["classes"]),
            query_classes=np.array(record["query classes"], dtype=np.int64),
            per_query={
                name: np.array([_value(value) for value in values]) for name, values in record["per query"].items()
            },
            references=record["counts"]["references"],
            settings=record["settings"],
            notes=tuple(record["notes"]),
        )


def _number(value: float) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if np.isnan(value) else float(value)


def _value(number: float | None) -> float:
    return float("nan") if number is None else number


# Scores by chance: exact expectations for a random order of the references, from the numbers of positives alone.


def chance_scores(labels: Labels, *, gallery_labels: Labels | None = None, k: Sequence[int] = (1, 2, 4, 8)) -> Scores:
    """Return the expected scores of neighbours in random order, as `evaluate` returns those of embeddings.

    Formula:
        For a query with N references, R of them of its class, and H_R = 1 + 1/2 + ... + 1/R:
        P@1 = P@R = R / N
        R@k = 1 - (N-R)! (N-k)! / (N! (N-R-k)!)
        MAP@R = 1/N (H_R + (R-1)/(N-1) (R - H_R)), since the j-th reference is a hit with probability R/N, and each of
        the j-1 before it then with probability (R-1)/(N-1).

    Args:
        labels: One label per item, or per query if there is a gallery.
        gallery_labels: One label per reference; if None, every item is searched among the others.
        k: Each k of R@k.

    Example:
        >>> chance = chance_scores(["a", "a", "b", "b"])  # each has one of its class among three others
        >>> round(chance["P@1"], 4), round(chance["MAP@R"], 4), round(chance["R@2"], 4)
        (0.3333, 0.3333, 0.6667)
    """
    if gallery_labels is None:
        classes, (codes,) = as_codes(labels)
        among = codes
    else:
        classes, (codes, among) = as_codes(labels, gallery_labels)
    itself = int(gallery_labels is None)
    query_classes = codes.numpy()
    relevant = np.bincount(among.numpy(), minlength=len(classes))[query_classes] - itself
    if not relevant.any():
        raise InputError(f"None of the {len(query_classes)} queries has a reference of its class.")
    per_query = _expected(relevant, len(among) - itself, sorted(set(k)))
    sums = {name: class_sums(values, query_classes, len(classes)) for name, values in per_query.items()}
    return Scores(
        overall={name: float(totals.sum() / counts.sum()) for name, (totals, counts) in sums.items()},
        intervals={},
        classes=tuple(classes),  # type: ignore[arg-type]
        query_classes=query_classes,
        per_query=per_query,
        references=len(among),
        settings={"gallery": gallery_labels is not None},
    )


def _expected(relevant: NDArray[np.int64], references: int, ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Return the expected scores of queries from their numbers of positives; NaN for queries without any."""
    positives = np.where(relevant > 0, relevant, np.nan).astype(np.float64)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, max(1, relevant.max()) + 1))])[relevant]
    another = (positives - 1) / max(1, references - 1)
    share = positives / references
    return {
        "P@1": share,
        **{f"R@{k}": 1 - _none_in(k, positives, references) for k in ks},
        "P@R": share,
        "MAP@R": (harmonic + another * (positives - harmonic)) / references,
    }


def _none_in(k: int, positives: NDArray[np.float64], references: int) -> NDArray[np.float64]:
    """Return the probability that the first k references hold no positive."""
    drawn = np.arange(min(k, references))
    left = (references - drawn)[:, None]
    return np.asarray(np.prod(np.maximum(left - positives, 0) / left, axis=0))


# Plots of scores, as matplotlib figures without a window or global state.

COLOUR, BAND = ACCENT, f"{ACCENT}40"


def overview(scores: Scores) -> Figure:
    """Draw the R@k curve next to the worst classes."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    recall_curve(scores, left)
    worst_classes(scores, right)
    return styled(figure)


def recall_curve(scores: Scores, axes: Axes) -> None:
    """Draw R@k against k on a logarithmic axis, with its interval."""
    names = {int(name[2:]): name for name in scores.overall if name.startswith("R@")}
    if not names:
        raise InputError("There is no R@k to draw; evaluate with at least one k.")
    ks = sorted(names)
    values = [scores[names[k]] for k in ks]
    ends = [scores.intervals.get(names[k], (value, value)) for k, value in zip(ks, values, strict=True)]
    axes.fill_between(ks, [low for low, _ in ends], [high for _, high in ends], color=BAND, linewidth=0)
    axes.plot(ks, values, marker="o", color=COLOUR)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_ylim(0, 1.02)
    axes.set(xlabel="k", ylabel="R@k", title="A hit among the k nearest")


def worst_classes(scores: Scores, axes: Axes, name: str = "MAP@R", count: int = 15) -> None:
    """Draw the classes with the lowest mean of one score, the worst on top."""
    worst = list(scores.per_class(name).items())[:count][::-1]
    axes.barh(range(len(worst)), [value for _, value in worst], color=COLOUR)
    axes.set_yticks(range(len(worst)), [_short(str(label)) for label, _ in worst])
    axes.axvline(scores[name], color="black", linewidth=1, linestyle="--", label="all queries")
    axes.set_xlim(0, 1.02)
    axes.set(xlabel=name, title=f"The {len(worst)} worst classes" if len(worst) > 1 else "The worst class")
    axes.legend(loc="lower right")


def _short(label: str, limit: int = 28) -> str:
    label = label.replace("$", r"\$")  # matplotlib would parse a formula
    return label if len(label) <= limit else f"{label[: limit - 1]}…"
