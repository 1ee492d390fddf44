"""The package as users get it: built, and installed where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True)
    return dist


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds the wheel and what it asks for."""
    place = Path(os.environ.get("VICINAL_WHEEL_ENVIRONMENT", tmp_path_factory.mktemp("environment")))
    venv.create(place, with_pip=True)
    (wheel,) = built.glob("*.whl")
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, f"{wheel}[pretrained]"], check=True)
    subprocess.run([*install, "--force-reinstall", "--no-deps", str(wheel)], check=True)
    return programs


@pytest.fixture
def vicinal(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the installed program outside the repository; `code` is the exit code that is expected."""
    monkeypatch.chdir(tmp_path)
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    surroundings |= {"VICINAL_CACHE": str(tmp_path / "cache"), "COLUMNS": "100"}

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(installed / "vicinal"), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=False)
        assert ended.returncode == code, f"{command}\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr
        assert "UserWarning" not in ended.stderr
        return ended

    return run
