"""The errors that vicinal raises on purpose."""

from __future__ import annotations

import pytest

from vicinal import errors
from vicinal.errors import DataError, InputError, MissingExtra, NotFinite, UnknownName, VicinalError, look_up


def test_one_tree_that_also_fits_the_built_in_one() -> None:
    for error, built_in in (
        (InputError, ValueError),
        (UnknownName, ValueError),
        (DataError, ValueError),
        (NotFinite, ArithmeticError),
        (MissingExtra, ImportError),
    ):
        assert issubclass(error, VicinalError)
        assert issubclass(error, built_in)
        assert f"{error.__name__} " in (errors.__doc__ or "")


def test_unknown_name_offers_the_nearest() -> None:
    message = str(UnknownName("loss", "tripplet", ["triplet", "circle"]))
    assert message == "Unknown loss 'tripplet'; did you mean 'triplet'? Choose from: circle, triplet."
    message = str(UnknownName("loss", "zzz", ["triplet", "circle"]))
    assert message == "Unknown loss 'zzz'. Choose from: circle, triplet."


def test_look_up() -> None:
    assert look_up("colour", "red", {"red": 1}) == 1
    with pytest.raises(UnknownName, match=r"Unknown colour 'rd'; did you mean 'red'\?") as caught:
        look_up("colour", "rd", {"red": 1})
    assert caught.value.__cause__ is None


def test_data_error_lists_every_problem_up_to_twenty() -> None:
    error = DataError("3 files.", [f"file {k}" for k in range(25)], "Check the folder.")
    lines = str(error).splitlines()
    assert lines[0] == "3 files."
    assert lines[1:3] == ["  - file 0", "  - file 1"]
    assert lines[21] == "  - ... and 5 more"
    assert lines[-1] == "Check the folder."
    assert len(error.problems) == 25
    assert str(DataError("Nothing.")) == "Nothing."


def test_missing_extra_names_the_command() -> None:
    assert str(MissingExtra("faiss", "a k-means")) == "a k-means needs the extra 'faiss': pip install 'vicinal[faiss]'"
