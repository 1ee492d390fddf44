"""`--help` of every verb, as it was; what is typed before a verb; and that none of it needs torch.

After a change of an option: VICINAL_SNAPSHOT=write pytest tests/cli/test_help.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vicinal.cli.main import VERBS, command_of
from vicinal.cli.options import ADVANCED, METAVARS

COMMAND_LINE = Path(__file__).parents[2] / "docs" / "quickstart.md"
HELP = Path(__file__).with_name("help.txt")
ALL = """
import sys
from vicinal.cli.main import VERBS, app, command_of
calls = [[]]
for name in VERBS:
    calls += [[name], *([name, each] for each in getattr(command_of(name), "commands", ()))]
for words in calls:
    print("\f", end="")
    try:
        app([*words, "--help"], prog_name="vicinal")
    except SystemExit:
        pass
print("torch" in sys.modules)
"""


def said(code: str, **environment: str) -> str:
    plain = {"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1", "PATH": os.environ["PATH"]} | environment
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "HOME") if name in os.environ}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=kept | plain, capture_output=True, text=True, check=True).stdout


def options_of(verb: str) -> list[Any]:
    """Options of a verb, those of its commands together."""
    command = command_of(verb)
    parts = (command, *getattr(command, "commands", {}).values())
    shown = [each for part in parts for each in part.get_params(part.make_context(verb, [], resilient_parsing=True))]
    return [each for each in shown if each.param_type_name == "option" and each.name != "help"]


def test_help_of_every_verb() -> None:
    text = said(ALL, COLUMNS="80")
    text, _, torch = text.strip().rpartition("\n")
    assert torch == "False"
    pages = text.split("\f")[1:]
    assert len(pages) > len(VERBS)
    for page in pages:  # a screen and a half
        assert len(page.splitlines()) <= 60, page
        assert max(map(len, page.splitlines())) <= 80, page
        assert page.count("Example: ") == (not page.startswith("Usage: vicinal [OPTIONS] COMMAND")), page
        assert page.count("Advanced:") <= 1
    text = "\n".join(line.rstrip() for page in pages for line in page.splitlines()) + "\n"
    if os.environ.get("VICINAL_SNAPSHOT") == "write":
        HELP.write_text(text, encoding="utf-8")
    assert text == HELP.read_text(encoding="utf-8")


def test_tables_of_options_name_only_options_that_exist() -> None:
    names = {option.name for verb in VERBS for option in options_of(verb)} | {"install_completion", "show_completion"}
    assert not ADVANCED - names
    assert not METAVARS.keys() - names


def test_the_page_names_the_verbs_without_json() -> None:
    without = {verb for verb in VERBS if not any("--json" in option.opts for option in options_of(verb))}
    assert all(any("--json" in each.opts for each in part.params) for part in command_of("index").commands.values())
    row = next(line for line in COMMAND_LINE.read_text(encoding="utf-8").splitlines() if line.startswith("| `--json`"))
    assert set(re.findall("`([a-z-]+)`", row.partition("every verb but")[2].partition(";")[0])) == without


@pytest.mark.parametrize(
    ("words", "position", "expected"), [("vicinal comp", 1, "compare"), ("vicinal data --ski", 2, "--skip-bad")]
)
def test_a_shell_completes_verbs_and_options(words: str, position: int, expected: str) -> None:
    code = "import sys; sys.argv = ['vicinal']; from vicinal.cli.main import main; main()"
    shell = {"_VICINAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    assert said(code, **shell).split() == [expected]


def test_without_arguments_the_verbs_are_listed() -> None:
    code = "import sys; sys.argv = ['vicinal']; from vicinal.cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.startswith("Usage: "), "Start here:" in ended.stdout) == (2, True, True)


def test_version() -> None:
    code = "import sys; sys.argv = ['vicinal', '--version']; from vicinal.cli.main import main; main()"
    assert said(code).startswith("vicinal 0.")


def test_a_warning_is_a_note_without_source() -> None:
    code = "import warnings; from vicinal._util.warnings import warn_plainly; warn_plainly(); warnings.warn('x\\ny')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "Note: x y\n"
