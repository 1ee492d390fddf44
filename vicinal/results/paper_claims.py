"""Fair or not: what a paper claims to gain over others, and how much of it is left where settings are the same."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, final

from vicinal.errors import DataError, InputError
from vicinal.reading import read_text
from vicinal.results.literature import Published, published

__all__ = ["AuditedClaim", "Result", "as_results", "audit_claims", "read_results", "thesis_cases", "with_and_without"]

SETTINGS = ("backbone", "dim", "pooling", "image_size")
WORDS = {"backbone": "network", "dim": "dimensions", "pooling": "pooling", "image_size": "image size"}
NEEDED = {"method", "dataset", "value"}
FEWER_IS_BETTER = {"steps"}  # counts, whose differences are shares; all other scores are shares themselves
ALSO_CALLED = {"R@1": "P@1", "P@1": "R@1"}


@final
@dataclass(frozen=True)
class Result:
    """One number of a paper, with the settings it was measured in; None for a setting that is not known.

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

    @property
    def usable(self) -> float | None:
        """The value, unless something is wrong with it."""
        return None if self.note else self.value

    @property
    def setting(self) -> str:
        """The network, and whatever else is known, in words."""
        size = "" if self.image_size is None else f"{self.image_size} pixels"
        dim = "" if self.dim is None else str(self.dim)
        return " ".join(filter(None, (self.backbone or "a network that is not named", dim, self.pooling, size)))


@final
@dataclass(frozen=True)
class AuditedClaim:
    """A method that is proposed against one that it is compared with.

    Attributes:
        proposed: The paper's own result.
        other: What it is compared with.
        differs: Settings in which the two differ: "network", "dimensions", "pooling", "image size".
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
        verdict = {True: "fair", False: "unfair", None: "cannot be told"}[self.fair]
        lines = [f"{one.paper}, {one.dataset}: {one.method} against {other.method}: {verdict}"]
        lines.append(f"  {_said(one)} in {one.setting}; {_said(other)} in {other.setting}")
        if self.differs:
            lines.append(f"  differ in {', '.join(self.differs)}")
        if self.claimed is not None:
            lines.append(f"  claimed: {_difference_in_words(self.claimed, one.score)}")
        if self.same_setting is not None:
            where = self.settings[0][0] if len(self.settings) == 1 else f"{len(self.settings)} settings"
            lines.append(f"  in the same setting ({where}): {_difference_in_words(self.same_setting, one.score)}")
        elif self.fair is not True:
            lines.append("  nobody in the published numbers has measured both in one setting")
        if self.setting_alone is not None:
            gain = _difference_in_words(self.setting_alone, one.score)
            lines.append(f"  {other.method} itself, in the setting of {one.method} instead of its own: {gain}")
        if self.explained is not None:
            lines.append(f"  {100 * self.explained:.0f} % of the claimed difference goes away")
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

    Same-setting numbers are those of `published` where one source has both methods with one network and one dimension:
    in the setting of the proposed method if there are any, in all settings otherwise. R@1 and P@1 are one number by
    two names: where nobody has the one, the other counts.

    Args:
        results: Tables of papers. Where none of a paper's results on a dataset is marked as proposed, the best is: of
            steps that with the fewest.

    Example:
        >>> claim = audit_claims(thesis_cases())[0]
        >>> claim.fair, claim.differs, round(claim.claimed, 3), round(claim.same_setting, 4)
        (False, ('network', 'dimensions'), 0.2, 0.0284)
    """
    tables: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        tables.setdefault((result.paper, result.dataset, result.score), []).append(result)
    return [
        _audited(one, other) for table in tables.values() for one in _proposed(table) for other in _others(one, table)
    ]


def thesis_cases() -> list[Result]:
    """The comparisons that Psomas' thesis of 2020 calls unfair (section 3.5.1): five by network, three by dimension.

    Values are those that its text or the tables of "A unified view of deep metric learning via gradient analysis"
    state; what neither states is left out. The rivals of Wu et al. stand 20 and 12.6 points below their 63.6 ("20 %"
    and "more than 12 %" in the thesis).
    """
    text = resources.files("vicinal.results").joinpath("claims.csv").read_text(encoding="utf-8")
    return _parsed(text, "the cases of the thesis")


def read_results(path: str | Path) -> list[Result]:
    """Read results from a CSV file: columns method, dataset and value, and paper, score, backbone, dim, pooling,
    image_size and proposed (yes) where they are known. Values are per cent, or shares where none is above 1."""
    return _parsed(read_text(Path(path)), str(path))


def as_results(rows: Sequence[Published]) -> list[Result]:
    """Return published numbers as one table per dataset, in which the best is compared with all others.

    Numbers of single folds and splits are no rivals of anything: `validated_parts` is for those.
    """
    return [_as_result("published numbers", row) for row in rows if not row.part]


def with_and_without(rows: Sequence[Published], extra: str) -> list[AuditedClaim]:
    """Compare each method that uses something ("ccp", "memory", a miner) with the same loss without it, by source.

    Example:
        >>> from vicinal.results.literature import published
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
                claims.append(_audited(_as_result(row.source, row), _as_result(row.source, methods[plain])))
    return claims


def _as_result(paper: str, row: Published) -> Result:
    return Result(
        paper,
        row.dataset,
        row.score,
        row.method,
        row.backbone or None,
        row.dim,
        value=row.value,
        note=row.note,
    )


def _proposed(table: list[Result]) -> list[Result]:
    marked = [result for result in table if result.proposed]
    known = [result for result in table if result.usable is not None]
    best = min if table[0].score in FEWER_IS_BETTER else max
    return marked or [best(known, key=lambda result: result.usable or 0.0)] if known else marked


def _others(one: Result, table: list[Result]) -> list[Result]:
    return [result for result in table if not result.proposed and result.method != one.method]


def _audited(one: Result, other: Result) -> AuditedClaim:
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in SETTINGS}
    differs = tuple(
        WORDS[name] for name, (mine, theirs) in pairs.items() if None not in (mine, theirs) and mine != theirs
    )
    unknown = tuple(WORDS[name] for name, both in pairs.items() if None in both)
    same = _same_settings(one, other)
    exact = {name: gap for (backbone, dim, name), gap in same.items() if (backbone, dim) == (one.backbone, one.dim)}
    found = exact or {name: gap for (_, _, name), gap in same.items()}
    return AuditedClaim(
        one,
        other,
        differs,
        unknown,
        _difference(one.usable, other.usable, one.score),
        sum(found.values()) / len(found) if found else None,
        tuple(found.items()),
        bool(exact),
        _setting_alone(one, other) if differs else None,
    )


def _same_settings(one: Result, other: Result) -> dict[tuple[str, int | None, str], float]:
    """Return the difference of two methods wherever one source has both with one network and dimension."""
    for score in (one.score, ALSO_CALLED.get(one.score)):
        values: dict[tuple[str, str, int | None], dict[str, float]] = {}
        for row in _sound(one.dataset, score) if score else ():
            if row.backbone:
                values.setdefault((row.source, row.backbone, row.dim), {})[row.method] = row.value
        known = {
            (backbone, dim, f"{source}: {backbone} {dim or ''}".strip()): _difference(
                found.get(one.method), found.get(other.method), one.score
            )
            for (source, backbone, dim), found in values.items()
        }
        if gaps := {where: gap for where, gap in known.items() if gap is not None}:
            return gaps
    return {}


def _setting_alone(one: Result, other: Result) -> float | None:
    """Return what the other method gains in the setting of the first, by a source that has it in both."""
    theirs, ours = (other.backbone, other.dim), (one.backbone or other.backbone, one.dim or other.dim)
    works: dict[str, dict[tuple[str, int | None], float]] = {}
    for row in _sound(other.dataset, other.score):
        if row.method == other.method:
            works.setdefault(row.source.split(", Table")[0], {})[row.backbone, row.dim] = row.value
    gains = [
        _difference(values[ours], values[theirs], one.score)
        for values in works.values()
        if ours in values and theirs in values
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


def _parsed(text: str, name: str) -> list[Result]:
    rows = list(csv.DictReader(text.splitlines()))
    columns = set(rows[0]) if rows else set()
    if not columns >= NEEDED:
        missing = ", ".join(sorted(NEEDED - columns))
        raise InputError(f"{name} needs the columns method, dataset and value; it lacks {missing}.")
    results, problems = [], []
    for line, row in enumerate(rows, start=2):
        try:
            results.append(_result({key: (value or "").strip() for key, value in row.items() if key is not None}))
        except ValueError as error:
            problems.append(f"line {line}: {error}")
    if problems:
        raise DataError(f"{name} has lines that cannot be read.", problems)
    return results


def _result(row: dict[str, str]) -> Result:
    if not row["method"] or not row["dataset"]:
        raise ValueError("method and dataset must be given")
    value = float(row["value"]) if row["value"] else None
    if value is not None and not 0 <= value <= 100:
        raise ValueError(f"a value is from 0 to 1, or from 0 to 100 in per cent; got {value}")
    return Result(
        row.get("paper") or "this table",
        row["dataset"],
        row.get("score") or "R@1",
        row["method"],
        row.get("backbone") or None,
        int(row["dim"]) if row.get("dim") else None,
        row.get("pooling") or None,
        int(row["image_size"]) if row.get("image_size") else None,
        value if value is None or value <= 1 else round(value / 100, 6),
        row.get("proposed", "").lower() in ("yes", "true", "1"),
    )
