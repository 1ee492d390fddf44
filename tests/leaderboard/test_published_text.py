"""The shipped numbers against the text of the papers, where it is present."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vicinal.literature import published

pytestmark = pytest.mark.real

NAMES = {
    "Contrastive": "contrastive",
    "Triplet": "triplet",
    "LiftedStructure": "lifted_structure",
    "NPair": "n_pair",
    "ProxyNCA": "proxy_nca",
    "Margin": "margin",
    "ArcFace": "arcface",
    "MultiSimilarity": "multi_similarity",
    "SoftTriple": "soft_triple",
    "ProxyAnchor": "proxy_anchor",
}


def text_of(real_data: Path, number: str) -> str:
    found = sorted((real_data.parent / "seeds").glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"the text of paper {number} does not lie beside the real data")
    return found[0].read_text(encoding="utf-8")


def table(text: str, caption: str, rows: int = 60) -> str:
    """The lines after a caption's last mention: the first is in the list of tables."""
    return "\n".join(text[text.rindex(f"\n{caption}") :].splitlines()[1:rows])


THESIS = {6: "cub", 7: "cub", 8: "cub", 9: "cars196", 10: "sop", 20: "cars196", 21: "cars196"}


@pytest.mark.parametrize("number", THESIS)
def test_the_grids_of_the_thesis(number: int, real_data: Path) -> None:
    body = table(text_of(real_data, "003"), f"Table {number}:", 30)
    scores = [f"R@{k}" for k in ((1, 10, 100, 1000) if number == 10 else (1, 2, 4, 8))]
    checked = 0
    for name, method in NAMES.items():
        numbers = [float(found) for found in re.findall(r"\d+\.\d+", " ".join(re.findall(rf"(?m)^{name}\t.*$", body)))]
        assert len(numbers) == 16
        for place, letter in enumerate("abcd"):  # two tables side by side, above two others
            for score, printed in zip(scores, numbers[4 * place : 4 * place + 4], strict=True):
                source = f"Psomas 2020, Table {number}{letter}"
                (row,) = [row for row in published(THESIS[number], method=method, score=score) if row.source == source]
                assert row.value == pytest.approx(printed / 100)
                assert row.dim == (64, 128, 512, 1024)[place]
                checked += 1
    assert checked == 160


def test_folds_and_splits_of_the_thesis(real_data: Path) -> None:
    text = text_of(real_data, "003")
    for number, pattern in (
        (13, r"(?m)^(\d+)\t(\d\d\.\d\d)\t(\d\d\.\d\d)$"),
        (14, r"(?m)^(\d\d/\d+)\t([\d.]+)\t([\d.]+)$"),
    ):
        printed = re.findall(pattern, table(text, f"Table {number}:", 14))
        rows = [row for row in published("cub") if row.source == f"Psomas 2020, Table {number}"]
        assert len(rows) == 2 * len(printed)
        told = {(row.part.removeprefix("fold "), row.score): row.value for row in rows}
        for part, validation, test in printed:
            assert told[part, "validation R@1"] == pytest.approx(float(validation) / 100)
            assert told[part, "R@1"] == pytest.approx(float(test) / 100)


OTHERS = {
    "HDC": "hdc",
    "Clustering": "clustering",
    "ProxyNCA": "proxy_nca",
    "Proxy-NCA": "proxy_nca",
    "Smart Mining": "smart_mining",
    "Margin": "margin",
    "HTL": "htl",
    "ABIER": "abier",
    "RAW+VTHM": "raw+valid_triplets",
}


@pytest.mark.parametrize(
    ("number", "heads"),
    [
        (2, {"cub": (1, 2, 4, 8, 16, 32), "cars196": (1, 2, 4, 8, 16, 32)}),
        (3, {"sop": (1, 10, 100, 1000), "inshop": (1, 10, 20, 30, 40, 50)}),
    ],
)
def test_the_tables_of_pair_weighting(number: int, heads: dict[str, tuple[int, ...]], real_data: Path) -> None:
    text = text_of(real_data, "002")
    columns = [(dataset, f"R@{k}") for dataset, ks in heads.items() for k in ks]
    rows = [row for row in published(source="A unified view") if row.source.endswith(f"Table {number}")]
    told = {(row.method, row.dataset, row.score): row.value for row in rows}
    assert len(told) == len(rows)
    printed = {}
    for line in text[text.index("CUB-200-2011\t") if number == 2 else text.index("\tSOP\t\t") :].splitlines()[2:11]:
        name, *cells = line.split("\t")
        if name in OTHERS and len(cells) == len(columns):
            values = dict(zip(columns, cells, strict=True))
            printed |= {(OTHERS[name], *where): float(cell) for where, cell in values.items() if cell != "-"}
    assert told == {where: pytest.approx(value / 100) for where, value in printed.items()}


def test_steps_to_convergence(real_data: Path) -> None:
    body = table(text_of(real_data, "001"), "Table 3.", 14)
    printed = [(int(sop), int(shop)) for sop, shop in re.findall(r"(?m)\t(\d+)K\t(\d+)K$", body)]
    rows = published(score="steps")
    told = [row.value / 1000 for row in rows]
    assert len(printed) == 10
    assert [value for pair in printed for value in pair] == told
    assert {row.dataset for row in rows} == {"sop", "inshop"}
