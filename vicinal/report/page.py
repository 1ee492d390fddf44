"""The report page: headline, summary and chapters, written as HTML and Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import final

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Console
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from vicinal._util.code import Trust, find, name_of, plugins
from vicinal._util.files import write_atomically
from vicinal._util.text import counted, percent
from vicinal.errors import DataError, InputError
from vicinal.leaderboard import Advice, Leaderboard, leaderboards
from vicinal.leaderboard.leaderboard import only_losses
from vicinal.leaderboard.text import network_in_words, scored_classes
from vicinal.report.blocks import Chapter, Chart
from vicinal.report.chapters import CHAPTERS
from vicinal.report.labels import in_sentence, word_pieces

__all__ = ["facts", "headline", "lede", "write_report"]


# Headline and summary.

LONG = 24  # letters of a dataset's name above which the headline omits it; the line above has it
NAMED = 4  # most losses whose scores the summary has
SMALL = 10_000  # test items up to which chapters are computed in one thread

# Ending of the headline, by whether training helped.
WORTH = {
    "yes": "; training helped",
    "no": "; training did not help",
    "unknown": "; unclear whether training helped",
    "divided": "; validation and test disagree on training",
}


def headline(board: Leaderboard) -> str:
    """Return which loss won, or that none did, and whether training helped."""
    data = Path(board.first.dataset).name
    where = f" on {data}" if len(data) <= LONG else ""
    if not board.entries:
        return f"All runs{where} failed"
    divided = board.gain is not None and board.gain.answer == "divided"
    if board.best.record.role == "baseline" and not divided:
        return f"No loss beats the untrained network{where}"
    return _winner(board) + where + ("" if board.gain is None else WORTH[board.gain.answer])


def _winner(board: Leaderboard) -> str:
    verdict = board.verdict()
    if verdict is None:
        return f"Only {board.of_network()[0].name} was compared"
    if verdict.significant:
        return f"{verdict.winner} wins"
    return f"{verdict.winner} leads" if verdict.beaten else "No clear winner"


def lede(board: Leaderboard) -> str:
    """Return the highest score, which other losses are significantly worse, and caveats."""
    if not board.entries:
        return f"{counted(len(board.failed), 'run')} failed; the error messages are below."
    score, entries = board.score, board.of_network()
    verdict = board.verdict()
    sentences = [] if verdict is None else [in_sentence(board, str(verdict))]
    scores = [f"{entry.name} {percent(entry.mean(score))} %" for entry in entries[:NAMED]]
    rest = f", then {counted(len(entries) - NAMED, 'other loss', 'other losses')}" if len(entries) > NAMED else ""
    sentences.append(f"{score} on the test classes: {', '.join(scores)}{rest}.")
    if len(board.networks) > 1:
        sentences.append(
            f"All results here are for {network_in_words(board.main_network)}, the network with the best "
            f"{board.chosen_by} scores."
        )
    if board.first.selected_on == "test":
        sentences.append("Steps were selected on the test classes, so all scores are too high.")
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
    every: dict[str, Callable[[Leaderboard], list[Chapter]]] = CHAPTERS | plugins("chapter") | named
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
                if has_scores or name == "failed runs":
                    with _threads(board):
                        written += chapter(board)
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
            f"Could not write the report {out}: {error.strerror}.", hint="Choose another path with --out."
        ) from error
    return out


@contextmanager
def _threads(board: Leaderboard) -> Iterator[None]:
    """Compute in one thread if there are few test items: several would spend most of their time waiting."""
    threads = torch.get_num_threads()
    if sum(board.first.queries) > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


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
        raise InputError("A report takes leaderboards or folders, not both.")
    return boards or leaderboards(folders, progress=progress, allow_code=allow_code)


def _beside(board: Leaderboard) -> Path:
    if not board.folders:
        raise InputError("The leaderboard belongs to no folder. Pass the path of the report as out=.")
    return board.folders[0] / "report.html"


def _part(number: int, board: Leaderboard, chapters: list[Chapter]) -> Part:
    return Part(
        board.title,
        f"part-{number + 1}",
        headline(board),
        lede(board),
        tuple(advice._replace(text=in_sentence(board, advice.text)) for advice in board.advice(percent, " %")),
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
    environment.filters["breakable"] = _breakable
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
    """Escape a text, render words between backticks as code, and keep units on the line of their number."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r" (%|→ \w)|(?<=\d) (?=s\b)", lambda match: match[0].replace(" ", "&nbsp;"), text))


def _breakable(name: str) -> Markup:
    """Escape a name, and let lines break in it only between words."""
    return Markup("<wbr>").join(word_pieces(name))


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
