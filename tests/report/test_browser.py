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
