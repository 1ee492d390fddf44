"""Fair or not: what a paper claims to gain over others, and how much of it is left where settings are the same."""

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


# Numbers of papers with their settings: the cases of the thesis, published numbers, or a CSV file of one's own.

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
    text = resources.files("vicinal.literature").joinpath("claims.csv").read_text(encoding="utf-8")
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


SETTINGS = {"backbone": "network", "dim": "dimensions", "pooling": "pooling", "image_size": "image size"}
ALSO_CALLED = {"R@1": "P@1", "P@1": "R@1"}


class Setting(NamedTuple):
    """Where a source measured something."""

    source: str
    backbone: str
    dim: int | None
    pooling: str | None
    image_size: int | None


@final
@dataclass(frozen=True)
class AuditedClaim:
    """A method that is proposed against one that it is compared with.

    Attributes:
        proposed: The paper's own result.
        other: What it is compared with.
        differs: Settings in which the two differ: "network", "dimensions", "pooling", "image size", "protocol".
        unknown: Settings that are known of one of them, or of neither.
        claimed: The difference as it stands in the paper, of counts as a share of the other's; None where a value is
            not known.
        same_setting: The mean difference where others measured both in one setting; None where nobody has.
        settings: Those settings, with the difference in each.
        exact: Whether they are the setting of the proposed method, and not just any.
        setting_alone: What the other method gains where a source has it in the settings of both; None where none has.
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
        """Whether all settings are the same; None where too little is known to tell."""
        return False if self.differs else None if self.unknown else True

    @property
    def by_a_paper(self) -> bool:
        """Whether one paper has both numbers; the difference of numbers of several papers is nobody's claim."""
        return self.proposed.paper != MANY_PAPERS

    @property
    def explained(self) -> float | None:
        """The share of the claimed difference that goes away in the same setting."""
        if self.fair is not False or self.same_setting is None or not self.claimed or self.claimed < 0:
            return None  # of what is better, and of nothing else
        return 1 - self.same_setting / self.claimed

    @property
    def measured(self) -> bool:
        """Whether published numbers say anything of the two in one setting, or of the other in both."""
        return self.same_setting is not None or self.setting_alone is not None

    def __str__(self) -> str:
        one, other = self.proposed, self.other
        verdicts = ("fair", "unfair") if self.by_a_paper else ("in one setting", "in different settings")
        verdict = {True: verdicts[0], False: verdicts[1], None: "cannot be told"}[self.fair]
        lines = [f"{one.paper}, {one.dataset}: {one.method} against {other.method}: {verdict}"]
        lines.append(f"  {_said(one)} in {one.setting}; {_said(other)} in {other.setting}")
        if self.differs:
            lines.append(f"  differ in {', '.join(self.differs)}")
        if self.unknown:
            lines.append(f"  not known: {', '.join(self.unknown)}")
        if self.claimed is not None:
            word = "claimed" if self.by_a_paper else "difference"
            lines.append(f"  {word}: {_difference_in_words(self.claimed, one.score)}")
        if self.same_setting is not None:
            if not (self.fair and self.same_setting == self.claimed):  # which is this very comparison
                where = self.settings[0][0] if len(self.settings) == 1 else f"{len(self.settings)} settings"
                lines.append(f"  in one setting ({where}): {_difference_in_words(self.same_setting, one.score)}")
        elif self.fair is not True:
            lines.append("  nobody in the published numbers has measured both in one setting")
        if self.setting_alone is not None:
            gain = _difference_in_words(self.setting_alone, one.score)
            lines.append(f"  {other.method} itself, in the setting of {one.method} instead of its own: {gain}")
        if self.explained is not None:
            claimed = "claimed " if self.by_a_paper else ""
            lines.append(f"  {100 * self.explained:.0f} % of the {claimed}difference goes away")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """Compare what each paper proposes with everything else in its table, in settings and in same-setting numbers.

    Same-setting numbers are those of `published` where one source has both methods with one network, dimension, pooling
    and image size: in the setting of the proposed method as far as it is known, else with its network and dimension,
    else in all settings. R@1 and P@1 are one number by
    two names: where nobody has the one, the other counts.

    Args:
        results: Tables of papers. Where none of a paper's results on a dataset is marked as proposed, the best is: of
            steps that with the fewest.

    Example:
        >>> claim = audit_claims(thesis_cases())[0]
        >>> claim.fair, claim.differs, round(claim.claimed, 3), round(claim.same_setting, 4)
        (False, ('network', 'dimensions'), 0.2, 0.0284)
    """
    return [
        _audited(one, other) for table in _tables(results) for one in _proposed(table) for other in _others(one, table)
    ]


def of_method(results: Sequence[Result], method: str) -> list[Result]:
    """Return the tables that have a method, as if it were what they propose.

    Args:
        results: Tables of papers.
        method: In any spelling.

    Raises:
        UnknownName: Where no table has it.
    """
    wanted = spelled("method", method)
    look_up("method", wanted, dict.fromkeys(result.method for result in results))
    tables = [table for table in _tables(results) if any(result.method == wanted for result in table)]
    return [replace(result, proposed=result.method == wanted) for table in tables for result in table]


def with_and_without(rows: Sequence[Published], extra: str) -> list[AuditedClaim]:
    """Compare each method that uses something ("ccp", "memory", a miner) with the same loss without it, by source.

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
            loss, *extras = method.split(" + ")
            plain = " + ".join([loss, *(name for name in extras if name != extra)])
            if extra in extras and plain in methods:
                claims.append(_audited(as_result(row.source, row), as_result(row.source, methods[plain])))
    return claims


def summary(claims: Sequence[AuditedClaim]) -> str:
    """Say how many comparisons are unfair, and how much of them goes away where the setting is the same.

    Example:
        >>> print(summary(audit_claims(thesis_cases())).split(".")[0])
        14 of 14 comparisons are unfair
    """
    unfair = [claim for claim in claims if claim.fair is False]
    if all(claim.by_a_paper for claim in claims):
        said = [f"{len(unfair)} of {counted(len(claims), 'comparison')} are unfair."]
    else:
        said = [f"{len(unfair)} of {counted(len(claims), 'difference')} are between settings that differ."]
        said.append("They are differences of numbers of several papers, and no paper claims them.")
    told = [claim.explained for claim in unfair if claim.explained is not None]
    if told:
        mean = 100 * sum(told) / len(told)
        said.append(
            f"Of {len(told)} of them the same setting is known: on average {mean:.0f} % of the difference goes away."
        )
        more = [claim for claim in unfair if claim.explained is None and claim.measured and claim.claimed is None]
        if more:
            said.append(f"Of {len(more)} more it is known what the setting does, but not how much was claimed.")
    if untold := sum(claim.fair is None for claim in claims):
        said.append(f"Of {untold} it cannot be told whether they are: not all of their settings are known.")
    return " ".join(said)


def _tables(results: Sequence[Result]) -> list[list[Result]]:
    tables: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        tables.setdefault((result.paper, result.dataset, result.score), []).append(result)
    return list(tables.values())


def _proposed(table: list[Result]) -> list[Result]:
    marked = [result for result in table if result.proposed]
    known = [result for result in table if result.usable is not None]
    best = min if table[0].score in FEWER_IS_BETTER else max
    return marked or [best(known, key=lambda result: result.usable or 0.0)] if known else marked


def _others(one: Result, table: list[Result]) -> list[Result]:
    return [result for result in table if not result.proposed and result.method != one.method]


def _audited(one: Result, other: Result) -> AuditedClaim:
    pairs = {word: (getattr(one, name), getattr(other, name)) for name, word in SETTINGS.items()}
    if (one.protocol, other.protocol) != (None, None):  # a table that does not say has one protocol for all
        pairs["protocol"] = (one.protocol, other.protocol)
    differs = tuple(word for word, (mine, theirs) in pairs.items() if None not in (mine, theirs) and mine != theirs)
    unknown = tuple(word for word, both in pairs.items() if None in both)
    gaps, exact = _nearest(_same_settings(one, other), one)
    return AuditedClaim(
        one,
        other,
        differs,
        unknown,
        _difference(one.usable, other.usable, one.score),
        sum(gaps.values()) / len(gaps) if gaps else None,
        tuple((f"{where.source}: {where.backbone} {where.dim or ''}".strip(), gap) for where, gap in gaps.items()),
        exact,
        _setting_alone(one, other) if differs else None,
    )


def _same_settings(one: Result, other: Result) -> dict[Setting, float]:
    """Return the difference of two methods wherever one source has both in one setting."""
    for score in (one.score, ALSO_CALLED.get(one.score)):
        values: dict[Setting, dict[str, float]] = {}
        for row in _sound(one.dataset, score) if score else ():
            if row.backbone:
                where = Setting(row.source, row.backbone, row.dim, row.pooling or None, row.image_size)
                values.setdefault(where, {})[row.method] = row.value
        known = {
            where: _difference(methods.get(one.method), methods.get(other.method), one.score)
            for where, methods in values.items()
        }
        if gaps := {where: gap for where, gap in known.items() if gap is not None}:
            return gaps
    return {}


def _nearest(gaps: dict[Setting, float], one: Result) -> tuple[dict[Setting, float], bool]:
    """Return the differences in the settings nearest to that of a result, and whether it is that setting itself."""
    network = {where: gap for where, gap in gaps.items() if (where.backbone, where.dim) == (one.backbone, one.dim)}
    same = {
        where: gap
        for where, gap in network.items()
        if one.pooling in (None, where.pooling) and one.image_size in (None, where.image_size)
    }
    return same or network or gaps, bool(same)


def _setting_alone(one: Result, other: Result) -> float | None:
    """Return what the other method gains in the setting of the first, by a source that has it in both."""
    theirs, ours = (other.backbone, other.dim), (one.backbone or other.backbone, one.dim or other.dim)
    works: dict[tuple[str, str], dict[tuple[str, int | None], float]] = {}
    for row in _sound(other.dataset, other.score):
        if row.method == other.method:
            work = row.source.split(", Table")[0], row.protocol
            works.setdefault(work, {})[row.backbone, row.dim] = row.value
    gains = [
        _difference(values[ours], values[theirs], one.score)
        for values in works.values()
        if ours != theirs and ours in values and theirs in values
    ]
    return gains[0] if gains else None


def _sound(dataset: str, score: str) -> list[Published]:
    """Return the published numbers of whole experiments with which nothing is wrong."""
    return [row for row in published(dataset, score=score) if not row.part and not row.note]


def _difference(one: float | None, other: float | None, score: str) -> float | None:
    if one is None or other is None:
        return None
    return one / other - 1 if score in FEWER_IS_BETTER else one - other


def _difference_in_words(difference: float, score: str) -> str:
    if score in FEWER_IS_BETTER:
        return f"{100 * difference:+.0f} % {score}"
    return f"{100 * difference:+.2f} points of {score}"


def _said(result: Result) -> str:
    if result.value is None:
        return f"{result.method} has a value that is not known"
    number = f"{result.value:,.0f} {result.score}" if result.score in FEWER_IS_BETTER else f"{100 * result.value:.2f}"
    return f"{result.method} has {number}" + (f" ({result.note})" if result.note else "")
