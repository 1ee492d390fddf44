"""What is in the sdist and the wheel, and that the installed program works without the repository."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_wheel_holds_recipes_data_types_and_the_licence(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"vicinal/py.typed", "vicinal/recipes/glyphs.toml", "vicinal/recipes/thesis/losses/margin.toml"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_the_sdist_can_be_tested(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CONTRIBUTING.md", "CITATION.cff", "pyproject.toml", "tests/test_api.py"} <= names


def test_version_and_completion(vicinal: Run) -> None:
    assert vicinal("--version").stdout.strip() == "vicinal 0.1.0"
    assert "_VICINAL_COMPLETE" in vicinal("--show-completion", "bash").stdout


def test_recipes_come_with_it(vicinal: Run) -> None:
    assert "thesis/cub-bn_inception" in vicinal("recipes").stdout


@pytest.mark.campaign
def test_the_demo_comes_with_it(vicinal: Run, tmp_path: Path) -> None:
    told = vicinal("demo", "--seeds", "1", "--steps", "3", "--out", "demo").stdout
    assert "The report is" in told
    assert (tmp_path / "demo" / "report.html").is_file()


def test_it_is_the_installed_one(installed: Path, tmp_path: Path) -> None:
    said = subprocess.run(
        [installed / "python", "-c", "import vicinal; print(vicinal.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin"},
    ).stdout
    assert "site-packages" in said
    assert str(installed.parent) in said


def test_nothing_else_is_there(installed: Path, tmp_path: Path) -> None:
    """What these tests need must not be there by luck."""
    absent = "import importlib.util as u; print([n for n in ('pytest', 'pandas', 'faiss', 'timm') if u.find_spec(n)])"
    command = [installed / "python", "-c", absent]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={}).stdout == "[]\n"
