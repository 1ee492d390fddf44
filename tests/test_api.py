"""The public names: what `from vicinal import ...` promises, where each is defined, and what importing costs."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import vicinal

# Here a file holds one thing of its own name, and the package's table of names is how it is found.
ONE_FILE_EACH = ("vicinal.objectives.", "vicinal.data.readers.", "vicinal.backbones.", "vicinal.sampling.")


def modules() -> list[str]:
    found = pkgutil.walk_packages(vicinal.__path__, "vicinal.")
    return ["vicinal", *(module.name for module in found)]


@pytest.mark.parametrize("name", modules())
def test_all_names_exist_and_are_sorted(name: str) -> None:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", [])
    assert len(set(public)) == len(public)
    assert [public_name for public_name in public if not hasattr(module, public_name)] == []


def test_no_public_name_stands_for_two_things() -> None:
    meanings: dict[str, dict[int, str]] = defaultdict(dict)
    for name in modules():
        module = importlib.import_module(name)
        if name.startswith("vicinal.cli") or not (hasattr(module, "__path__") or name.count(".") == 1):
            continue  # a verb is the function of the same name, as a command; files in packages are not public
        for public in getattr(module, "__all__", []):
            meanings[public].setdefault(id(getattr(module, public)), name)
    del meanings["load"]  # vicinal.load opens all that vicinal.data.load does, and what vicinal wrote besides
    assert {name: list(places.values()) for name, places in meanings.items() if len(places) > 1} == {}


def test_no_function_hides_a_package_or_module() -> None:
    hidden = []
    for name in modules():
        parent, _, last = name.rpartition(".")
        if parent and not name.startswith(ONE_FILE_EACH):
            importlib.import_module(name)
            if not isinstance(getattr(importlib.import_module(parent), last), ModuleType):
                hidden.append(name)
    assert hidden == []


def test_architecture_page_lists_every_file() -> None:
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    listing = text.split("```text\n")[1].split("```")[0]
    root = Path(vicinal.__file__).parent
    folders: list[str] = []
    listed = set()
    for line in listing.splitlines():
        start = re.match(r"( *)([a-z_]+)/ +", line)
        if start:
            folders = [*folders[: len(start[1]) // 2], start[2]]
        stems = line[start.end() if start else 0 :].split()
        folder = root.joinpath(*folders[1:])
        if start or all((folder / f"{stem}.py").exists() for stem in stems):  # the rest are lines of description
            listed |= {folder / f"{stem}.py" for stem in stems if folder.name != "recipes"}
    assert listed == {path for path in root.rglob("*.py") if path.name != "__init__.py"}


def test_top_level_names() -> None:
    assert set(vicinal.__all__) >= {"Criterion", "Embedder", "Leaderboard", "Recipe", "Run", "evaluate", "fit", "train"}
    assert set(dir(vicinal)) == {*vicinal.__all__, "__version__"}
    assert set(vicinal._MODULES) <= set(vicinal.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        vicinal.fitt  # noqa: B018


def said_by_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_optional_dependencies_are_not_imported_by_import_vicinal() -> None:
    heavy = {"faiss", "timm", "onnx", "onnxruntime", "pyarrow", "pandas", "tensorboard", "optuna", "matplotlib"}
    heavy |= {"torch", "scipy", "sklearn", "lightning_fabric", "pydantic"}
    assert said_by_python(f"import vicinal, sys; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_the_list_of_verbs_needs_no_torch() -> None:
    code = (
        "import sys\nfrom vicinal.cli.main import main\nsys.argv = ['vicinal', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    text = said_by_python(code)
    assert text.endswith("False False")
    assert "compare" in text


def test_criterion_needs_torch_alone() -> None:
    code = "import vicinal.criterion, sys; print(sorted({'scipy', 'sklearn', 'pydantic', 'PIL'} & set(sys.modules)))"
    assert said_by_python(code) == "[]"


def test_works_where_there_are_no_unix_modules() -> None:
    code = (
        "import sys\nsys.modules['fcntl'] = None\nsys.modules['resource'] = None\n"
        "import vicinal as vc\nfor name in vc.__all__:\n    getattr(vc, name)\n"
        "import vicinal.cli.compare, vicinal.cli.tune, vicinal.report\nprint('works')"
    )
    assert said_by_python(code) == "works"
