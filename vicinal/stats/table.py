"""Tables of scores in CSV files."""

from __future__ import annotations

import math
from pathlib import Path

from vicinal._util.reading import read_csv
from vicinal.errors import DataError

__all__ = ["read_scores"]

LONG = ["experiment", "method", "score"]


def read_scores(path: str | Path) -> dict[str, dict[str, float]]:
    """Read scores of methods in experiments from a CSV file with a header.

    Args:
        path: File with one row per experiment (its name first, then a column per method), or with one row per score
            and the columns experiment, method, score. An empty cell or "nan" is a missing score.

    Returns:
        Experiment -> method -> score, as `tournament` takes it; NaN for a missing score.

    Example:
        >>> from pathlib import Path
        >>> getfixture("monkeypatch").chdir(getfixture("tmp_path"))
        >>> _ = Path("scores.csv").write_text("dataset,triplet,circle\\ncub,0.5,0.6\\ncars,0.7,\\n")
        >>> read_scores("scores.csv")
        {'cub': {'triplet': 0.5, 'circle': 0.6}, 'cars': {'triplet': 0.7, 'circle': nan}}
    """
    rows = [[cell.strip() for cell in row] for row in read_csv(path) if any(row)]
    header = rows[0] if rows else []
    long = [name.lower() for name in header] == LONG
    problems = [] if long else [f"the column {name!r} is listed twice" for name in sorted({*_repeated(header[1:])})]
    scores: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            problems.append(f"row {number} has {len(row)} cells, the header {len(header)}")
            continue
        cells = {row[1]: row[2]} if long else dict(zip(header[1:], row[1:], strict=True))
        of_experiment = scores.setdefault(row[0], {})
        for method, cell in cells.items():
            if method in of_experiment:
                problems.append(f"row {number} scores {method} in {row[0]} again")
            try:
                of_experiment[method] = float(cell) if cell else math.nan
            except ValueError:
                problems.append(f"row {number}: the score of {method} is {cell!r}, which is not a number")
    if not scores:
        problems.append("there are no scores")
    if problems:
        raise DataError(
            f"{path} is not a table of scores.",
            problems,
            "Expected one row per experiment with a column per method, or the columns experiment, method, score.",
        )
    return scores


def _repeated(names: list[str]) -> list[str]:
    return [name for name in names if names.count(name) > 1]
