"""The package as users get it: built, and installed where nothing else is.

Two environments: one that downloads all it needs, as a user's would (minutes: a campaign), and one that borrows the
packages that the wheel asks for, and no others, from the environment of these tests (seconds).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
INSTALL = re.compile(r'pip install "\.\[([a-z,]+)\]"')  # the line of the README
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True)
    return dist


@pytest.fixture(scope="session", params=["borrowed", pytest.param("downloaded", marks=pytest.mark.campaign)])
def installed(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds the wheel and what it asks for."""
    (wheel,) = built.glob("*.whl")
    place = tmp_path_factory.mktemp(request.param)
    venv.create(place, with_pip=request.param == "downloaded")
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    if request.param == "downloaded":
        install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, f"{wheel}[{','.join(_extras())}]"], check=True)
        return programs
    install = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    for name in sorted(_asked_for(wheel)):
        for entry in _entries(name):
            if not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry, target_is_directory=entry.is_dir())
    return programs


def _extras() -> list[str]:
    """What the README has a new user install besides."""
    found = INSTALL.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1].split(",")


def _asked_for(wheel: Path) -> set[str]:
    """The names of all packages that installing a wheel would install."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    waiting, wanted = [(text, extra) for text in asked for extra in _extras()], dict[tuple[str, str], None]()
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for of in ("", *requirement.extras):
            if (requirement.name, of) not in wanted:
                wanted[requirement.name, of] = None
                waiting += [(each, of) for each in distribution(requirement.name).requires or []]
    return {name for name, _ in wanted}


def _entries(name: str) -> Iterator[Path]:
    """What a package has put beside the others: its modules, its libraries and what says which version it is."""
    package = distribution(name)
    beside = {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}
    for entry in sorted(beside):
        yield Path(str(package.locate_file(entry)))


@pytest.fixture
def vicinal(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the installed program outside the repository; `code` is the exit code that is expected."""
    monkeypatch.chdir(tmp_path)
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    surroundings |= {"VICINAL_CACHE": str(tmp_path / "cache"), "COLUMNS": "100"}
    surroundings["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # nobody's shell may be above the tests

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(installed / "vicinal"), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=False)
        assert ended.returncode == code, f"{command}\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr
        assert "Warning:" not in ended.stderr
        return ended

    return run
