"""`vicinal tournament`: rank methods over several experiments."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vicinal.cli.options import AllowCode, AsJson, Quiet
from vicinal.cli.output import prepare_figure, save_figure, say_notes
from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.leaderboard import Leaderboard
    from vicinal.runs import Run
    from vicinal.stats import Tournament
    from vicinal.stats.ranks import Missing

__all__ = ["tournament"]

LEVEL = 0.05
MISSING: dict[str | None, Missing] = {
    None: "refuse",
    "experiments": "drop experiments",
    "methods": "drop methods",
}


def tournament(
    what: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS|TABLE",
            help="Folders written by `vicinal compare` or `vicinal train`, or a CSV file with one row per experiment "
            "and one column per method, or with columns experiment, method, score. Without it: the losses of the "
            "thesis 'Metric learning: a deep dive' (2020) on CUB.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Significance level.")] = LEVEL,
    drop: Annotated[
        Literal["experiments", "methods"] | None,
        typer.Option(help="If scores are missing, drop experiments or methods."),
    ] = None,
    pairs: Annotated[bool, typer.Option(help="Also test every pair of methods.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the critical-difference diagram to this file.")] = None,
    theme: Annotated[Literal["light", "dark"], typer.Option(help="Theme of the diagram.")] = "light",
    as_json: AsJson = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Rank methods over several experiments and test which differences are significant.

    Higher scores are better.
    """
    from vicinal.literature import thesis_tables
    from vicinal.stats import plot_critical_difference, read_scores
    from vicinal.stats import tournament as hold

    prepare_figure(plot, "--plot")
    drawn: list[Path] = []
    boards = _boards(what) if what and all(path.is_dir() for path in what) else []
    if boards and (level != LEVEL or drop is not None):
        raise InputError("--level and --drop are for tables, not for folders of comparisons.")
    if boards:
        ranked = [(board.title, board.ranks) for board in boards]
        missing = [title for title, ranks in ranked if ranks is None]
        if missing:
            raise InputError(
                f"Ranking {missing[0]} needs two methods that share at least two experiments (seeds, folds, networks). "
                "Train more seeds, or read the comparison with `vicinal report`."
            )
        rankings = [(title, ranks) for title, ranks in ranked if ranks is not None]
    elif what:
        if len(what) > 1:
            absent = [str(path) for path in what if not Path(path).exists()]
            got = f"{', '.join(absent)} does not exist" if absent else f"got {', '.join(map(str, what))}"
            raise InputError(f"Give one table, or folders of comparisons and runs; {got}.")
        rankings = [("", hold(read_scores(what[0]), level=level, missing=MISSING[drop]))]
    else:
        thesis = "R@1 on CUB of 10 losses x 3 networks x 4 sizes (Psomas 2020, Tables 6-8)"
        rankings = [(thesis, hold(thesis_tables(), level=level, missing=MISSING[drop]))]
    if plot is not None:
        for number, (_, ranks) in enumerate(rankings):
            path = plot if not number else plot.with_stem(f"{plot.stem}-{number + 1}")
            save_figure(plot_critical_difference(ranks, theme=theme), path)
            drawn.append(path)
    for path in drawn:
        typer.echo(f"Wrote {path}", err=True)
    if as_json:
        records = [_record(ranks, pairs) for _, ranks in rankings]
        typer.echo(json.dumps(records if len(records) > 1 else records[0], indent=2))
        return
    typer.echo("\n\n".join(_text(title, ranks, pairs, level) for title, ranks in rankings))
    for board in boards:
        typer.echo(f"\n{_by_classes(board)}")


def _boards(folders: list[Path]) -> list[Leaderboard]:
    """Return the leaderboards of comparisons, and of runs that were trained individually."""
    from vicinal.leaderboard import leaderboards
    from vicinal.runs import Journal, Run, RunFiles

    def is_run(folder: Path) -> bool:
        files = RunFiles(folder)
        return not Journal(folder).path.exists() and (files.record.exists() or files.recipe.exists())

    trained = [Run.open(folder) for folder in folders if is_run(folder)]
    if untested := [run.folder for run in trained if not run.record.test]:
        raise InputError(f"{untested[0]} has no test scores; train it with `vicinal train`.")
    boards = leaderboards([folder for folder in folders if not is_run(folder)], runs=trained, progress=True)
    if trained:
        _check_trained([[run for run in board.runs if run in trained] for board in boards])
    return boards


def _check_trained(by_question: list[list[Run]]) -> None:
    """Reject runs that are not comparable; a comparison ensures this, individual training does not.

    Args:
        by_question: Individually trained runs of each leaderboard.
    """
    groups = [runs for runs in by_question if runs]
    if len(groups) > 1:
        descriptions = [f"{runs[0].folder} ({runs[0].record.dataset}, {runs[0].record.protocol})" for runs in groups]
        raise InputError(
            "Runs can be ranked only if data, protocol, test classes and step selection are the same. These differ: "
            f"{'; '.join(descriptions)}. Rank them separately."
        )
    first_runs: dict[tuple[str, str], Run] = {}
    for run in groups[0]:
        same = first_runs.setdefault((run.record.name, run.record.experiment), run)
        if same is not run:
            raise InputError(
                f"{same.folder} and {run.folder} are both {run.record.name} in the same experiment "
                f"({run.record.experiment}); give only one of them, or train with different seeds."
            )
    images = sorted({run.record.images for run in groups[0]})
    if len(images) > 1:
        say_notes([f"Budgets differ: runs saw {images[0]:,} to {images[-1]:,} images."])


def _record(ranks: Tournament, pairs: bool) -> dict[str, Any]:
    from vicinal.stats import verdict

    return {
        "standings": [asdict(row) for row in ranks.table()],
        "experiments": ranks.experiments,
        "friedman": asdict(ranks.friedman) if ranks.friedman else None,
        "critical difference": ranks.critical_difference,
        "groups": ranks.groups,
        "pairs": [asdict(test) for test in ranks.pairs()] if pairs else [],
        "verdict": asdict(verdict(ranks)),
    }


def _text(title: str, ranks: Tournament, pairs: bool, level: float) -> str:
    from vicinal.stats import verdict

    blocks = [*([title, ""] if title else []), str(ranks), "", str(verdict(ranks))]
    if pairs:
        tests = ranks.pairs()
        blocks += ["", "Pairs of methods, by experiment (p corrected by Holm):", *map(str, tests)]
        blocks += ["", str(verdict(tests, level=level))]
    return "\n".join(blocks)


def _by_classes(board: Leaderboard) -> str:
    """Return the leaderboard's verdicts on the same runs, class by class."""
    verdicts = [str(board.verdict(network)) for network in board.networks if board.verdict(network) is not None]
    return "\n".join(["By class, as in the leaderboard:", *verdicts])
