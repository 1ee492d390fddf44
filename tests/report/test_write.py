from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal._util.files import sealed
from vicinal.errors import DataError, InputError, UnknownName
from vicinal.leaderboard import leaderboards
from vicinal.report import write_report
from vicinal.report.page import _environment

Make, Fail = Callable[..., Path], Callable[..., None]
VOID = {"meta", "link", "img", "br", "wbr"}


class Checked(HTMLParser):
    """Elements of a page; fails where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "a":
            self.links.append(str(values["href"]))
        if tag in ("img", "svg"):
            self.images.append(values)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, make_comparison: Make, fail: Fail) -> Path:
    folder = make_comparison(tmp_path_factory.mktemp("comparison"))
    fail(folder, "circle")
    return write_report([folder], progress=False)


def test_page_is_well_formed_and_self_contained(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    checked = Checked(text)
    assert page.name == "report.html"
    assert len(set(checked.ids)) == len(checked.ids)
    assert {link.removeprefix("#") for link in checked.links} <= set(checked.ids)
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert not re.search(r"@import|url\(|<script", text)
    assert all(image.get("alt") or image.get("aria-label") for image in checked.images)


def test_page_answers_and_has_every_chapter(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<h1>proxy_<wbr>anchor wins on digits</h1>" in text
    titles = re.findall(r"<h3>(.*?)</h3>", text)
    assert titles == [
        "Leaderboard", "Failed runs", "Nearest neighbours", "Map of the embeddings", "Confused classes", "Significance",
        "Sources of variance", "Experimental setup", "Training curves", "Recall at k", "Verification", "Pair weights",
        "Distance audit", "Spectral decay", "Cost", "Reproduce",
    ]  # fmt: skip


def test_errors_of_failed_runs_are_shown_and_escaped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "1 run of 10 failed: circle (1)" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_twin_has_the_same_chapters_and_its_figures(page: Path) -> None:
    twin = page.with_suffix(".md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", twin, re.MULTILINE) == re.findall(r"<h3>(.*?)</h3>", page.read_text())
    figures = re.findall(r"\]\(([^)]+\.svg)\)", twin)
    assert figures
    for figure in figures:
        drawn = (page.parent / figure).read_text(encoding="utf-8")
        assert drawn.startswith("<svg")
        assert "prefers-color-scheme" in drawn
    rows = [line for line in twin.splitlines() if line.startswith("|")]
    assert any(line.startswith("| 1 | proxy_anchor |") for line in rows)


def test_protocols_never_share_a_table(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path / "one", losses=["triplet"], seeds=[0])
    make_comparison(tmp_path / "two", losses=["triplet"], seeds=[0], protocol="default", selected_on="test")
    out = write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "both.html", progress=False)
    text = out.read_text(encoding="utf-8")
    assert text.count("<article") == 2
    assert "2 comparisons under different conditions" in text
    first, second = text.split("<article")[1:]
    assert "Selected on test" not in first
    assert "Selected on test" in second
    assert (tmp_path / "both.md").exists()
    assert (tmp_path / "both-figures").is_dir()


def test_folds_are_shown_separate_and_joined(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(
        tmp_path, protocol="reality-check", losses=["proxy_anchor", "triplet"], seeds=[0, 1], folds=[0, 1, 2, 3]
    )
    text = write_report([tmp_path], progress=False).with_suffix(".md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| 1 | proxy_anchor |") and "4 \u00d7 16" in line)
    cells = [cell.strip() for cell in row.split("|")]
    assert float(cells[3]) > float(cells[6])


def test_dimensions_get_curves_and_tables_of_their_own(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["proxy_anchor", "triplet"], seeds=[0], dims=[8, 16])
    text = write_report([tmp_path], progress=False).read_text(encoding="utf-8")
    assert "<h3>Dimensions</h3>" in text
    assert "<h4>convnet, 16 dimensions</h4>" in text
    assert "<h4>convnet, 8 dimensions</h4>" in text


def test_several_machines_are_put_together(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path / "one", losses=["proxy_anchor"], seeds=[0])
    make_comparison(tmp_path / "two", losses=["triplet"], seeds=[0])
    text = write_report([tmp_path / "one", tmp_path / "two"], progress=False).read_text(encoding="utf-8")
    assert "2 losses" in text
    assert "2 runs" in text


def test_a_journal_alone_is_enough(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, seeds=[0])
    for place in (tmp_path / "trials").iterdir():
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
    text = write_report([tmp_path], progress=False).read_text(encoding="utf-8")
    assert "The embeddings of the test items were not saved" in text
    assert "<h3>Training curves</h3>" not in text


def write_lines(journal: Path, text: str) -> None:
    """Write records, each with its checksum."""
    journal.write_bytes(b"".join(sealed(line.encode()) + b"\n" for line in text.splitlines()))


def test_data_that_is_gone_or_changed_is_said(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["triplet"], seeds=[0])
    journal = tmp_path / "journal.jsonl"
    kept = re.sub(r',"sha256":"\w+"', "", journal.read_text())
    write_lines(journal, kept.replace('"data":"digits"', '"data":"/nowhere/digits.npz"'))
    assert "No pictures: the data is not available" in write_report([tmp_path], progress=False).read_text()
    write_lines(journal, kept.replace('"data":"digits"', '"data":"arrays"'))  # of a dataset that was given in Python
    text = unescape(write_report([tmp_path], progress=False).read_text())
    assert "it was passed as an object, and its name, 'arrays', cannot be opened" in text
    write_lines(journal, re.sub(r'"data":"[0-9a-f]{9,}"', '"data":"feedface"', kept))
    assert (
        "The data has changed since the runs (its hash was feedface)"
        in write_report([tmp_path], progress=False).read_text()
    )
    write_lines(journal, kept)
    file = next(tmp_path.glob("trials/*/test.npz"))
    with np.load(file) as arrays:
        np.savez(file, embeddings=arrays["embeddings"], labels=arrays["labels"][::-1])
    assert "No pictures: the data has changed since the runs" in write_report([tmp_path], progress=False).read_text()


def test_only_failures_is_a_report_too(tmp_path: Path, fail: Fail) -> None:
    fail(tmp_path, "circle")
    text = write_report([tmp_path], progress=False).read_text(encoding="utf-8")
    assert "All runs on digits failed" in text
    assert "NotFinite" in text


def test_one_loss_and_one_seed(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["triplet"], seeds=[0])
    assert "Only triplet was compared on digits" in write_report([tmp_path], progress=False).read_text(encoding="utf-8")


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no comparison"):
        write_report([tmp_path], progress=False)
    with pytest.raises(InputError, match="at least one folder"):
        write_report([], progress=False)


def test_a_leaderboard_and_its_folder_make_the_same_page(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path / "runs", losses=["triplet", "contrastive"], seeds=[0])
    (board,) = leaderboards([tmp_path / "runs"])
    page = write_report(board, progress=False)
    assert page == tmp_path / "runs" / "report.html"
    assert page.read_text() == write_report([tmp_path / "runs"], tmp_path / "b.html", progress=False).read_text()
    with pytest.raises(InputError, match="belongs to no folder"):
        write_report(replace(board, folders=()), progress=False)


def test_a_report_of_some_losses(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["triplet", "contrastive", "proxy_anchor"], seeds=[0])
    text = write_report([tmp_path], losses=["triplet", "contrastive"], progress=False).read_text()
    assert "proxy_anchor wins" not in text
    assert ">proxy_anchor<" not in text
    assert ">contrastive<" in text
    with pytest.raises(UnknownName, match="Choose from: contrastive, proxy_anchor, triplet"):
        write_report([tmp_path], losses=["circle"], progress=False)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path / "runs", losses=["triplet"], seeds=[0])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Could not write"):
        write_report([tmp_path / "runs"], tmp_path / "file" / "report.html", progress=False)


def test_verb(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["triplet"], seeds=[0])
    from vicinal.cli.main import app

    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / "page.html"), "--no-progress"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").exists()
    assert "page.html" in result.output
    told = CliRunner().invoke(app, ["report", str(tmp_path), "--json", "--no-progress"])
    assert json.loads(told.stdout) == {"page": str(tmp_path / "report.html"), "markdown": str(tmp_path / "report.md")}


def test_the_network_shown_is_the_best_by_validation_not_by_test(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["proxy_anchor", "triplet"], seeds=[0], dims=[2, 16])
    assert "All results here are for convnet, 16 dimensions" in write_report([tmp_path], progress=False).read_text()
    journal = tmp_path / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        del line["sha256"]  # of the record as it was
        line["validation"]["MAP@R"] = 1.0 if line["recipe"]["dim"] == 2 else 0.0
    journal.write_bytes(b"".join(sealed(json.dumps(line).encode()) + b"\n" for line in lines))
    assert "All results here are for convnet, 2 dimensions" in write_report([tmp_path], progress=False).read_text()


def test_names_are_no_markup_in_the_twin() -> None:
    shown = _environment(html=False).from_string("{{ name }}").render(name="[x](https://elsewhere) <script>")
    assert shown == r"[x]\(https://elsewhere) &lt;script>"
