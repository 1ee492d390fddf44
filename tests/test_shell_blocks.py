"""Commands on the pages: every verb and flag that a page names exists, and those that take a second are run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from vicinal.cli.main import VERBS, app, command_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = ("", "bash", "sh", "console")  # "text" is what a command printed
QUICK = {"losses", "recipes", "data", "audit", "tournament"}  # verbs that are run, where their files are there
OF_ALL = {"--version", "--help", "--install-completion", "--show-completion"}
# Of other programs, or words that stand for a flag.
FOREIGN = re.compile(
    r"(embedding-atlas|pip|make|git|torchrun|ray|docker|ruff|pytest|hf|curl|psql|python|mkdocs|lint-imports|PYTHON)\b"
    r"|^\w+\.py "
)


class Command(NamedTuple):
    """A line of a page that calls vicinal."""

    page: str
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        return self.words[1] if len(self.words) > 1 else ""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def shell_lines(text: str) -> Iterator[str]:
    """Lines of the blocks that a shell would read, each with its continuations."""
    language: str | None = None
    held = ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            language = line.strip().strip("`").split(" ")[0] if language is None else None
        elif language in SHELLS:
            held += line.strip()
            if held.endswith("\\"):
                held = held[:-1] + " "
                continue
            yield held.removeprefix("$ ")
            held = ""


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[Command]:
    """Calls of vicinal in blocks and between backticks."""
    text = page.read_text()
    found = [line for line in shell_lines(text) if line.startswith("vicinal ")]
    found += re.findall(r"`(vicinal [a-z][^`]*)`", without_blocks(text))
    split = (shlex.split(line.replace("...", ""), comments=True) for line in found)
    return [Command(page.name, tuple(words)) for words in split]


ALL = [command for page in PAGES for command in commands(page)]


@cache
def flags_of(verb: str, word: str = "") -> frozenset[str]:
    """Every spelling of every option of a verb; of one that has several commands: of the one that is named.

    Args:
        verb: The verb.
        word: The word after it.
    """
    commands = getattr(command_of(verb), "commands", {})
    named = commands.get(word) or commands.get("build")  # `vicinal index MODEL DATA --out INDEX` is short for build
    parts = [named] if named and word else [command_of(verb), *commands.values()]
    known = [name for part in parts for each in part.params for name in (*each.opts, *each.secondary_opts)]
    return frozenset(known) | {"--help"}


def test_pages_show_commands() -> None:
    assert len(ALL) > 60
    assert {"data", "compare", "index", "search", "embed"} <= {each.verb for each in ALL if each.page == "README.md"}


@pytest.mark.parametrize("command", sorted(set(ALL)), ids=str)
def test_every_verb_and_flag_of_a_command_exists(command: Command) -> None:
    given = [word.partition("=")[0] for word in command.words[1:] if re.match(r"--?[a-zA-Z]", word)]
    if command.verb.startswith("-") or command.verb in ("", "VERB"):
        assert set(given) <= OF_ALL
        return
    assert command.verb in VERBS
    assert set(given) <= flags_of(command.verb, next(iter(command.words[2:]), ""))
    if command.verb == "index" and len(command.words) > 2:  # what names no command is short for build
        assert "--out" in given or command.words[2] in command_of("index").commands


def test_every_flag_in_prose_is_one_of_some_verb() -> None:
    known = OF_ALL | {flag for verb in VERBS for flag in flags_of(verb)}
    unknown = []
    for page in [page for page in PAGES if page.parent.name != "studies"]:
        for code in re.findall(r"`([^`\n]*--[a-z][^`\n]*)`", without_blocks(page.read_text())):
            flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code))
            if not FOREIGN.search(code) and flags - known:
                unknown.append(f"{page.name}: {code}")
    assert not unknown


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the pages take it for granted."""
    folder = tmp_path_factory.mktemp("shell")
    for number in range(18):
        colour = ("red", "green", "blue")[number % 3]
        (folder / "photos" / colour).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / colour / f"{number}.png")
    return folder


# Those that need files, data or losses of the reader's own are left out.
OWN = re.compile(r"\.(csv|parquet|npz|index|txt|mat)\b|runs/|[A-Z]{4}|squared_hinge|\b(cub|cifar|mnist|omniglot)\b")
QUICK_COMMANDS = {each.words: each for each in ALL if each.verb in QUICK and not OWN.search(" ".join(each.words))}


@pytest.mark.recipe
@pytest.mark.parametrize("command", QUICK_COMMANDS.values(), ids=str)
def test_quick_commands_run(command: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    done = CliRunner().invoke(app, list(command.words[1:]))
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.output.strip()
