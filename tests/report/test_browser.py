"""The page in a real browser; skipped where there is none."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vicinal.report import write_report

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.recipe,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("report_browser", Path(__file__).with_name("browser.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.browser(PROGRAM) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, make_comparison: Callable[..., Path]) -> Path:
    folder = make_comparison(tmp_path_factory.mktemp("comparison"), dims=[8, 16])
    return write_report([folder], progress=False)


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_page_is_quiet_keeps_to_itself_and_fits(tab: Any, page: Path, width: int, dark: bool) -> None:
    tab.open(page, width=width, dark=dark)
    assert tab.complaints() == []
    assert [url for url in tab.requests() if not url.startswith("data:")] == [page.resolve().as_uri()]
    assert tab.run(TOO_WIDE) == 0
    lightness = sum(int(part) for part in tab.run(BACKGROUND)[4:-1].split(","))
    assert lightness < 150 if dark else lightness > 600
    assert tab.run("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


@pytest.mark.parametrize("width", [390, 1280])
def test_headline_has_two_lines_at_most_and_names_break_between_words(tab: Any, page: Path, width: int) -> None:
    tab.open(page, width=width, dark=False)
    lines = "(h => h.getBoundingClientRect().height / parseFloat(getComputedStyle(h).lineHeight))"
    assert round(tab.run(f"{lines}(document.querySelector('h1'))")) <= 2
    tab.run("document.querySelector('h1').textContent = 'No clear winner on pets; unclear whether training helped'")
    assert round(tab.run(f"{lines}(document.querySelector('h1'))")) <= 2
    name = "document.querySelector('.thumb span')"
    tab.run(f"{name}.innerHTML = 'staffordshire_<wbr>bull_<wbr>terrier'")
    pieces = tab.run(
        f"[...{name}.childNodes].filter(node => node.nodeType === 3).map(node => {{ const range ="
        " document.createRange();"
        " range.selectNodeContents(node); return range.getClientRects().length })"
    )
    assert pieces == [1, 1, 1]  # no word is on two lines


def test_the_right_third_of_a_wide_page_is_used(tab: Any, page: Path) -> None:
    tab.open(page, width=1280, dark=False)
    used = tab.run(
        "[...document.querySelectorAll('section')].map(section => Math.max(...[...section.querySelectorAll("
        "'figcaption, .caption, svg, img')].map(part => part.getBoundingClientRect().right)) > 1280 * 5 / 6)"
    )
    assert sum(used) > 0.7 * len(used)


def test_text_of_drawings_is_legible_on_a_phone(tab: Any, page: Path) -> None:
    tab.open(page, width=360, dark=False)
    smallest = tab.run(
        "Math.min(...[...document.querySelectorAll('svg text')].map(text => parseFloat(getComputedStyle(text).fontSize)"
        " * text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width))"
    )
    assert smallest >= 8


def test_drawings_lie_within_their_frames(tab: Any, page: Path) -> None:
    tab.open(page, width=1200, dark=False)
    outside = tab.run(
        "[...document.querySelectorAll('svg text')].filter(text => { const t = text.getBoundingClientRect(),"
        " s = text.ownerSVGElement.getBoundingClientRect(); return t.left < s.left - 2 || t.right > s.right + 2 })"
        ".map(text => text.textContent)"
    )
    assert outside == []
