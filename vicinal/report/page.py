"""The report page: headline, summary and chapters, written as HTML and Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Console
from rich.progress import Progress

from vicinal._util.code import Trust, brought_along, find, name_of
from vicinal._util.files import write_atomically
from vicinal._util.text import capitalised, counted, in_words, percent
from vicinal.errors import DataError, InputError
from vicinal.leaderboard import Advice, Leaderboard, leaderboards
from vicinal.leaderboard.leaderboard import only_losses
from vicinal.leaderboard.text import network_in_words, scored_classes
from vicinal.report.blocks import Chapter, Chart
from vicinal.report.chapters import CHAPTERS

__all__ = ["facts", "headline", "lede", "write_report"]


# Headline and summary.

# Ending of the headline, by whether training was worth it.
WORTH = {
    "yes": "; training was worth it",
    "no": "; training was not worth it",
    "unknown": "; it is open whether training was worth it",
    "divided": "; validation and test classes disagree whether training was worth it",
}


def headline(board: Leaderboard) -> str:
    """Return which loss won, or that none did."""
    data = Path(board.first.dataset).name
    if not board.entries:
        return f"No run on {data} was done"
    divided = board.gain is not None and board.gain.answer == "divided"
    if board.best_entry in board.baselines and not divided:
        return f"Nothing beats the untrained network on {data}"
    return _winner(board, data) + ("" if board.gain is None else WORTH[board.gain.answer])


def _winner(board: Leaderboard, data: str) -> str:
    verdict = board.verdict()
    if verdict is None:
        return f"{capitalised(board.of_network()[0].label)} scores highest on {data}"
    winner = capitalised(in_words(verdict.winner))
    if verdict.significant:
        return f"{winner} wins on {data}"
    return (
        f"{winner} leads on {data}, but not every rival is beaten" if verdict.beaten else f"No clear winner on {data}"
    )


def lede(board: Leaderboard) -> str:
    """Return the winner's score, which others it beats, and caveats."""
    if not board.entries:
        return f"{counted(len(board.failed), 'run')} failed; their errors are below."
    score, entries = board.score, board.of_network()
    first = f"On classes that no training run had seen, {entries[0].label} reaches a {score} of"
    ahead = f", ahead of {entries[1].label} with {percent(entries[1].mean(score))} %" if len(entries) > 1 else ""
    sentences = [f"{first} {percent(entries[0].mean(score))} %{ahead}."]
    verdict = board.verdict()
    if verdict is not None:
        sentences.append(capitalised(in_words(str(verdict))))
    if len(board.networks) > 1:
        sentences.append(
            f"All of this is for {network_in_words(board.main_network)}: the best network by {board.chosen_by} scores."
        )
    if board.first.selected_on == "test":
        sentences.append("Steps were selected on test, so every score here is too high.")
    if board.failed:
        sentences.append(f"{counted(len(board.failed), 'run')} failed.")
    return " ".join(sentences)


def facts(board: Leaderboard) -> str:
    """Return what was compared, briefly."""
    records, networks = board.records, board.networks
    parts = [
        counted(len({entry.name for entry in board.entries}), "loss"),
        counted(len({record.seed for record in records}), "seed"),
        network_in_words(networks[0]) if len(networks) == 1 else counted(len(networks), "network"),
        counted(len(records), "run"),
        counted(len(scored_classes(board)), "test class"),
    ]
    return " · ".join(parts)


@final
@dataclass(frozen=True)
class Part:
    """One comparison of a report.

    Args:
        title: Data and protocol.
        anchor: Anchor of links to it.
        headline: Headline with the winner.
        lede: Summary in a few sentences.
        advice: Advice on what to use and what to do next.
        facts: Short list of what was compared.
        chapters: Chapters about the comparison.
    """

    title: str
    anchor: str
    headline: str
    lede: str
    advice: tuple[Advice, ...]
    facts: str
    chapters: tuple[Chapter, ...]


def write_report(
    results: Leaderboard | str | Path | Sequence[Leaderboard] | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    losses: Sequence[str] | None = None,
    chapters: Sequence[str | Callable[[Leaderboard], list[Chapter]]] = (),
    progress: bool = True,
    allow_code: Sequence[str] = (),
) -> Path:
    """Write one self-contained HTML page about comparisons, with a Markdown version next to it.

    Args:
        results: One or several leaderboards, as `vicinal.compare` returns them, or folders that `vicinal compare`
            wrote. Journals of one comparison from several machines are merged. Results of different data or protocols
            get separate parts.
        out: Path of the page, by default `report.html` in the first folder. The Markdown version has the same name
            with the suffix `.md`; its figures are in a folder next to it.
        losses: Names of the losses to report, as the leaderboard shows them ("triplet+semi_hard"); by default all.
            Baselines are always reported.
        chapters: Additional chapters at the end, after those of installed packages: functions from a leaderboard to a
            list of `vicinal.report.Chapter`, or "my_module:my_chapter".
        progress: Whether to show a progress bar.
        allow_code: Modules or files whose code the runs may name.

    Returns:
        Path of the page.

    Raises:
        InputError: If a folder holds no comparison, or leaderboards belong to no folder and `out` is not given.
        UnknownName: If no leaderboard has a loss of that name.
        DataError: If the page cannot be written.
    """
    boards = _boards(results, progress=progress, allow_code=allow_code)
    if losses is not None:
        boards = only_losses(boards, losses)
    out = _beside(boards[0]) if out is None else Path(out)
    trust = Trust.of(allow_code) | Trust.typed(chapters)
    names = [name_of("chapter", chapter, CHAPTERS) for chapter in chapters]
    named = {name: find("chapter", name, CHAPTERS, trust) for name in names}
    every: dict[str, Callable[[Leaderboard], list[Chapter]]] = CHAPTERS | brought_along("chapter") | named
    scored = [bool(board.entries) for board in boards]  # joins folds, with its own progress bar
    bar = Progress(console=Console(stderr=True), disable=not progress, transient=True)
    parts = []
    with bar:
        task = bar.add_task("report", total=len(boards) * len(every))
        for number, (board, has_scores) in enumerate(zip(boards, scored, strict=True)):
            written: list[Chapter] = []
            for name, chapter in every.items():
                bar.update(task, description=name)
                # Without any score, only the failures can be reported.
                written += chapter(board) if has_scores or name == "failed runs" else []
                bar.advance(task)
            parts.append(_part(number, board, written))
    values = {"parts": parts, "written": datetime.now(UTC).strftime("%d %B %Y")}
    figures = out.with_name(f"{out.stem}-figures")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, _environment(html=True).get_template("report.html.j2").render(values))
        twin = _environment(html=False).get_template("report.md.j2").render(values, figures=figures.name)
        write_atomically(out.with_suffix(".md"), re.sub(r"\n{3,}", "\n\n", twin))
        _write_figures(parts, figures)
    except OSError as error:
        raise DataError(
            f"Could not write the report {out}: {error.strerror}.", hint="Choose another place with --out."
        ) from error
    return out


def _boards(
    results: Leaderboard | str | Path | Sequence[Leaderboard] | Sequence[str | Path],
    *,
    progress: bool,
    allow_code: Sequence[str],
) -> list[Leaderboard]:
    """Return leaderboards unchanged, or read those of folders."""
    several = [results] if isinstance(results, Leaderboard | str | Path) else list(results)
    boards = [result for result in several if isinstance(result, Leaderboard)]
    folders = [result for result in several if not isinstance(result, Leaderboard)]
    if boards and folders:
        raise InputError("A report is about leaderboards or about folders; got both.")
    return boards or leaderboards(folders, progress=progress, allow_code=allow_code)


def _beside(board: Leaderboard) -> Path:
    if not board.folders:
        raise InputError("The leaderboard belongs to no folder: say with out= where its report goes.")
    return board.folders[0] / "report.html"


def _part(number: int, board: Leaderboard, chapters: list[Chapter]) -> Part:
    return Part(
        board.title,
        f"part-{number + 1}",
        headline(board),
        lede(board),
        tuple(advice._replace(text=in_words(advice.text)) for advice in board.advice(percent, " %")),
        facts(board),
        tuple(chapters),
    )


def _environment(*, html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("vicinal.report"),
        autoescape=html,
        finalize=None if html else _plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _prose
    environment.filters["anchor"] = _anchor
    environment.filters["capitalised"] = capitalised
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["cell"] = lambda text: re.sub(r"([|\[\]])", r"\\\1", str(text)).replace("\n", " ")
    environment.globals["style"] = _style("figures.css") + _style("page.css")
    return environment


def _plain(value: object) -> object:
    """Escape HTML and links in Markdown: a class called <script> must not run, nor [x](https://elsewhere) be a link."""
    if not isinstance(value, str) or isinstance(value, Markup):  # the output of macros is already escaped
        return value
    return value.replace("<", "&lt;").replace("](", "]\\(")


def _anchor(title: str) -> str:
    """Return a title as part of a link or a file name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _prose(text: str) -> Markup:
    """Escape a text, render words between backticks as code, and keep a percent sign on the line of its number."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))).replace(" %", "&nbsp;%"))


def _style(name: str) -> Markup:
    return Markup((resources.files("vicinal.report") / "templates" / name).read_text(encoding="utf-8"))


def _write_figures(parts: Sequence[Part], folder: Path) -> None:
    """Write each drawing as a file with embedded style."""
    style = f"<style>{_style('figures.css')}</style>"
    for part in parts:
        for chapter in part.chapters:
            for block in chapter.blocks:
                if isinstance(block, Chart):
                    folder.mkdir(exist_ok=True)
                    for number, panel in enumerate(block.panels, 1):
                        text = panel.svg.replace(">", f">{style}", 1)
                        write_atomically(folder / f"{part.anchor}-{_anchor(block.name)}-{number}.svg", text)
