"""How often a comparison of photographs opens files, reads its journal, divides the data and builds its network.

Everything happens in one process (jobs=1), so that all of it is seen here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vicinal.comparing import baselines, compare
from vicinal.data.images import LOOKED_AT
from vicinal.report import write_report
from vicinal.runs import _train as fitting
from vicinal.runs import journal
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.recipe
CLASSES, EACH = 8, 6


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Coloured pictures of 80 pixels, one folder per class."""
    rng = np.random.default_rng(0)
    for label in range(CLASSES):
        folder = tmp_path / "photos" / f"class {label}"
        folder.mkdir(parents=True)
        for number in range(EACH):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8).repeat(10, axis=0).repeat(10, axis=1)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def audit() -> Iterator[Callable[[Path], Counter[str]]]:
    """Count how often the files below a folder are opened, by whatever opens them."""
    watched: dict[str, Counter[str]] = {}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | Path):
            for folder, opened in list(watched.items()):
                if str(arguments[0]).startswith(folder):
                    opened[str(arguments[0])] += 1

    sys.addaudithook(hook)  # which cannot be removed, and counts nothing once nothing is watched

    def watch(folder: Path) -> Counter[str]:
        return watched.setdefault(str(folder), Counter())

    yield watch
    watched.clear()


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[str]:
    """Have a function count its calls; return a list with the module of each caller."""
    real, callers = getattr(owner, name), list[str]()

    def counted(*parts: Any, **options: Any) -> Any:
        callers.append(sys._getframe(1).f_globals["__name__"])
        return real(*parts, **options)

    monkeypatch.setattr(owner, name, counted)
    return callers


def test_a_comparison_of_photographs_touches_each_file_and_makes_each_object_once(
    tmp_path: Path, photos: Path, audit: Callable[[Path], Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = audit(photos)
    readings = counting(monkeypatch, journal, "read_journals")
    splits = counting(monkeypatch, Recipe, "split")
    built = counting(monkeypatch, baselines, "build_embedder")
    trained = counting(monkeypatch, fitting, "build_embedder")
    board = compare(
        photos,
        ["triplet", "contrastive"],
        out=tmp_path / "runs",
        cache=tmp_path / "cache",
        backbones=["resnet18"],
        freeze=True,
        images="plain",
        copies=1,
        dim=8,
        protocol="k-fold",
        folds=2,
        steps=2,
        batch="2x2",
        rates=1,
        jobs=1,
        progress=True,
    )
    assert len(board.records) == 4
    assert len(opened) == CLASSES * EACH
    # 1: header, hash and looks. 2: features. Some are looked at once more to find out what kind of images they are.
    counts = Counter(opened.values())
    assert set(counts) <= {2, 3}
    assert counts[3] <= LOOKED_AT
    assert len(readings) == 0 or readings == ["vicinal.runs.journal"]
    # Once per fold by the comparison; what a run does inside is its own.
    assert len([caller for caller in splits if caller.startswith("vicinal.comparing")]) == 2
    # The untrained network once, before the first run; then one in each of four runs.
    assert (len(built), len(trained)) == (1, 4)

    before = Counter(opened)
    splits.clear()
    readings.clear()
    write_report(board, progress=False)
    touched = {path: opened[path] - before[path] for path in opened}
    assert max(touched.values()) == 1  # 3: pictures of the report
    assert (len(readings), len(splits)) == (0, 1)

    again = Counter(opened)
    compare(
        photos, ["triplet", "contrastive"], out=tmp_path / "runs", cache=tmp_path / "cache", backbones=["resnet18"],
        freeze=True, images="plain", copies=1, dim=8, protocol="k-fold", folds=2, steps=2, batch="2x2", rates=1,
        jobs=1, progress=False,
    )  # fmt: skip
    assert len(readings) == 1  # the journal that is there now, once
    assert max(opened[path] - again[path] for path in opened) == 1
