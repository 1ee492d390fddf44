"""Every Python block of the README and the user pages runs, page by page, in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.recipe
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
