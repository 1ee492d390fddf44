"""Every Python block of the README and the user pages runs, page by page, in a folder of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from PIL import Image

from vicinal.index import folder as index_folder
from vicinal.index import improve as improved_store
from vicinal.index import improve as improvement
from vicinal.index import map as map_layout
from vicinal.index import model as kept_model
from vicinal.index import stores as choosing_store
from vicinal.index.stores import embedded as embedded_store
from vicinal.index.stores import vectors as fast_codes
from vicinal.index.stores import vectors as layout_file

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


def test_a_block_names_its_language_alone() -> None:
    """The site shows a block with further words as plain text; `py` is Python that needs other files or a server."""
    fences = [(page.name, line) for page in PAGES for line in page.read_text().splitlines() if line.startswith("```")]
    assert [fence for fence in fences if not re.fullmatch(r"```\w*", fence[1])] == []
    assert len([fence for fence in fences if fence[1] == "```py"]) <= 3


def test_pages_link_only_to_files_that_exist() -> None:
    missing = [
        f"{page.name} -> {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not missing


def test_every_file_of_an_index_is_on_the_page_about_it() -> None:
    text = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    listed = text.split("## Files on disk")[1].split("```")[1]
    files = [
        *(index_folder.CURRENT, index_folder.LOCK, embedded_store.CATALOGUE, *embedded_store.VECTORS.values()),
        *(kept_model.MODEL, kept_model.ELSEWHERE, improvement.FILE, improved_store.ROWS, layout_file.LAYOUT),
        *(fast_codes.CODES, map_layout.FILE, choosing_store.ELSEWHERE),
    ]
    assert [name for name in files if name not in listed] == []


def test_scale_follows_the_table_that_it_names() -> None:
    def row(page: str, name: str) -> list[str]:
        lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
        return [cell.strip() for cell in next(line for line in lines if line.startswith(f"| {name}")).split("|")[2:]]

    seconds = {"ms": 1e-3, "s": 1.0, "minutes": 60.0, "hours": 3600.0}
    exact, fast = (row("studies/speed-of-the-index.md", f"vicinal {kind}") for kind in ("exact", "fast"))
    measured = {
        "one exact query": float(exact[1]) / 1000,
        "one of 256 exact": float(exact[2]) / 1000 / 256,
        "one query with `fast": float(fast[1]) / 1000,
        "building from given vectors": float(exact[0]),
    }
    for name, value in measured.items():
        for cell, times in zip(row("search.md", name), (1, 100), strict=False):
            number, unit = cell.split()
            assert float(number) * seconds[unit] == pytest.approx(times * value, rel=0.03), (name, cell)


def test_every_message_of_troubleshooting_exists() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "vicinal").rglob("*.py"))
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = "\n".join(value for value in constants if isinstance(value, str))
    messages = re.findall(r"\*\*`([^`]+)`\*\*", page)
    assert len(messages) > 15
    assert [message for message in messages if message not in texts] == []


def test_the_navigation_has_every_page() -> None:
    groups = {}
    for group in yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]:
        ((name, entries),) = group.items()
        groups[name] = re.findall(r"[\w/-]+\.md", repr(entries))
    assert list(groups) == ["Start", "Learn", "Compare", "Use", "Reference", "Trust and contribute"]
    listed = [page for pages in groups.values() for page in pages]
    existing = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    apart = {page for page in existing if page in ("migrate.md", "papers.md") or page.startswith("studies/")}
    assert sorted(listed) == sorted(existing - apart)
    assert len([page for page in listed if not page.startswith("api/")]) <= 24


def test_every_package_has_a_page_of_the_api() -> None:
    pages = {path.stem.removesuffix("-package") for path in (ROOT / "docs" / "api").glob("*.md")}
    packages = {path.parent.name for path in (ROOT / "vicinal").glob("*/__init__.py")}
    assert pages == packages - {"cli", "_util"} | {"index", "vicinal"}


def test_every_study_is_on_the_list_of_studies() -> None:
    studies = ROOT / "docs" / "studies"
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", (studies / "index.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in studies.glob("*.md")} - {"index.md"}
    for path in studies.glob("*.md"):  # lab books would crowd out the pages for users
        header = path.read_text(encoding="utf-8").split("---\n")[1]
        assert yaml.safe_load(header)["search"] == {"exclude": True}, path.name
