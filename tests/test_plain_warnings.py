"""Warnings name the line of the user, however deep in vicinal they arise, and nothing warns in another way."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vicinal as vc

PACKAGE = Path(vc.__file__).parent


def batch_of_one_class(_: Path) -> None:
    vc.Criterion("triplet")(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))


def unreadable_photograph(folder: Path) -> None:
    (folder / "cat").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "cat" / "1.png")
    (folder / "cat" / "2.png").write_bytes(b"no picture")
    vc.data.folder(folder, skip_bad=True)


def missing_number(_: Path) -> None:
    vc.data.arrays(np.array([[1.0], [np.nan], [2.0]]), [0, 0, 1], skip_bad=True)


@pytest.mark.parametrize("warned", [batch_of_one_class, unreadable_photograph, missing_number])
def test_a_warning_names_the_line_that_called_vicinal(warned: Callable[[Path], None], tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warned(tmp_path)
    assert [Path(each.filename) for each in told] == [Path(__file__)]


def test_all_warnings_go_this_way() -> None:
    direct = [path for path in PACKAGE.rglob("*.py") if re.search(r"warnings\.warn\(", path.read_text("utf-8"))]
    assert direct == [PACKAGE / "_util" / "warnings.py"]
