"""What objects show in a notebook, what `vicinal.load` opens, and a whole notebook."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vicinal as vc
from vicinal._util.html import html_table
from vicinal.errors import DataError, InputError
from vicinal.index import Hit, Hits

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_hour.ipynb"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
browser = runpy.run_path(str(Path(__file__).parent / "report" / "browser.py"))["browser"]
STYLE = """<!doctype html><meta charset=utf-8><title>notebook</title><style>
.output { font: 14px sans-serif; margin: 1em; overflow-x: auto }
@media (prefers-color-scheme: dark) { body { background: #111; color: #eee } }</style>"""
# Sizes of pictures and tables as they are drawn, and how text stands out against what is behind it.
SEEN = """(() => {
    const channels = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => channels(colour).slice(0, 3)
        .map(part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = node => {
        for (; node; node = node.parentElement) {
            const colour = getComputedStyle(node).backgroundColor;
            if (channels(colour)[3] !== 0) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const contrast = node => {
        const [low, high] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const size = node => [node.getBoundingClientRect().width, node.getBoundingClientRect().height];
    const texts = [...document.querySelectorAll("td, th, figcaption, pre, p, div")]
        .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()));
    return {
        pictures: [...document.images].map(image => image.naturalWidth ? size(image) : [0, 0]),
        tables: [...document.querySelectorAll("table")].map(table => [table.rows.length, size(table)[1]]),
        contrasts: texts.map(contrast),
    };
})()"""


def test_everything_is_escaped() -> None:
    assert "<script>" not in html_table(["<script>"], [["<script>", 1, 0.5]])


def test_data_and_splits_show_themselves(tmp_path: Path) -> None:
    data = vc.data.digits()
    assert data._repr_html_().count("data:image/png;base64,") == 1
    assert vc.data.arrays(np.eye(4), [0, 0, 1, 1])._repr_html_().count("<img") == 0
    text = vc.split(data, "default")._repr_html_()
    assert text.count("<tr>") == 3
    assert "0, 1, 2, 3, 4" in text
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "cat" / "1.png")
    photos = vc.data.folder(tmp_path)
    (tmp_path / "cat" / "1.png").unlink()
    assert "Not every image can be read" in photos._repr_html_()


def test_hits_of_a_search_show_their_pictures(tmp_path: Path) -> None:
    Image.new("RGB", (400, 200), "red").save(tmp_path / "red.png")
    (tmp_path / "bad.jpg").write_text("no picture")
    found = (
        Hit(1, str(tmp_path / "red.png"), "<b>red</b>", 0.9, same=True, probability=0.97),
        Hit(2, str(tmp_path / "bad.jpg"), None, 0.8),
        Hit("x", None, "blue", 0.1),
    )
    text = Hits(found)._repr_html_()
    assert text.count("data:image/png;base64,") == 1
    assert text.count("no picture") == 2
    assert "0.9000 (same, 97%)" in text
    assert "<b>" not in text
    assert "3 nearest items" in text
    many = Hits((Hit("x", None, "blue", 0.1),) * 40, recall=0.99)._repr_html_()
    assert "recall 0.9900" in many
    assert many.count("<figure") == 30
    assert "and 10 more" in many


def test_scores_are_a_table_a_dict_and_a_frame() -> None:
    scores = vc.evaluate(np.repeat(np.eye(3), 3, axis=0) + 0.1 * np.arange(9)[:, None], np.repeat([0, 1, 2], 3))
    assert dict(scores) == scores.to_dict()
    assert dict(scores)["P@1"] == scores["P@1"]
    frame = scores.to_pandas()
    assert frame.loc["P@1", "value"] == scores["P@1"]
    assert set(frame.columns) == {"value", "low", "high"}
    assert "<td" in scores._repr_html_()


def test_load_opens_what_vicinal_wrote(tmp_path: Path) -> None:
    embedder = vc.Embedder("convnet", dim=8, options={"widths": [8], "size": 8})
    embedder.save(tmp_path / "model")
    loaded = vc.load(tmp_path / "model")
    assert isinstance(loaded, vc.Embedder)
    assert "dimensions" in loaded._repr_html_()
    scores = vc.evaluate(np.eye(4), [0, 0, 1, 1])
    scores.to_json(tmp_path / "scores.json")
    assert vc.load(tmp_path / "scores.json").to_dict()["P@1"] == scores["P@1"]
    (tmp_path / "recipe.toml").write_text('loss = "triplet"\n')
    assert vc.load(tmp_path / "recipe.toml").loss == "triplet"
    assert isinstance(vc.load("digits"), vc.Dataset)
    vc.Index.of_vectors(tmp_path / "i", np.eye(3)).close()
    with vc.load(tmp_path / "i") as index:
        assert isinstance(index, vc.Index)
    for name, content in {"cut": b'{"schema"', "latin": b'"\xe9"', "list": b"[]"}.items():
        (tmp_path / f"{name}.json").write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}\.json is not scores"):
            vc.load(tmp_path / f"{name}.json")
    with pytest.raises(DataError, match="does not exist"):
        vc.load(tmp_path / "absent")


def test_neighbours_are_framed_by_class() -> None:
    data = vc.data.digits().subset(range(30))
    model = vc.Embedder("convnet", dim=8, options={"widths": [8], "size": 8})
    picture = vc.show_neighbours(model, data, queries=2, k=3, size=20)
    assert picture.size == (4 * 28 + 10, 2 * 28)
    with pytest.raises(InputError, match="at least two images"):
        vc.show_neighbours(model, data.subset([0]))


@pytest.mark.recipe
def test_runs_and_comparisons_open_and_show_themselves(tmp_path: Path) -> None:
    small = {"backbone_options": {"widths": [8], "size": 8}, "steps": 3, "dim": 8, "batch": "2x4", "rates": 1}
    board = vc.compare("digits", ["contrastive"], out=tmp_path, jobs=1, progress=False, protocol="default", **small)
    assert re.search(r"<pre[^>]*>.*contrastive", board._repr_html_(), re.DOTALL)
    assert isinstance(vc.load(tmp_path), vc.Leaderboard)
    assert isinstance(vc.load(next((tmp_path / "trials").iterdir())), vc.Run)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What the cells of the notebook show, each as its kinds of content."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    folder = str(tmp_path_factory.mktemp("notebook"))
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": folder}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.get("data", {}) for output in outputs]


@pytest.mark.slow
def test_a_notebook_runs(shown: list[dict[str, str]]) -> None:
    assert sum("text/html" in data for data in shown) >= 7
    assert any("image/png" in data for data in shown)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian: apt-get install chromium)")
@pytest.mark.parametrize("dark", [False, True])
def test_what_it_shows_can_be_seen(shown: list[dict[str, str]], tmp_path: Path, dark: bool) -> None:
    page = tmp_path / "notebook.html"
    page.write_text(as_page(shown), encoding="utf-8")
    with browser(CHROMIUM) as tab:
        tab.open(page, width=900, dark=dark)
        seen = tab.run(SEEN)
        (tmp_path / "notebook.png").write_bytes(tab.picture())
        assert not tab.complaints()
        assert tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert len(seen["pictures"]) >= 10  # contact sheet, neighbours, and the eight hits of a search
    assert min(min(size) for size in seen["pictures"]) >= 16
    assert len(seen["tables"]) >= 4
    assert all(rows >= 2 and height > 20 for rows, height in seen["tables"])
    assert min(seen["contrasts"]) >= 4.5  # as WCAG has it for text


def as_page(shown: list[dict[str, str]]) -> str:
    """The outputs of a notebook below each other, on the background that Jupyter has."""
    cells = []
    for data in shown:
        if "text/html" in data:
            cells.append(data["text/html"])
        elif "image/png" in data:
            cells.append(f'<img src="data:image/png;base64,{data["image/png"]}">')
    return STYLE + "".join(f"<div class=output>{cell}</div>" for cell in cells)
