"""Every Python block of the README and the user pages runs, page by page, in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_photos(folder: Path) -> None:
    """A folder of pictures, as pages take it for granted: two classes of three."""
    for number, colour in enumerate(["red", "red", "red", "blue", "blue", "blue"]):
        (folder / colour).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32 + number), colour).save(folder / colour / f"{number}.png")


@pytest.mark.recipe
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos")
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(BLOCK.findall(page.read_text())):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), names)


def test_pages_link_only_to_files_that_exist() -> None:
    missing = [
        f"{page.name} -> {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not missing
