"""A new user: a messy folder through every command of the README, from an installed wheel, outside the repository."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow
README = Path(__file__).parents[2] / "README.md"
Run = Callable[..., subprocess.CompletedProcess[str]]
# What a new user would not type: so little that a minute or two show that all commands work together. The network is
# the one that vicinal chooses for photographs: pretrained, and frozen.
TINY = ["--steps", "3", "--skip-bad", "-q"]
BESIDES = {
    "compare": ["--rates", "1", *TINY],
    "train": TINY,
    "tune": [*TINY, "--trials", "2"],
    "audit": ["--triples", "1"],
    "calibrate": ["--false-matches", "0.5"],
}
TAKE_PHOTOS = ("embed", "evaluate", "calibrate")  # of which one cannot be read
TRIED_ELSEWHERE = ("demo", "serve", "recipes", "losses", "data", "--install-completion", "VERB")
LONG = "very_long_name_of_a_car_" * 5


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten classes of pictures, and all that a folder of pictures has in it after a year."""
    draw = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for name in ["Übergröße", "猫", f"{LONG}a", f"{LONG}b", "e", "f", "g", "h", "i", "j"]:
        (folder / name).mkdir(parents=True)
        base = draw.integers(0, 255, (6, 6, 3), dtype=np.uint8)
        for number in range(4):
            noisy = np.clip(base + draw.normal(0, 40, base.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).resize((96 + number, 80)).save(folder / name / f"{number}.png")
    (folder / ".DS_Store").write_bytes(b"\0\1")
    (folder / "e" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut short")
    Image.new("RGBA", (70, 70), (255, 0, 0, 60)).save(folder / "f" / "alpha.png")
    (folder / "g" / "2019").mkdir()
    Image.fromarray(draw.integers(0, 255, (9, 9, 3), dtype=np.uint8)).resize((90, 90)).save(
        folder / "g" / "2019" / "x.png"
    )
    (folder / "single").mkdir()
    Image.fromarray(draw.integers(0, 255, (9, 9, 3), dtype=np.uint8)).resize((90, 90)).save(folder / "single" / "1.png")
    (folder / "i" / "again.png").write_bytes((folder / "h" / "0.png").read_bytes())
    (folder / "empty").mkdir()
    return folder


def test_every_command_of_the_readme(vicinal: Run, photos: Path, tmp_path: Path) -> None:
    stopped = vicinal("data", "photos/", code=2)
    told = " ".join((stopped.stdout + stopped.stderr).split())
    for words in (
        "broken.jpg",
        "class folder without images",
        "has only one item and cannot be scored: single",
        "the same image in two classes",
    ):
        assert words in told, words
    (tmp_path / "unknown.jpg").write_bytes((photos / "e" / "0.png").read_bytes())
    found = json.loads(vicinal("data", "photos/", "--skip-bad", "--json").stdout)
    assert found["next"] == "vicinal compare photos/ --out runs/which --skip-bad"
    for command in readme_commands():
        verb, *words = shlex.split(command)[1:]
        if verb in TRIED_ELSEWHERE or "LOSS" in words or words == ["photos/"]:  # a comparison, made above with --out
            continue
        if verb == "tournament":
            words = []  # one comparison is none: the thesis's instead
        besides = [] if "--resume" in words else BESIDES.get(verb, [])
        if verb in TAKE_PHOTOS and "photos/" in words:
            besides = [*besides, "--skip-bad"]
        vicinal(verb, *words, *besides)
    backbone = tomllib.loads((tmp_path / "runs" / "first" / "recipe.toml").read_text())["backbone"]
    assert backbone == "efficientnet_lite0"
    assert (tmp_path / "runs" / "which" / "report.html").is_file()
    assert (tmp_path / "runs" / "which" / "best").is_dir()
    assert len(np.load(tmp_path / "embeddings.npz")["embeddings"]) == 44


def readme_commands() -> list[str]:
    """The commands of the README, in an order in which each finds what it needs: blocks first, then the table."""
    text = README.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = "\n".join(block for language, block in fenced if not language)
    lines = [line.partition("#")[0].strip() for line in blocks.splitlines()]
    table = re.findall(r"`(vicinal [^`]+)`", text)
    known = [line for line in [*lines, *table] if line.startswith("vicinal ")]
    return list(dict.fromkeys(known))
