"""Audit of claims: the gain that a paper claims over others, and how much of it remains in the same settings."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, final

from vicinal._util.reading import read_text
from vicinal._util.text import counted
from vicinal.errors import DataError, InputError, UnknownName, look_up
from vicinal.literature.tables import Kind, Published, known_names, published, spelled

__all__ = [
    "Result",
    "as_results",
    "audit_claims",
    "of_method",
    "read_results",
    "summary",
    "thesis_cases",
    "unknown_names",
    "with_and_without",
]


# Results of papers with their settings: the cases of the thesis, published numbers, or your own CSV file.

FEWER_IS_BETTER = {"steps"}  # counts, compared by their ratio; all other scores are shares, compared by difference
MANY_PAPERS = "published numbers"
NEEDED = {"method", "dataset", "value"}
ANSWERS = {"": False, "no": False, "false": False, "0": False, "yes": True, "true": True, "1": True}


@final
@dataclass(frozen=True)
class Result:
    """One number of a paper, with the settings in which it was measured; None for an unknown setting.

    Names are stored in vicinal's spelling: "ResNet-50" becomes "resnet50". An unknown name is stored unchanged.

    Attributes:
        paper: Paper with the table.
        dataset: Name of the dataset in vicinal.
        score: Name of the score: "R@1", "P@1", "MAP@R", ...
        method: Name of the method in vicinal, or any other name.
        backbone: Network.
        dim: Dimension of the embeddings.
        pooling: "average", "max" or "both".
        image_size: Side of the images in pixels.
        value: Score from 0 to 1, or a count ("steps"); None if it is not known.
        proposed: Whether the paper proposes this method and compares it with the others.
        note: Problem with the value, which is then ignored.
        protocol: Use of test and validation classes. A table without this column has one protocol for all.
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
                object.__setattr__(self, kind, spelled(kind, name))  # frozen, but not yet visible to anyone

    @property
    def usable(self) -> float | None:
        """Value, or None if there is a problem with it."""
        return None if self.note else self.value

    @property
    def setting(self) -> str:
        """Network and all other known settings, in words."""
        network = " ".join(filter(None, (self.backbone or "an unnamed network", str(self.dim or ""))))
        pooling = "both poolings" if self.pooling == "both" else f"{self.pooling} pooling" if self.pooling else ""
        images = f"{self.image_size} pixels" if self.image_size else ""
        protocol = f"{self.protocol} protocol" if self.protocol else ""
        return ", ".join(filter(None, (network, pooling, images, protocol)))


def thesis_cases() -> list[Result]:
    """Return the comparisons that Psomas' thesis of 2020 calls unfair (section 3.5.1): five by network, three by dim.

    Values are those stated in its text or in the tables of "A unified view of deep metric learning via gradient
    analysis"; values stated in neither are left out, as are all poolings and image sizes. The rivals of Wu et al. are
    20 and 12.6 points below their 63.6 ("20 %" and "more than 12 %" in the thesis).
    """
    text = resources.files("vicinal.literature").joinpath("claims.csv").read_text(encoding="utf-8")
    return _parsed(text, "the cases of the thesis")


def read_results(path: str | Path) -> list[Result]:
    """Read results from a CSV file: columns method, dataset and value, and optionally paper, score, backbone, dim,
    pooling, image_size, protocol and proposed (yes).

    Values of one paper and score are in per cent, or shares if none of them is above 1. Values of the score "steps" are
    counts.
    """
    return _parsed(read_text(Path(path)), str(path))


def as_results(rows: Sequence[Published]) -> list[Result]:
    """Return published numbers as one table per dataset, in which the best is compared with all others.

    Numbers of single folds and splits are left out, as they cannot be compared; see `validated_parts`.
    """
    return [as_result(MANY_PAPERS, row) for row in rows if not row.part]


def as_result(paper: str, row: Published) -> Result:
    """Return a published number as a result of a paper."""
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
    """Return messages about names that no published number has, so that nothing can be compared with them.

    A method that a paper proposes may well be new and is not reported.

    Example:
        >>> unknown_names([Result("p", "cubb", "R@1", "margin", "ResNet50")])
        ["Unknown dataset 'cubb'; did you mean 'cub'? Choose from: cars196, cub, inshop, sop."]
    """
    used: dict[Kind, set[str | None]] = {
        "dataset": {result.dataset for result in results},
        "backbone": {result.backbone for result in results},
        "method": {result.method for result in results if not result.proposed},
    }
    return [
        str(UnknownName("network" if kind == "backbone" else kind, name, known_names(kind)))
        for kind, names in used.items()
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
        raise DataError(f"{name} has lines that cannot be read.", problems, "Correct them in the file.")
    if not results:
        raise InputError(f"{name} has no rows below its first line; add one per result.")
    return _shares(results)


def _result(cells: dict[str | Any, str | Any]) -> Result:
    if any(cells.pop(None, ())):
        raise ValueError("more cells than in the first line: put numbers with a comma in quotes")
    row = {column: (cell or "").strip() for column, cell in cells.items()}
    for column in ("method", "dataset"):
        if not row[column]:
            raise ValueError(f"column {column}: must not be empty")
    proposed = row.get("proposed", "").casefold()
    if proposed not in ANSWERS:
        raise ValueError(f"column proposed: must be yes or empty; got {row['proposed']!r}")
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
        if result.value == 0:  # a ratio to it is undefined
            raise ValueError(f"column value: {result.score} must be above 0; got {row['value']!r}")
    elif result.value is not None and result.value > 100:
        raise ValueError(f"column value: must be from 0 to 1, or from 0 to 100 in per cent; got {row['value']!r}")
    return result


def _number(row: dict[str, str], column: str) -> float | None:
    if not row.get(column):
        return None
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"column {column}: must be a number of at least 0, or empty; got {row[column]!r}")
    return number


def _whole(row: dict[str, str], column: str) -> int | None:
    number = _number(row, column)
    if number is not None and (number < 1 or not number.is_integer()):
        raise ValueError(f"column {column}: must be a whole number of at least 1, or empty; got {row[column]!r}")
    return None if number is None else int(number)


def _shares(results: list[Result]) -> list[Result]:
    """Return values as shares: a single number has no clear unit (0.9 is a share, or per cent), but a table has."""

    def table(result: Result) -> tuple[str, str]:
        return result.paper, result.score

    per_cent = {table(result) for result in results if result.value is not None and result.value > 1}
    return [
        replace(result, value=round(result.value / 100, 6))
        if result.value is not None and table(result) in per_cent and result.score not in FEWER_IS_BETTER
        else result
        for result in results
    ]


# The audit of claims.

SETTINGS = {"backbone": "network", "dim": "dimensions", "pooling": "pooling", "image_size": "image size"}
ALSO_CALLED = {"R@1": "P@1", "P@1": "R@1"}


class Setting(NamedTuple):
    """Setting of a measurement in a source."""

    source: str
    backbone: str
    dim: int | None
    pooling: str | None
    image_size: int | None


@final
@dataclass(frozen=True)
class AuditedClaim:
    """Comparison of a proposed method with another.

    Attributes:
        proposed: Result of the proposed method.
        other: Result that it is compared with.
        differs: Settings in which the two differ: "network", "dimensions", "pooling", "image size", "protocol".
        unknown: Settings that are not known for both.
        claimed: Difference according to the paper, for counts as a share of the other; None if a value is not known.
        same_setting: Mean difference over sources that measured both in one setting; None if there are none.
        settings: These settings, with the difference in each.
        exact: Whether they are the setting of the proposed method, and not just any setting.
        setting_alone: Gain of the other method from its setting to that of the proposed one, by a source that has
            both; None if there is none.
    """

    proposed: Result
    other: Result
    differs: tuple[str, ...]
    unknown: tuple[str, ...]
    claimed: float | None
    same_setting: float | None
    settings: tuple[tuple[str, float], ...]
    exact: bool
    setting_alone: float | None = None

    @property
    def fair(self) -> bool | None:
        """Whether all settings are the same; None if too little is known."""
        return False if self.differs else None if self.unknown else True

    @property
    def by_a_paper(self) -> bool:
        """Whether both numbers are from one paper; a difference across papers is not a claim of any of them."""
        return self.proposed.paper != MANY_PAPERS

    @property
    def explained(self) -> float | None:
        """Share of the claimed difference that disappears in the same setting."""
        if self.fair is not False or self.same_setting is None or not self.claimed or self.claimed < 0:
            return None  # defined only for a claimed improvement
        return 1 - self.same_setting / self.claimed

    @property
    def measured(self) -> bool:
        """Whether there are published numbers of both methods in one setting, or of the other method in both."""
        return self.same_setting is not None or self.setting_alone is not None

    def __str__(self) -> str:
        own, other = self.proposed, self.other
        verdicts = ("fair", "unfair") if self.by_a_paper else ("in one setting", "in different settings")
        verdict = {True: verdicts[0], False: verdicts[1], None: "settings not fully known"}[self.fair]
        lines = [f"{own.paper}, {own.dataset}: {own.method} against {other.method}: {verdict}"]
        lines.append(f"  {_value_in_words(own)} in {own.setting}; {_value_in_words(other)} in {other.setting}")
        if self.differs:
            lines.append(f"  differ in {', '.join(self.differs)}")
        if self.unknown:
            lines.append(f"  not known: {', '.join(self.unknown)}")
        if self.claimed is not None:
            word = "claimed" if self.by_a_paper else "difference"
            lines.append(f"  {word}: {_difference_in_words(self.claimed, own.score)}")
        if self.same_setting is not None:
            if not (self.fair and self.same_setting == self.claimed):  # otherwise it is this very comparison
                where = self.settings[0][0] if len(self.settings) == 1 else f"{len(self.settings)} settings"
                lines.append(f"  in one setting ({where}): {_difference_in_words(self.same_setting, own.score)}")
        elif self.fair is not True:
            lines.append("  no published numbers of both in one setting")
        if self.setting_alone is not None:
            gain = _difference_in_words(self.setting_alone, own.score)
            lines.append(f"  {other.method} alone, in the setting of {own.method} instead of its own: {gain}")
        if self.explained is not None:
            claimed = "claimed " if self.by_a_paper else ""
            lines.append(f"  {100 * self.explained:.0f} % of the {claimed}difference disappears")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "paper": self.proposed.paper,
            "dataset": self.proposed.dataset,
            "score": self.proposed.score,
            "proposed": self.proposed.method,
            "other": self.other.method,
            "fair": self.fair,
            "by_a_paper": self.by_a_paper,
            "differs": list(self.differs),
            "unknown": list(self.unknown),
            "claimed": self.claimed,
            "same_setting": self.same_setting,
            "settings": dict(self.settings),
            "exact": self.exact,
            "setting_alone": self.setting_alone,
            "notes": [result.note for result in (self.proposed, self.other) if result.note],
            "explained": self.explained,
        }


def audit_claims(results: Sequence[Result]) -> list[AuditedClaim]:
    """Compare the proposed method of each paper with all others in its table, by settings and same-setting numbers.

    Same-setting numbers are those of `published` where one source has both methods with one network, dimension, pooling
    and image size: in the setting of the proposed method as far as it is known, else with its network and dimension,
    else in all settings. R@1 and P@1 are the same score: if there are no numbers for one, the other is used.

    Args:
        results: Tables of papers. If none of a paper's results on a dataset is marked as proposed, the best one counts
            as proposed; for steps, the one with the fewest.

    Example:
        >>> claim = audit_claims(thesis_cases())[0]
        >>> claim.fair, claim.differs, round(claim.claimed, 3), round(claim.same_setting, 4)
        (False, ('network', 'dimensions'), 0.2, 0.0284)
    """
    return [
        _audited(own, other) for table in _tables(results) for own in _proposed(table) for other in _others(own, table)
    ]


def of_method(results: Sequence[Result], method: str) -> list[Result]:
    """Return the tables that contain a method, with that method marked as proposed.

    Args:
        results: Tables of papers.
        method: Name of the method, in any spelling.

    Raises:
        UnknownName: If no table contains it.
    """
    wanted = spelled("method", method)
    look_up("method", wanted, dict.fromkeys(result.method for result in results))
    tables = [table for table in _tables(results) if any(result.method == wanted for result in table)]
    return [replace(result, proposed=result.method == wanted) for table in tables for result in table]


def with_and_without(rows: Sequence[Published], extra: str) -> list[AuditedClaim]:
    """Compare each method with an addition ("ccp", "memory", a miner) with the same loss without it, by source.

    Example:
        >>> from vicinal.literature.tables import published
        >>> [f"{claim.claimed:+.0%}" for claim in with_and_without(published("inshop", score="steps"), "ccp")]
        ['+11%', '+34%', '+58%']
    """
    settings: dict[tuple[Any, ...], dict[str, Published]] = {}
    for row in rows:
        where = (row.source, row.dataset, row.protocol, row.backbone, row.dim, row.score, row.part)
        settings.setdefault(where, {})[row.method] = row
    claims = []
    for methods in settings.values():
        for method, row in methods.items():
            loss, *extras = method.split("+")
            plain = "+".join([loss, *(name for name in extras if name != extra)])
            if extra in extras and plain in methods:
                claims.append(_audited(as_result(row.source, row), as_result(row.source, methods[plain])))
    return claims


def summary(claims: Sequence[AuditedClaim]) -> str:
    """Summarise how many comparisons are unfair, and how much of the differences disappears in the same setting.

    Example:
        >>> print(summary(audit_claims(thesis_cases())).split(".")[0])
        14 of 14 comparisons are unfair
    """
    unfair = [claim for claim in claims if claim.fair is False]
    if all(claim.by_a_paper for claim in claims):
        sentences = [f"{len(unfair)} of {counted(len(claims), 'comparison')} are unfair."]
    else:
        sentences = [f"{len(unfair)} of {counted(len(claims), 'difference')} are between settings that differ."]
        sentences.append("They are differences between numbers of several papers; no paper claims them.")
    explained = [claim.explained for claim in unfair if claim.explained is not None]
    if explained:
        mean = 100 * sum(explained) / len(explained)
        sentences.append(
            f"For {len(explained)} of them there are numbers in the same setting: on average {mean:.0f} % of the "
            "difference disappears."
        )
        more = [claim for claim in unfair if claim.explained is None and claim.measured and claim.claimed is None]
        if more:
            sentences.append(
                f"For {len(more)} more the effect of the setting is known, but not the claimed difference."
            )
    if unknown := sum(claim.fair is None for claim in claims):
        sentences.append(f"For {unknown} it is unknown: not all of their settings are known.")
    return " ".join(sentences)


def _tables(results: Sequence[Result]) -> list[list[Result]]:
    tables: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        tables.setdefault((result.paper, result.dataset, result.score), []).append(result)
    return list(tables.values())


def _proposed(table: list[Result]) -> list[Result]:
    marked = [result for result in table if result.proposed]
    usable = [result for result in table if result.usable is not None]
    best = min if table[0].score in FEWER_IS_BETTER else max
    return marked or [best(usable, key=lambda result: result.usable or 0.0)] if usable else marked


def _others(own: Result, table: list[Result]) -> list[Result]:
    return [result for result in table if not result.proposed and result.method != own.method]


def _audited(own: Result, other: Result) -> AuditedClaim:
    pairs = {word: (getattr(own, name), getattr(other, name)) for name, word in SETTINGS.items()}
    if (own.protocol, other.protocol) != (None, None):  # a table without protocols has one protocol for all
        pairs["protocol"] = (own.protocol, other.protocol)
    differs = tuple(word for word, (first, second) in pairs.items() if None not in (first, second) and first != second)
    unknown = tuple(word for word, both in pairs.items() if None in both)
    gaps, exact = _nearest(_same_settings(own, other), own)
    return AuditedClaim(
        own,
        other,
        differs,
        unknown,
        _difference(own.usable, other.usable, own.score),
        sum(gaps.values()) / len(gaps) if gaps else None,
        tuple((f"{where.source}: {where.backbone} {where.dim or ''}".strip(), gap) for where, gap in gaps.items()),
        exact,
        _setting_alone(own, other) if differs else None,
    )


def _same_settings(own: Result, other: Result) -> dict[Setting, float]:
    """Return the difference of two methods in each setting in which one source has both."""
    for score in (own.score, ALSO_CALLED.get(own.score)):
        values: dict[Setting, dict[str, float]] = {}
        for row in _sound(own.dataset, score) if score else ():
            if row.backbone:
                where = Setting(row.source, row.backbone, row.dim, row.pooling or None, row.image_size)
                values.setdefault(where, {})[row.method] = row.value
        differences = {
            where: _difference(methods.get(own.method), methods.get(other.method), own.score)
            for where, methods in values.items()
        }
        if gaps := {where: gap for where, gap in differences.items() if gap is not None}:
            return gaps
    return {}


def _nearest(gaps: dict[Setting, float], own: Result) -> tuple[dict[Setting, float], bool]:
    """Return the differences in the settings closest to that of a result, and whether they are exactly that setting."""
    network = {where: gap for where, gap in gaps.items() if (where.backbone, where.dim) == (own.backbone, own.dim)}
    same = {
        where: gap
        for where, gap in network.items()
        if own.pooling in (None, where.pooling) and own.image_size in (None, where.image_size)
    }
    return same or network or gaps, bool(same)


def _setting_alone(own: Result, other: Result) -> float | None:
    """Return the gain of the other method in the setting of the first, from a source that has it in both settings."""
    other_setting, own_setting = (other.backbone, other.dim), (own.backbone or other.backbone, own.dim or other.dim)
    works: dict[tuple[str, str], dict[tuple[str, int | None], float]] = {}
    for row in _sound(other.dataset, other.score):
        if row.method == other.method:
            work = row.source.split(", Table")[0], row.protocol
            works.setdefault(work, {})[row.backbone, row.dim] = row.value
    gains = [
        _difference(values[own_setting], values[other_setting], own.score)
        for values in works.values()
        if own_setting != other_setting and own_setting in values and other_setting in values
    ]
    return gains[0] if gains else None


def _sound(dataset: str, score: str) -> list[Published]:
    """Return the published numbers of whole experiments without known problems."""
    return [row for row in published(dataset, score=score) if not row.part and not row.note]


def _difference(own: float | None, other: float | None, score: str) -> float | None:
    if own is None or other is None:
        return None
    return own / other - 1 if score in FEWER_IS_BETTER else own - other


def _difference_in_words(difference: float, score: str) -> str:
    if score in FEWER_IS_BETTER:
        return f"{100 * difference:+.0f} % {score}"
    return f"{100 * difference:+.2f} points of {score}"


def _value_in_words(result: Result) -> str:
    if result.value is None:
        return f"{result.method} has an unknown value"
    number = f"{result.value:,.0f} {result.score}" if result.score in FEWER_IS_BETTER else f"{100 * result.value:.2f}"
    return f"{result.method} has {number}" + (f" ({result.note})" if result.note else "")
