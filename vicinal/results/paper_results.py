"""Numbers of papers with their settings: the cases of the thesis, published numbers, or a CSV file of one's own."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, final

from vicinal.errors import DataError, InputError, UnknownName
from vicinal.reading import read_text
from vicinal.results.literature import Published
from vicinal.results.spellings import Kind, known_names, spelled

__all__ = [
    "FEWER_IS_BETTER",
    "MANY_PAPERS",
    "Result",
    "as_result",
    "as_results",
    "read_results",
    "thesis_cases",
    "unknown_names",
]

FEWER_IS_BETTER = {"steps"}  # counts, whose differences are shares; all other scores are shares themselves
MANY_PAPERS = "published numbers"
NEEDED = {"method", "dataset", "value"}
ANSWERS = {"": False, "no": False, "false": False, "0": False, "yes": True, "true": True, "1": True}


@final
@dataclass(frozen=True)
class Result:
    """One number of a paper, with the settings it was measured in; None for a setting that is not known.

    Names are kept in vicinal's spelling: "ResNet-50" becomes "resnet50". A name that vicinal does not know stays.

    Attributes:
        paper: Whose table it stands in.
        dataset: vicinal's name of it.
        score: "R@1", "P@1", "MAP@R", ...
        method: vicinal's name of it, or any other.
        backbone: The network.
        dim: Length of the embeddings.
        pooling: "average", "max" or "both".
        image_size: Pixels of a side.
        value: From 0 to 1, or a count ("steps"); None where it is not known.
        proposed: Whether the paper proposes this method, and compares it with the others.
        note: What is wrong with the value, which then counts for nothing.
        protocol: How test and validation classes were used. A table that does not say has one for all.
    """

    paper: str
    dataset: str
    score: str
    method: str
    backbone: str | None = None
    dim: int | None = None
    pooling: str | None = None
    image_size: int | None = None
    value: float | None = None
    proposed: bool = False
    note: str = ""
    protocol: str | None = None

    def __post_init__(self) -> None:
        kinds: tuple[Kind, ...] = ("dataset", "score", "method", "backbone", "pooling")
        for kind in kinds:
            name = getattr(self, kind)
            if name is not None:
                object.__setattr__(self, kind, spelled(kind, name))  # once, before anybody has seen it

    @property
    def usable(self) -> float | None:
        """The value, unless something is wrong with it."""
        return None if self.note else self.value

    @property
    def setting(self) -> str:
        """The network, and whatever else is known, in words."""
        network = " ".join(filter(None, (self.backbone or "an unnamed network", str(self.dim or ""))))
        pooling = "both poolings" if self.pooling == "both" else f"{self.pooling} pooling" if self.pooling else ""
        images = f"{self.image_size} pixels" if self.image_size else ""
        protocol = f"{self.protocol} protocol" if self.protocol else ""
        return ", ".join(filter(None, (network, pooling, images, protocol)))


def thesis_cases() -> list[Result]:
    """The comparisons that Psomas' thesis of 2020 calls unfair (section 3.5.1): five by network, three by dimension.

    Values are those that its text or the tables of "A unified view of deep metric learning via gradient analysis"
    state; what neither states is left out, as are pooling and image size of all of them. The rivals of Wu et al. stand
    20 and 12.6 points below their 63.6 ("20 %" and "more than 12 %" in the thesis).
    """
    text = resources.files("vicinal.results").joinpath("claims.csv").read_text(encoding="utf-8")
    return _parsed(text, "the cases of the thesis")


def read_results(path: str | Path) -> list[Result]:
    """Read results from a CSV file: columns method, dataset and value, and paper, score, backbone, dim, pooling,
    image_size, protocol and proposed (yes) where they are known.

    Values of one paper and score are per cent, or shares where none of them is above 1. Of the score "steps" they are
    counts.
    """
    return _parsed(read_text(Path(path)), str(path))


def as_results(rows: Sequence[Published]) -> list[Result]:
    """Return published numbers as one table per dataset, in which the best is compared with all others.

    Numbers of single folds and splits are no rivals of anything: `validated_parts` is for those.
    """
    return [as_result(MANY_PAPERS, row) for row in rows if not row.part]


def as_result(paper: str, row: Published) -> Result:
    """Return a published number as one of a paper's table."""
    return Result(
        paper,
        row.dataset,
        row.score,
        row.method,
        row.backbone or None,
        row.dim,
        row.pooling or None,
        row.image_size,
        row.value,
        note=row.note,
        protocol=row.protocol,
    )


def unknown_names(results: Sequence[Result]) -> list[str]:
    """Say which names no published number has, so that nothing can be compared with them.

    What a paper proposes may well be new; its name is not among them.

    Example:
        >>> unknown_names([Result("p", "cubb", "R@1", "margin", "ResNet50")])
        ["Unknown dataset 'cubb'; did you mean 'cub'? Choose from: cars196, cub, inshop, sop."]
    """
    given: dict[Kind, set[str | None]] = {
        "dataset": {result.dataset for result in results},
        "backbone": {result.backbone for result in results},
        "method": {result.method for result in results if not result.proposed},
    }
    return [
        str(UnknownName("network" if kind == "backbone" else kind, name, known_names(kind)))
        for kind, names in given.items()
        for name in sorted(name for name in names if name is not None and name not in known_names(kind))
    ]


def _parsed(text: str, name: str) -> list[Result]:
    reader = csv.DictReader(text.splitlines())
    reader.fieldnames = [column.strip().casefold() for column in reader.fieldnames or ()]
    if missing := NEEDED - set(reader.fieldnames):
        raise InputError(
            f"{name} needs the columns method, dataset and value; it lacks {', '.join(sorted(missing))}. Its first "
            f"line has: {', '.join(reader.fieldnames) or 'nothing'}."
        )
    results, problems = [], []
    for row in reader:
        try:
            results.append(_result(row))
        except ValueError as error:
            problems.append(f"line {reader.line_num}, {error}")
    if problems:
        raise DataError(f"{name} has lines that cannot be read.", problems, "Mend them in the file.")
    if not results:
        raise InputError(f"{name} has no rows below its first line: give one per result.")
    return _shares(results)


def _result(cells: dict[str | Any, str | Any]) -> Result:
    if any(cells.pop(None, ())):
        raise ValueError("more cells than in the first line: put numbers that have a comma into quotes")
    row = {column: (cell or "").strip() for column, cell in cells.items()}
    for column in ("method", "dataset"):
        if not row[column]:
            raise ValueError(f"column {column}: must be given; it is empty")
    proposed = row.get("proposed", "").casefold()
    if proposed not in ANSWERS:
        raise ValueError(f"column proposed: yes, or nothing; got {row['proposed']!r}")
    result = Result(
        row.get("paper") or "this table",
        row["dataset"],
        row.get("score") or "R@1",
        row["method"],
        row.get("backbone") or None,
        _whole(row, "dim"),
        row.get("pooling") or None,
        _whole(row, "image_size"),
        _number(row, "value"),
        ANSWERS[proposed],
        protocol=row.get("protocol") or None,
    )
    if result.score in FEWER_IS_BETTER:
        if result.value == 0:  # of which no share can be told
            raise ValueError(f"column value: {result.score} are more than 0; got {row['value']!r}")
    elif result.value is not None and result.value > 100:
        raise ValueError(f"column value: from 0 to 1, or from 0 to 100 in per cent; got {row['value']!r}")
    return result


def _number(row: dict[str, str], column: str) -> float | None:
    if not row.get(column):
        return None
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"column {column}: a number from 0 on, or nothing; got {row[column]!r}")
    return number


def _whole(row: dict[str, str], column: str) -> int | None:
    number = _number(row, column)
    if number is not None and (number < 1 or not number.is_integer()):
        raise ValueError(f"column {column}: a whole number from 1 on, or nothing; got {row[column]!r}")
    return None if number is None else int(number)


def _shares(results: list[Result]) -> list[Result]:
    """Return values as shares: one number tells nothing of its unit (0.9 is a share, or per cent), a table does."""

    def table(result: Result) -> tuple[str, str]:
        return result.paper, result.score

    per_cent = {table(result) for result in results if result.value is not None and result.value > 1}
    return [
        replace(result, value=round(result.value / 100, 6))
        if result.value is not None and table(result) in per_cent and result.score not in FEWER_IS_BETTER
        else result
        for result in results
    ]
