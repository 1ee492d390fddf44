"""The public names: what `from vicinal import ...` promises."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import vicinal


def modules() -> list[str]:
    found = pkgutil.walk_packages(vicinal.__path__, "vicinal.")
    return ["vicinal", *(module.name for module in found)]


@pytest.mark.parametrize("name", modules())
def test_all_names_exist_and_are_sorted(name: str) -> None:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", [])
    assert len(set(public)) == len(public)
    assert [public_name for public_name in public if not hasattr(module, public_name)] == []


def test_top_level_names() -> None:
    assert set(vicinal.__all__) >= {"Criterion", "Embedder", "data", "evaluate", "fit", "split"}


def test_optional_dependencies_are_not_imported_by_import_vicinal() -> None:
    import subprocess
    import sys

    optional = {"faiss", "timm", "onnx", "pyarrow", "pandas", "tensorboard"}
    code = f"import vicinal, sys; print(sorted({optional} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
