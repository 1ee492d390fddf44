"""An index that is killed while it is built, refreshed, embedded anew, rolled back or compacted, and then goes on.

    PYTHONPATH=.:campaign python campaign/index_phases.py --trials 100

After each kill the index must be whole: items and vectors of before, of after, or (where work is committed piece by
piece) some of each; the same call, given again, ends as one that was never disturbed does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Tally, finish, options, timed
from index_kills import SIGNALS, end
from PIL import Image

from vicinal.embedder import Embedder
from vicinal.index import Index
from vicinal.index import refresh as taking_in
from vicinal.index.folder import IndexFolder, is_index
from vicinal.index.stores.embedded import EmbeddedStore

forks = multiprocessing.get_context("fork")
Content = dict[str, str]  # the hash of each item's file by its name


@dataclass
class Bench:
    """An index, the pictures that it is of, two embedders, and what each makes of a picture."""

    folder: Path
    rng: np.random.Generator
    models: list[Embedder] = field(default_factory=list)
    right: dict[tuple[str, str], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.models = [Embedder("convnet", dim=4, options={"widths": [4], "size": 8}) for _ in range(2)]
        self.index, self.photos = self.folder / "x.index", self.folder / "photos"
        self.photos.mkdir()
        self.change(added=20)

    def change(self, added: int = 3) -> None:
        """Add pictures, replace one and take one away."""
        known = sorted(self.photos.iterdir())
        for path in known[:1]:
            path.unlink()
        fresh = [self.photos / f"{time.monotonic_ns()}-{number}.png" for number in range(added)]
        for path in [*known[1:2], *fresh]:
            Image.fromarray(self.rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(path)

    def state(self) -> tuple[str, Content] | None:
        """The embedder and the items of the index, all of it checked; None if there is no index."""
        if not is_index(self.index):
            return None
        with Index.open(self.index) as index:
            assert index.verify() == []
            return self._checked(index.store)

    def before_that(self) -> tuple[str, Content] | None:
        """The same of the generation that a rollback goes back to."""
        folder = IndexFolder(self.index).previous() if is_index(self.index) else None
        if folder is None:
            return None
        with closing(EmbeddedStore(folder)) as store:
            return self._checked(store)

    def _checked(self, store: Any) -> tuple[str, Content]:
        items, vectors = store.get()
        for item, vector in zip(items, vectors, strict=True):
            known = self.right.get((store.header.embedder, item.hash))
            if known is None:
                known = self._embedded(store.header.embedder, item)
            assert np.allclose(vector, known, atol=1e-5), f"{item.id} has another vector"
        return store.header.embedder, {item.id: item.hash for item in items}

    def _embedded(self, embedder: str, item: Any) -> Any:
        """What an embedder makes of a picture, whose file is still the one that was embedded."""
        model = next(model for model in self.models if model.identity() == embedder)
        known = model.encode([item.path], workers=0, engine="eager")[0]
        self.right[embedder, item.hash] = known
        return known

    def know_all(self) -> None:
        """Embed all pictures with both embedders before they change again."""
        with Index.open(self.index) as index:
            items, _ = index.get(vectors=False)
        for item in items:
            for model in self.models:
                if (model.identity(), item.hash) not in self.right:
                    self._embedded(model.identity(), item)


def run(work: Callable[[], object]) -> Any:
    """Start work in a process of its own."""

    def child() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        taking_in.COMMIT_AFTER = 4  # so that some kills come between two commits
        try:
            work()
        except KeyboardInterrupt:
            os._exit(130)

    process = forks.Process(target=child)
    process.start()
    return process


def undisturbed(work: Callable[[], object]) -> float:
    """Do work in a process of its own, to its end; return how long that took."""
    began = time.perf_counter()
    process = run(work)
    process.join(120)
    assert process.exitcode == 0, f"undisturbed, exit code {process.exitcode}"
    return time.perf_counter() - began


def one_kill(bench: Bench, phase: str, seconds: dict[str, float]) -> None:
    """Kill one phase and let it go on; an assertion fails where something is lost or wrong."""
    before, previous = bench.state(), bench.before_that()
    used = before[0] if before else bench.models[0].identity()
    mine, other = sorted(bench.models, key=lambda model: model.identity() != used)
    if phase == "refresh":
        bench.change()
    work: dict[str, Callable[[], object]] = {
        "build": lambda: Index.build(bench.index, mine, bench.photos),
        "refresh": lambda: Index.open(bench.index).refresh(bench.photos),
        "reembed": lambda: Index.open(bench.index).reembed(other),
        "rollback": lambda: Index.open(bench.index).rollback(),
        "compact": lambda: Index.open(bench.index).compact(),
    }
    process = run(work[phase])
    time.sleep(float(bench.rng.uniform(0, seconds.get(phase, 0.4))))
    if process.exitcode is None:
        end(process.pid, SIGNALS[int(bench.rng.integers(3))])
    between = bench.state()
    after = {"reembed": (other.identity(), before[1]) if before else None, "rollback": previous, "compact": before}
    if phase in after:
        assert between in (before, after[phase]), f"{phase} left neither what was there nor what was asked for"
        if between != after[phase] or phase == "compact":
            seconds[phase] = undisturbed(work[phase])
        assert bench.state() == after[phase]
        return
    now = {str(path) for path in bench.photos.iterdir()}
    if between is not None:
        assert between[0] == used
        assert set(between[1]) <= now | set(before[1] if before else ()), "items that nobody gave"
    seconds[phase] = undisturbed(work[phase])
    final = bench.state()
    assert final is not None
    assert set(final[1]) == now, f"{phase}, given again, has other items than the folder"


def every(trials: int, seed: int) -> list[Tally]:
    """Kill all phases of one index after the other."""
    torch.set_num_threads(1)
    tally = Tally("kills while an index is made anew")
    phases = ("build", "refresh", "reembed", "rollback", "compact")
    seconds: dict[str, float] = {}  # that each phase took when it was last not disturbed
    with timed(tally):
        for trial in range(seed, seed + trials):
            with tempfile.TemporaryDirectory() as place:
                bench = Bench(Path(place), np.random.default_rng([trial, 12]))
                for phase in phases:
                    if not tally.check(phase, trial, partial(one_kill, bench, phase, seconds)):
                        break  # what is wrong now would be wrong in the next phase, too
                    bench.know_all()
    return [tally]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=100)
    finish(every(flags.trials, flags.seed))
