"""The documentation as a reader opens it: built strictly, and shown from disk in a real browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra 'dev')")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
QUERY = "input[type=text]"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "vicinal").symlink_to(ROOT / "vicinal")
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield opened
        opened.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_fit_and_ask_nothing_of_other_servers(site: Path, chromium: Any, width: int, scheme: str) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    page.on("request", lambda request: request.url.startswith("http") and problems.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            problems.append(f"{name} is wider than {width} pixels")
    page.close()
    assert problems == []


def test_search_works_from_disk(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "quickstart.html").as_uri())
    page.locator(".md-search__button:visible").first.click()
    page.locator(QUERY).press_sequentially("class-disjoint", delay=20)
    page.locator("a[href*='glossary.html?h=class-disjoint']").first.wait_for(timeout=30_000)
    assert page.locator(QUERY).input_value() == "class-disjoint"
    page.close()
