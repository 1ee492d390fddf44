"""Compare losses: the grid of trials, run side by side, one journal, one leaderboard."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from vicinal.build import build_criterion, build_sampler
from vicinal.compare.comparison import Comparison
from vicinal.comparing.conditions import comparison_folder, conditions
from vicinal.comparing.shared_features import compute_features
from vicinal.comparing.contestants import Contestant, contestants, needs
from vicinal.comparing.executor import Ended, cores, run_here, run_in_processes
from vicinal.comparing.progress import Shown
from vicinal.comparing.work import RunTrial, TuneLoss, decode, decoded
from vicinal.data import Dataset, load, split
from vicinal.errors import InputError, Interrupted, VicinalError, look_up
from vicinal.fitting import METRICS
from vicinal.results import Trial, folds_of, read_records, trial_folder, write_record
from vicinal.results.record import JOURNAL
from vicinal.protocols.run import failed
from vicinal.recipe import Recipe, read_recipe, recipe_from

__all__ = ["compare"]


def compare(
    data: str | Path | Dataset,
    losses: Sequence[str | Path],
    *,
    out: str | Path,
    recipe: Recipe | str | Path | None = None,
    dims: Sequence[int] = (),
    backbones: Sequence[str] = (),
    seeds: int = 1,
    protocol: str = "fixed-validation",
    folds: int | None = None,
    tune: int = 0,
    sampler: str = "tpe",
    select_on_test: bool = False,
    jobs: int | None = None,
    ray: str | None = None,
    workers: int = 0,
    skip_bad: bool = False,
    cache: Path | None = None,
    keep_models: bool = True,
    retry_failed: bool = False,
    progress: bool = True,
    command: str = "",
    **changes: Any,
) -> Comparison:
    """Train every loss under the same conditions, on every seed and fold, and compare what comes out.

    Killed at any moment and called again with the same arguments, it runs only what is missing. Every trial is a line
    of `journal.jsonl` in the folder `out`; one that fails is recorded with its error, and the rest go on.

    Args:
        data: A dataset, its name or its path.
        losses: "triplet", "triplet+semi_hard" (with a miner), "contrastive+memory" (with past batches),
            "contrastive+ccp" (with chance-constrained proxies), the path of a TOML recipe, or a folder of them.
        out: Folder of the comparison.
        recipe: Conditions that all share: a recipe, or the path of one.
        dims: Lengths of embeddings to compare at, by default the recipe's.
        backbones: Networks to compare with, by default the recipe's.
        seeds: How often all of it is repeated.
        protocol: How classes are divided.
        folds: How many, if not the protocol's own number.
        tune: Trials of the search for each loss's settings, the same number for each; 0 takes them as given. The search
            sees the validation classes of the first seed and fold alone, and its result serves all seeds and folds.
        sampler: Which sampler chooses in that search.
        select_on_test: Report the step that is best on the *test* classes, as many papers did. The result is labelled.
        jobs: Trials at a time, among which threads are divided; by default one for each processor up to 4, and one
            where there is a GPU.
        ray: Address of a Ray cluster to run trials on ("local" starts one here); None runs them here.
        workers: Processes that decode images, for each trial.
        skip_bad: Leave out images that cannot be read instead of stopping.
        cache: Where frozen features are kept, by default the user's cache folder.
        keep_models: Whether every trial keeps its trained embedder.
        retry_failed: Run trials again that failed before.
        progress: Whether to show progress.
        command: What repeats the comparison, for the records.
        **changes: Settings of a recipe that override everything: `steps=500, freeze=True`.

    Raises:
        InputError: Listing all mistakes of all recipes, before anything runs.
        DataError: Where the folder cannot be written to.
        Interrupted: After Ctrl-C or SIGTERM; the same call goes on.

    Example:
        >>> import tempfile
        >>> found = compare("digits", ["triplet", "proxy_anchor"], out=tempfile.mkdtemp(), steps=5, dim=8,
        ...                 classes_per_batch=2, jobs=1, progress=False, protocol="k-fold", folds=2)
        >>> len(found.records)
        4
    """
    folder = Path(out)
    base = _values(recipe)
    entries = contestants(losses, base, changes)
    if seeds < 1 or (jobs is not None and jobs < 1) or tune < 0:
        raise InputError(f"seeds and jobs must be at least 1 and tune at least 0; got {seeds}, {jobs} and {tune}.")
    whole = load(data, skip_bad=skip_bad) if not isinstance(data, Dataset) else data
    dataset = whole.name if isinstance(data, Dataset) else str(data)
    grid = _grid(entries, dims, backbones, seeds, folds_of(protocol, folds))
    blank = Trial("", dataset, "", protocol, 0, None, entries[0].recipe, folds, select_on_test=select_on_test)
    _check(grid, whole, blank)
    jobs = jobs or (1 if torch.cuda.is_available() else min(4, cores()))
    blank = replace(blank, data=whole.hash())
    trials = [
        replace(blank, name=one.name, recipe=one.recipe, demands=one.demands, seed=seed, fold=fold)
        for one, seed, fold in grid
    ]
    stated = conditions(trials[0], tune, sampler)
    with comparison_folder(folder, stated), _stoppable(folder):
        decodings = dict.fromkeys([None, *(decoded(trial.recipe, whole) for trial in trials)])
        views = {how: decode(whole, how) for how in decodings}
        compute_features(trials, whole, cache=cache, workers=workers, progress=progress)
        run = {"jobs": jobs, "threads": max(1, cores() // jobs), "ray": ray}
        if tune:
            work = TuneLoss(views, folder, tune, sampler, cache)
            trials, broken = _tuned(trials, work, tune, run, progress)
            for trial, reason in broken:
                write_record(folder, failed(trial, reason, trial_folder(folder, trial.key), command=command))
        _run(
            trials, RunTrial(views, folder, cache, workers, skip_bad, keep_models, command), run, retry_failed, progress
        )
        wanted = {trial.key for trial in trials}
        return Comparison.of([one for one in read_records(folder) if one.key in wanted], folder)


def _values(recipe: Recipe | str | Path | None) -> Mapping[str, Any]:
    if isinstance(recipe, Recipe):
        return recipe.model_dump()
    return {} if recipe is None else read_recipe(recipe)


def _grid(
    entries: Sequence[Contestant],
    dims: Sequence[int],
    backbones: Sequence[str],
    seeds: int,
    folds: Sequence[int | None],
) -> list[tuple[Contestant, int, int | None]]:
    """Return all trials, such that every loss has its first result before any has its second."""
    sizes: Sequence[int | None] = dims or [entries[0].recipe.dim]
    return [
        (replace(one, recipe=recipe_from({"backbone": backbone, "dim": dim, "seed": seed}, one.recipe)), seed, fold)
        for seed in range(seeds)
        for fold in folds
        for backbone in backbones or [entries[0].recipe.backbone]
        for dim in sizes
        for one in entries
    ]


def _check(grid: Sequence[tuple[Contestant, int, int | None]], data: Dataset, blank: Trial) -> None:
    """Build every loss on the data before anything runs, and report all that is wrong at once."""
    _, seed, fold = grid[0]
    train = split(data, blank.protocol, seed=seed, fold=fold, folds=blank.folds).train
    if blank.select_on_test and blank.protocol != "default":
        raise InputError(
            f"Choosing steps by the test classes goes with protocol 'default', not {blank.protocol!r}, which has "
            "validation classes for it."
        )
    wrong: dict[str, None] = {}
    for one in {entry.name: entry for entry, _, _ in grid}.values():
        try:
            look_up("metric", one.recipe.training.metric, dict.fromkeys(METRICS))
            build_criterion(one.recipe, train, one.recipe.dim or 8)
            build_sampler(one.recipe, train)
        except VicinalError as error:
            wrong[f"{one.name}: {error}"] = None
    if wrong:
        raise InputError("The comparison has mistakes:\n" + "\n".join(f"  - {line}" for line in wrong))


def _tuned(
    trials: Sequence[Trial], work: TuneLoss, budget: int, run: Mapping[str, Any], progress: bool
) -> tuple[list[Trial], list[tuple[Trial, str]]]:
    """Search for each loss's settings once, and return the trials with them, and those whose search failed."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(trial.name, trial)
    found: dict[str, Recipe | str] = {}
    with Shown("tuning", len(first), progress) as shown:
        for ended in _ended(list(first.values()), work, shown.started, run):
            found[ended.task.name] = ended.result if ended.result is not None else ended.error
            shown.ended(ended.task)
    ready, broken = [], []
    for trial in trials:
        best = found[trial.name]
        if isinstance(best, str):
            broken.append((trial, f"The search for its settings failed: {best}"))
        else:
            own = {"backbone": trial.recipe.backbone, "dim": trial.recipe.dim, "seed": trial.seed}
            former = needs(trial.recipe)  # the search may have changed what these say
            demands = (*needs(best), *(word for word in trial.demands if word not in former))
            ready.append(replace(trial, recipe=recipe_from(own, best), demands=demands, tuning_trials=budget))
    return ready, broken


def _run(trials: Sequence[Trial], work: RunTrial, run: Mapping[str, Any], retry_failed: bool, progress: bool) -> None:
    """Run the trials that the journal lacks."""
    past = read_records(work.out) if (work.out / JOURNAL).exists() else []
    finished = {record.key for record in past if record.status == "done" or not retry_failed}
    missing = [trial for trial in trials if trial.key not in finished]
    with Shown("trials", len(trials), progress, completed=len(trials) - len(missing)) as shown:
        for ended in _ended(missing, work, shown.started, run):
            folder = trial_folder(work.out, ended.task.key)
            record = ended.result or failed(ended.task, ended.error, folder, command=work.command)
            write_record(work.out, record)
            shown.ended(ended.task, record)


def _ended(tasks: Sequence[Any], work: Any, started: Any, run: Mapping[str, Any]) -> Iterator[Ended[Any, Any]]:
    if run["ray"] is not None:
        from vicinal.comparing.ray_executor import run_on_ray

        return run_on_ray(tasks, work, started, address=run["ray"], threads=run["threads"])
    if run["jobs"] == 1:
        return run_here(tasks, work, started)
    return run_in_processes(tasks, work, started, jobs=run["jobs"], threads=run["threads"])


@contextmanager
def _stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one message that says how to go on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        former = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals cannot be caught
        former = None
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(
            f"The comparison was stopped. Finished trials are in {folder / JOURNAL}: give the same command to go on."
        ) from None
    finally:
        if former is not None:
            signal.signal(signal.SIGTERM, former)
