"""A comparison says before it begins that a picture is on both sides of its split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.comparing.progress import opening_words
from vicinal.data import folder
from vicinal.runs.recipe import Recipe


def test_a_leak_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        for number in range(3):
            noise = Image.fromarray(rng.integers(0, 255, (6, 6), dtype=np.uint8)).resize((60, 60))
            noise.save(tmp_path / name / f"{number}.png")
    recipe = Recipe(data=str(tmp_path), loss="triplet", backbone="convnet")

    def told() -> list[str]:
        data = folder(tmp_path)
        return [line for line in opening_words(recipe, data, recipe.split(data), [], panel=False) if "LEAK" in line]

    assert not told()
    (tmp_path / "d" / "copy.png").write_bytes((tmp_path / "a" / "0.png").read_bytes())
    assert len(told()) == 1
