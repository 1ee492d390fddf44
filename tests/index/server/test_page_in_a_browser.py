"""The page in a real browser, as a person uses it; skipped where there is no Chromium."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vicinal as vc
from vicinal.data import load
from vicinal.embedder import Embedder
from vicinal.embedder.calibration import Calibration
from vicinal.embedder.folder import Card
from vicinal.index import Index

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra 'dev')")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
CLASSES, EACH = 8, 12
SECONDS = 30_000  # milliseconds: the machine may be busy
CARD = Card(title="letters", recipe='loss = "contrastive"\n')


def letters(folder: Path) -> list[tuple[str, str, int]]:
    """Pictures of some drawn characters: file, label and number."""
    data = load("glyphs")
    rows = []
    for label in range(CLASSES):
        for number, place in enumerate(np.flatnonzero(data.labels == label)[:EACH]):
            file = folder / f"{label}-{number}.png"
            Image.fromarray(np.asarray(data.items[place])).resize((64, 64)).save(file)
            rows.append((file.name, data.class_names[label].replace("/", " "), number))
    return rows


def trained_on(rows: list[tuple[str, str, int]], home: Path) -> Embedder:
    """An embedder that tells the letters apart, so that a wrong label stands out."""
    pictures = np.stack([np.asarray(Image.open(home / file)) for file, _, _ in rows])
    model = vc.fit(
        vc.Split(vc.data.arrays(pictures, np.arange(len(rows)) // EACH), None, None),
        loss="proxy_anchor",
        backbone="convnet",
        backbone_options={"widths": [8, 16], "size": 32},
        dim=16,
        batch=f"{CLASSES}x4",
        steps=80,
        learning_rate=1e-2,
        evaluate_every=0,
        progress=False,
    )
    model.card = CARD
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of letters, in which one label is wrong and one file is there twice; an index of it; an empty one."""
    home = tmp_path_factory.mktemp("letters")
    rows = letters(home)
    rows[5] = (rows[5][0], rows[-1][1], rows[5][2])
    shutil.copy(home / rows[20][0], home / "copy.png")
    rows.append(("copy.png", rows[20][1], 99))
    with (home / "items.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label", "number"), *rows])
    model = trained_on(rows, home)
    Index.build(home / "empty.index", model).close()
    model.calibration = Calibration(
        0.995, 0.01, "bound", "classes", 0.95, 600, 0.007, (0.005, 0.01), 0.5, (0.9, 1.0), (0.1, 0.9), model.identity()
    )
    Index.build(home / "letters.index", model, home / "items.csv").close()
    return home


def serving(index: Path, *flags: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "vicinal", "serve", str(index), "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
            return process, found[0]
    raise AssertionError("the server did not start")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    process, found = serving(folder / "letters.index")
    yield found
    process.terminate()
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def browse(chromium: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open the page at some state; whatever it complains of, or asks of others, fails the test."""
    contexts, complaints = [], []

    def opened(
        state: str = "", *, width: int = 1280, dark: bool = False, base: str = address, strict: bool = True
    ) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 860},
            color_scheme="dark" if dark else "light",
            has_touch=width < 600,
            is_mobile=width < 600,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(SECONDS)
        if strict:
            page.on(
                "console",
                lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None,
            )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((base, "blob:", "data:")) else complaints.append(request.url)
            ),
        )
        page.goto(base + state)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def hits(page: Any) -> list[str]:
    page.wait_for_selector(".hits .why")
    return page.locator(".hits .label").all_text_contents()


def start_from_first_item(page: Any) -> str:
    page.wait_for_selector(".begin .hit a")
    page.locator(".begin .hit a").first.click()
    hits(page)
    return page.locator(".query h1").text_content()


def test_start_from_an_item_search_on_and_go_back(browse: Any) -> None:
    page = browse()
    first = start_from_first_item(page)
    assert "item=" in page.url
    assert page.locator(".hits .hit").count() == 24
    values = [float(text) for text in page.locator(".hits .similarity").all_text_contents()]
    assert values == sorted(values, reverse=True)
    assert re.fullmatch(r"24 nearest of 97 items · exact search · .* ms", page.locator("#outcome").text_content())
    before = page.url
    name = page.locator(".query .hint").first.text_content()
    page.locator(".hits .hit a").nth(2).click()
    page.wait_for_function("name => document.querySelector('.query .hint')?.textContent !== name", arg=name)
    assert page.url != before
    page.go_back()
    page.wait_for_function("name => document.querySelector('.query .hint')?.textContent === name", arg=name)
    assert page.locator(".query h1").text_content() == first
    page.reload()  # an address is all that it takes
    hits(page)
    assert page.locator(".query .hint").first.text_content() == name


def test_an_address_of_a_mail_works(browse: Any, folder: Path) -> None:
    from urllib.parse import quote

    page = browse(f"?item={quote(str(folder / '3-4.png'), safe='')}")
    hits(page)
    assert page.locator(".query .hint").first.text_content() == "3-4.png"


RECTANGLES = """async (name) => {
  const { breakable, element } = await import("/static/elements.js");
  const label = element("span", { class: "label" }, breakable(name));
  label.style = "display: block; width: 6em;";
  document.body.append(label);
  return [...label.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getClientRects().length;
  });
}"""


def test_a_narrow_label_breaks_between_its_words(browse: Any) -> None:
    page = browse()
    page.wait_for_selector(".begin .hit a")
    assert page.evaluate(RECTANGLES, "Belted_Kingfisher") == [1, 1]
    assert page.evaluate(RECTANGLES, "Black-footed") == [1, 1]
    assert page.evaluate(RECTANGLES, "MaineCoon") == [1, 1]


DROP = """async ([bytes, name, kind]) => {
  const file = new File([new Uint8Array(bytes)], name, { type: kind });
  const carried = new DataTransfer();
  carried.items.add(file);
  for (const step of ["dragenter", "dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(step, { dataTransfer: carried, bubbles: true, cancelable: true }));
    if (step === "dragover" && document.querySelector("#curtain").hidden) throw new Error("no curtain");
  }
}"""
PASTE = """async ([bytes, name, kind]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([new Uint8Array(bytes)], name, { type: kind }));
  document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: carried, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize("way", ["drop", "paste", "choose"])
def test_search_with_a_picture(browse: Any, folder: Path, way: str) -> None:
    page = browse()
    page.wait_for_selector("#choose", state="attached")
    file = folder / "6-3.png"
    if way == "choose":
        page.set_input_files("#choose", str(file))
    else:
        page.evaluate(DROP if way == "drop" else PASTE, [list(file.read_bytes()), "6-3.png", "image/png"])
    hits(page)
    assert page.locator("#curtain").is_hidden()
    assert page.locator(".query h1").text_content() == "Your picture"
    assert page.locator(".hits .similarity").first.text_content() == "1.000"
    assert "6-3.png" in page.locator(".hits .hit a").first.get_attribute("href")
    page.locator(".why").first.click()
    page.wait_for_selector(".reasons")
    assert "the item most similar to the query" in page.locator(".why-body .summary").text_content()


def test_a_photograph_can_be_taken_on_a_phone(browse: Any) -> None:
    page = browse(width=390)
    taken = page.locator("#photograph")
    taken.wait_for(state="attached")
    assert taken.get_attribute("capture") == "environment"
    assert page.get_by_text("Take a photo", exact=True).is_visible()


def test_filters_by_label_and_by_metadata(browse: Any) -> None:
    page = browse()
    start_from_first_item(page)
    label = page.locator(".hits .label").nth(3).text_content()
    page.fill("#filter-value", label)
    page.click(".filter-form button")
    page.wait_for_selector(".chips li")
    page.wait_for_function(
        "label => [...document.querySelectorAll('.hits .label')].every((one) => one.textContent === label)", arg=label
    )
    assert page.locator(".chips li span").text_content() == f"label = '{label}'"
    many = page.locator(".hits .hit").count()
    page.select_option("#filter-column", "number")
    page.select_option("#filter-sign", ">=")
    page.fill("#filter-value", "9")
    page.click(".filter-form button")
    page.wait_for_function("() => document.querySelectorAll('.chips li').length === 2")
    page.wait_for_function("many => document.querySelectorAll('.hits .hit').length < many", arg=many)
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('.chips li').length === 1")
    page.locator(".chips button").click()
    page.wait_for_function("() => document.querySelectorAll('.hits .hit').length === 24")


def test_a_filter_that_nothing_passes_and_a_number_that_is_none(browse: Any) -> None:
    page = browse("#where=number%20%3E%3D%20500")
    page.get_by_text("No items match the filter").wait_for()
    page.select_option("#filter-column", "number")
    page.fill("#filter-value", "many")
    page.click(".filter-form button")
    assert "must be a number" in page.locator(".wrong").text_content()


def test_more_hits_and_the_fast_way(browse: Any) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed (extra 'faiss')")
    page = browse()
    start_from_first_item(page)
    page.select_option("#k", "48")
    page.wait_for_function("() => document.querySelectorAll('.hits .hit').length === 48")
    assert "k=48" in page.url
    page.select_option("#way", "fast")
    page.wait_for_function("() => location.hash.includes('fast=1') && document.querySelector('#outcome')")
    hits(page)


def test_every_trouble_has_a_sentence(browse: Any, folder: Path) -> None:
    page = browse(strict=False)  # the browser itself reports failed requests
    page.wait_for_selector("#choose", state="attached")
    page.set_input_files("#choose", {"name": "x.png", "mimeType": "image/png", "buffer": b"no picture at all"})
    page.get_by_role("heading", name="Unsupported file").wait_for()
    page.goto("about:blank")
    page.go_back()
    page.get_by_text("Picture no longer available").wait_for()
    page.goto(page.url.split("#")[0] + "#item=nothing")
    page.get_by_role("heading", name="Not found").wait_for()
    page.route("**/api/info", lambda route: route.abort())
    page.goto(page.url.split("#")[0] + "#view=map")
    page.get_by_text("The server does not respond").wait_for()
    page.unroute("**/api/info")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("canvas[data-points]")


def test_an_empty_index_says_so(browse: Any, folder: Path) -> None:
    process, address = serving(folder / "empty.index")
    try:
        page = browse(base=address)
        page.get_by_text("This index is empty").wait_for()
        page.get_by_role("link", name="Map").click()
        page.get_by_text("There are no items to show").wait_for()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def whole_map(page: Any) -> Any:
    page.wait_for_selector("canvas[data-points='97']")
    page.wait_for_function("() => document.querySelector('canvas').dataset.frame")
    return page.locator("canvas").bounding_box()


def test_the_map_lasso_pictures_and_click(browse: Any) -> None:
    page = browse("#view=map")
    box = whole_map(page)
    assert page.locator(".legend li").count() == CLASSES
    page.wait_for_function(
        "() => Number(document.querySelector('canvas').dataset.pictures) > 10"
    )  # few points: all near
    page.get_by_role("button", name="Lasso").click()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
    page.mouse.move(box["x"] + corners[0][0] * box["width"], box["y"] + corners[0][1] * box["height"])
    page.mouse.down()
    for x, y in corners[1:]:
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
    page.mouse.up()
    page.wait_for_selector(".selection h2")
    assert page.locator(".selection h2").text_content() == "97 items"
    assert page.locator(".selection .bars .bar-count").all_text_contents()[0] in ("13", "12")
    page.wait_for_function("() => document.querySelectorAll('.thumbnails img').length === 24")
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Lasso").click()
    # Any point of the map: click beside nothing until one is hit.
    for step in range(400):
        x, y = (
            box["x"] + (0.2 + 0.03 * (step % 20)) * box["width"],
            box["y"] + (0.1 + 0.04 * (step // 20)) * box["height"],
        )
        page.mouse.move(x, y)
        if page.evaluate("document.querySelector('canvas').classList.contains('on-point')"):
            break
    page.mouse.click(x, y)
    hits(page)
    page.get_by_role("link", name="Show on the map").click()
    whole_map(page)


def test_the_map_keeps_to_the_filter_and_to_a_label(browse: Any) -> None:
    page = browse("#view=map&where=number%20%3C%203")
    whole_map(page)
    page.get_by_role("button", name="Select all in view").click()
    page.wait_for_selector(".selection h2")
    assert page.locator(".selection h2").text_content() == f"{3 * CLASSES} items"
    page.locator(".legend button").first.click()
    page.get_by_role("button", name="Select all in view").click()
    page.get_by_text("All have the same label").wait_for()


def test_wrong_labels_are_worked_through(browse: Any, folder: Path) -> None:
    page = browse("#view=inspect&queue=mislabelled")
    page.wait_for_selector(".case, .notice")
    suspects = page.locator(".suspect")
    assert suspects.count() > 0
    shown = suspects.first.get_attribute("data-id")
    suspects.first.get_by_label("New label").fill("=SUM(1)")
    suspects.first.get_by_role("button", name="Relabel").click()
    page.get_by_text("Relabel as =SUM(1)").first.wait_for()
    rows = list(csv.reader((folder / "letters.index" / "review.csv").read_text(encoding="utf-8").splitlines()))
    assert (rows[-1][1], rows[-1][4:6]) == (shown, ["relabel", "'=SUM(1)"])
    page.reload()
    page.get_by_text("Relabel as =SUM(1)").first.wait_for()


def test_decided_cases_are_marked_and_passed_over(browse: Any) -> None:
    page = browse("#view=inspect&queue=duplicates&threshold=0.995")
    page.wait_for_selector(".case")
    cases = page.locator(".case")
    assert cases.count() > 2
    focused = "() => [...document.querySelectorAll('.case')].indexOf(document.activeElement)"
    before = page.locator(".case.settled").count()
    waiting = [place for place in range(cases.count()) if "settled" not in cases.nth(place).get_attribute("class")]
    for expected in waiting[:2]:
        page.get_by_role("button", name="Next open case").click()
        assert page.evaluate(focused) == expected
    for button in cases.nth(waiting[0]).get_by_role("button", name="Keep").all():
        button.click()
    page.wait_for_function("many => document.querySelectorAll('.case.settled').length === many", arg=before + 1)
    page.reload()
    page.wait_for_selector(".case")
    assert page.locator(".case.settled").count() == before + 1
    page.get_by_role("button", name="Next open case").click()
    assert page.evaluate(focused) == waiting[1]


def test_the_token_is_asked_for_once(browse: Any, folder: Path) -> None:
    process, address = serving(folder / "letters.index", "--token", "correct-horse")
    try:
        page = browse("#view=inspect", base=address, strict=False)  # the browser tells 401 to its console
        page.fill("#token", "wrong-horse")
        page.get_by_role("button", name="Open").click()
        page.get_by_text("That is not this server's token.").wait_for()
        page.fill("#token", "correct-horse")
        page.get_by_role("button", name="Open").click()
        page.wait_for_selector(".tabs")
        assert page.url == f"{address}#view=inspect"
        assert page.evaluate("document.cookie") == ""  # out of reach of scripts
        page.reload()
        page.wait_for_selector(".tabs")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_confused_classes_and_duplicates_are_shown(browse: Any, folder: Path) -> None:
    page = browse("#view=inspect")
    page.wait_for_selector(".pairs img")
    page.get_by_role("link", name="Duplicates").click()
    page.wait_for_selector(".group")
    page.fill("#threshold", "0.9999999")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_function("() => document.querySelectorAll('[data-id]').length === 2")
    both = page.locator(".case", has=page.locator("[data-id$='copy.png']"))
    assert sorted(Path(one.get_attribute("data-id")).name for one in both.locator("[data-id]").all()) == [
        "1-8.png",
        "copy.png",
    ]
    both.locator("[data-id$='copy.png']").get_by_role("button", name="Remove").click()
    both.locator(".decided", has_text="Remove").wait_for()
    assert (folder / "copy.png").is_file()


def test_reasons_are_drawn_and_escape_closes_them(browse: Any) -> None:
    page = browse()
    start_from_first_item(page)
    page.locator(".why").nth(1).click()
    page.wait_for_selector(".reasons")
    assert "number 2 of 96 items" in page.locator(".why-body .summary").text_content()
    folded = page.locator("details.loss")
    assert not folded.locator("p").is_visible()
    folded.locator("summary").click()
    assert "contrastive would" in folded.locator("p").text_content()
    assert folded.locator(".curve").is_visible()
    text = page.locator(".reasons").text_content()
    similarity, rest = re.search(r"Similarity([\d.]+)(.*)", text).groups()
    verdict = "same" if float(similarity) >= 0.995 else "different"
    assert f"Same or different{verdict} (probability 0." in rest
    assert "at most 1 % of the pairs of items of two new classes" in rest
    assert page.locator("#same-from").text_content() == "Same from a similarity of 0.995 on."
    assert page.locator(".hit .badge").count() == 24
    assert {badge.split()[0] for badge in page.locator(".hit .badge").all_text_contents()} <= {"same", "different"}
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    assert page.evaluate("document.activeElement.className") == "why"


STATES = ["", "#view=map", "#view=inspect", "#view=inspect&queue=mislabelled", "#view=inspect&queue=duplicates"]


def settle(page: Any) -> None:
    page.wait_for_selector(".hit, canvas[data-points], .case")
    page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_everything_within_its_width(browse: Any, address: str, dark: bool) -> None:
    page = browse(width=390, dark=dark)
    for state in [*STATES, "hits"]:
        if state == "hits":
            page.goto(address + "#")
            start_from_first_item(page)
        else:
            page.goto("about:blank")
            page.goto(address + state)
            settle(page)
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0, state
    lightness = sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))
    assert lightness < 150 if dark else lightness > 600


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_fault(browse: Any, dark: bool) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    ).Axe()
    faults = []
    for state in [*STATES, "hits", "why"]:
        page = browse("" if state in ("hits", "why") else state, dark=dark)
        settle(page)
        if state in ("hits", "why"):
            start_from_first_item(page)
        if state == "why":
            page.locator(".why").first.click()
            page.wait_for_selector(".reasons")
        found = axe.run(page).response["violations"]
        faults += [
            (state, fault["id"], fault["nodes"][0]["html"])
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]
    assert faults == []


def test_the_skip_link_keeps_the_view(browse: Any) -> None:
    page = browse("#view=inspect&queue=duplicates")
    settle(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert page.url.endswith("#view=inspect&queue=duplicates")


def test_a_point_of_the_map_says_when_the_server_is_gone(browse: Any) -> None:
    page = browse("#view=map", strict=False)
    whole_map(page)
    page.route("**/map/ids*", lambda route: route.abort())
    page.reload()
    whole_map(page)
    page.locator("canvas").focus()
    page.keyboard.press("Enter")
    page.get_by_text("The server does not respond").wait_for()


def test_a_second_decision_on_an_item_takes_the_place_of_the_first(browse: Any) -> None:
    page = browse("#view=inspect&queue=duplicates&threshold=0.9999999")
    page.wait_for_selector(".case")
    item = page.locator("[data-id]").first
    item.get_by_role("button", name="Keep").click()
    item.locator(".decided", has_text="Keep").wait_for()
    before = page.locator("#tally").text_content()
    item.get_by_role("button", name="Remove").click()
    item.locator(".decided", has_text="Remove").wait_for()
    assert page.locator("#tally").text_content() == before


@pytest.mark.parametrize("queue", ["confused", "mislabelled", "duplicates"])
def test_a_phone_shows_all_tabs(browse: Any, queue: str) -> None:
    page = browse(f"#view=inspect&queue={queue}", width=390)
    settle(page)
    tabs = [tab.bounding_box() for tab in page.locator(".tabs a").all()]
    assert len(tabs) == 3
    for box in tabs:
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("(row => row.scrollWidth - row.clientWidth)(document.querySelector('.tabs'))") == 0


ROOM = """async () => {
  const { FreeRoom } = await import("/static/map_room.js");
  const room = new FreeRoom(400, 300, 3);
  for (let x = 0; x < 400; x += 25) for (let y = 60; y < 240; y += 25) room.occupy(x - 4, y - 4, x + 4, y + 4);
  room.count();
  const boxes = [0, 1, 2, 3].map(() => room.nearest(200, 150, 60, 16, 200)).filter((box) => box);
  return [boxes, room.nearest(200, 150, 60, 16, 20)];
}"""


def test_names_on_the_map_are_placed_off_points_and_off_each_other(browse: Any) -> None:
    boxes, none_near = browse().evaluate(ROOM)
    assert len(boxes) == 4
    assert none_near is None
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert (right - left, bottom - top) == pytest.approx((60, 16))
        points = [(x, y) for x in range(0, 400, 25) for y in range(60, 240, 25)]
        assert not [(x, y) for x, y in points if left - 4 < x < right + 4 and top - 4 < y < bottom + 4]
        for other in boxes[:number]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]


def test_the_map_says_how_many_labels_have_no_name(browse: Any) -> None:
    page = browse("#view=map")
    whole_map(page)
    assert page.locator("#map-names").text_content() == "" or "not named" in page.locator("#map-names").text_content()
    page.evaluate("document.querySelector('.map-frame').style = 'width: 36px'")  # no room for any name
    page.wait_for_function("() => document.querySelector('canvas').width < 40")
    page.locator("canvas").focus()
    page.keyboard.press("0")
    page.get_by_text(re.compile(rf"^{CLASSES} labels of {CLASSES} in view are not named")).wait_for()


def test_everything_can_be_done_with_the_keyboard(browse: Any) -> None:
    page = browse()
    page.wait_for_selector(".begin .hit a")

    def to(selector: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab never reaches {selector}")

    to(".begin .hit a")
    page.keyboard.press("Enter")
    hits(page)
    to(".hits .why")
    page.keyboard.press("Enter")
    page.wait_for_selector(".reasons")
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    to("[data-view=map]")
    page.keyboard.press("Enter")
    whole_map(page)
    to("canvas")
    before = page.evaluate("document.querySelector('canvas').toDataURL()")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    page.wait_for_function("before => document.querySelector('canvas').toDataURL() !== before", arg=before)
    page.keyboard.press("0")
    page.keyboard.press("s")
    page.wait_for_selector(".selection h2")
    page.keyboard.press("Enter")
    hits(page)
