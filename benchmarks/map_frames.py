"""Milliseconds that a frame of the page's map takes in a browser without a GPU.

    python benchmarks/map_frames.py --points 100000

Builds an index of random heaps, serves it, opens its map in headless Chromium at 1280 x 860, and moves and zooms. Every
frame is timed twice: the drawing alone, as the page itself measures it, and from one animation frame to the next.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.index import Index

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
# One event per animation frame, as a person who drags without pause makes them.
MOVE = """async ([frames, kind]) => {
  const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const event = (name, clientX, clientY) =>
    canvas.dispatchEvent(new PointerEvent(name, { pointerId: 1, clientX, clientY }));
  canvas.setPointerCapture = () => {};
  const next = () => new Promise(requestAnimationFrame);
  const drawn = [], between = [];
  let x = box.left + box.width / 2, y = box.top + box.height / 2;
  if (kind === "pan") event("pointerdown", x, y);
  let last = await next();
  for (let turn = 0; turn < frames; turn += 1) {
    x += 6 * Math.cos(turn / 8); y += 6 * Math.sin(turn / 8);
    if (kind === "pan") event("pointermove", x, y);
    else {
      const deltaY = turn < frames / 2 ? -30 : 30;
      canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, clientX: x, clientY: y }));
    }
    const now = await next();  // asked for after the page asked for its own: that one is drawn by now
    drawn.push(Number(canvas.dataset.frame)); between.push(now - last);
    last = now;
  }
  if (kind === "pan") event("pointercancel", x, y);
  return [drawn, between];
}"""


def heaps(many: int, folder: Path) -> Index:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 100, many)
    vectors = rng.normal(size=(100, 32))[labels] + 0.7 * rng.normal(size=(many, 32))
    return Index.of_vectors(folder / "heaps.index", vectors, labels=[f"heap {label}" for label in labels])


def measure(page: Any, frames: int) -> None:
    for kind in ("pan", "zoom"):
        drawn, between = page.evaluate(MOVE, [frames, kind])
        for what, values in (("drawing", drawn), ("frame to frame", between)):
            low, high = np.percentile(values, [5, 95])
            print(
                f"{kind:5} {what:15} median {statistics.median(values):6.1f} ms, 5 to 95 %: {low:.1f} to {high:.1f} ms"
            )


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=100)
    asked = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        sys.exit("This needs Chromium (Debian: apt-get install chromium).")
    with tempfile.TemporaryDirectory() as home:
        index = heaps(asked.points, Path(home))
        command = [sys.executable, "-m", "vicinal", "serve", str(index.path), "--port", "0"]
        index.close()
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.:]+/", line)))
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=program, args=FLAGS)
                page = browser.new_page(viewport={"width": 1280, "height": 860})
                begun = time.perf_counter()
                page.goto(f"{address}#view=map")
                page.wait_for_selector("canvas[data-points]", timeout=600_000)
                print(f"{asked.points:,} points: map made and shown in {time.perf_counter() - begun:.1f} s")
                begun = time.perf_counter()
                page.reload()
                page.wait_for_selector("canvas[data-points]", timeout=600_000)
                print(f"{asked.points:,} points: shown again in {time.perf_counter() - begun:.1f} s")
                measure(page, asked.frames)
                browser.close()
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
