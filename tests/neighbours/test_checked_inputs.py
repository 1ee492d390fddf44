"""What counts as embeddings and labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.errors import InputError, NotFinite
from vicinal.neighbours.inputs import as_codes, as_embeddings, checked_count

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("kind", ["float16", "float32", "int64", "uint8", "bool"])
def test_every_number_but_float64_becomes_float32(kind):
    values = np.eye(3).astype(kind)
    for given in (values, torch.from_numpy(values), values.tolist()):
        found = as_embeddings(given)
        assert torch.equal(found.double(), torch.eye(3).double())
    assert as_embeddings(values).dtype == torch.float32


def test_float64_and_bfloat16():
    assert as_embeddings(np.eye(2)).dtype == torch.float64
    assert as_embeddings(torch.eye(2, dtype=torch.bfloat16)).dtype == torch.float32


def test_a_fitting_array_is_not_copied_and_a_frozen_one_is_left_alone():
    array = np.eye(3, dtype=np.float32)
    assert as_embeddings(array).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    as_embeddings(array)[0, 0] = 5
    assert array[0, 0] == 1


def test_gradients_stay_behind():
    assert not as_embeddings(torch.eye(2, requires_grad=True)).requires_grad


def test_rows_out_of_order_in_memory():
    assert torch.equal(as_embeddings(torch.arange(6.0).view(2, 3).T), torch.tensor([[0.0, 3], [1, 4], [2, 5]]))
    assert torch.equal(as_embeddings(np.eye(4, dtype=np.float32)[::-1]), torch.eye(4).flip(0))


def test_large_numbers_are_finite_though_their_sum_is_not():
    values = torch.full((2000, 1000), 3e38)
    assert as_embeddings(values) is not None
    values[1500, 3] = torch.nan
    with pytest.raises(NotFinite, match=r"1 of 2000 rows .* row 1500"):
        as_embeddings(values)


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        ([5, -3, 2**40], [-3, 5, 2**40], [1, 0, 2]),
        ([2**70, 1, 2**70], [1, 2**70], [1, 0, 1]),
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"], [1, 0, 1]),
        (np.array([[3], [1]]), [1, 3], [1, 0]),
        (torch.tensor([3, 1]), [1, 3], [1, 0]),
        ([True, False], [False, True], [1, 0]),
    ],
)
def test_labels_of_any_kind(labels, classes, codes):
    found, (numbers,) = as_codes(labels)
    assert found == classes
    assert numbers.tolist() == codes


def test_the_same_label_has_the_same_code_in_both_groups():
    classes, (first, second) = as_codes(["b", "c"], ["a", "c"])
    assert (classes, first.tolist(), second.tolist()) == (["a", "b", "c"], [1, 2], [0, 2])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0.5, 1.0]), "float64.*astype"),
        (np.zeros((2, 2), dtype=int), r"got the shape \(2, 2\)"),
        (np.array(["a", 1], dtype=object), "all integers or all strings; got int, str"),
        (np.array([None, None], dtype=object), "NoneType"),
    ],
)
def test_bad_labels(labels, words):
    with pytest.raises(InputError, match=words):
        as_codes(labels)


def test_strings_and_numbers_do_not_mix():
    with pytest.raises(InputError, match="one group are strings"):
        as_codes(["1"], [1])


@pytest.mark.parametrize("factor", [1e200, 1e-200, 5e-324])
def test_numbers_near_the_limits_of_float64_are_refused(factor: float) -> None:
    rows = np.array([[1.0, 0.0], [factor, 0.0], [0.0, 0.0]])
    with pytest.raises(InputError, match="1 of 3 rows of embeddings cannot be compared, the first of them row 1"):
        as_embeddings(rows)
    with pytest.raises(InputError, match="row 1"):
        as_embeddings(rows, as_given=True)


def test_small_numbers_beside_large_ones_are_fine() -> None:
    assert as_embeddings(np.array([[1.0, 1e-300]])).dtype == torch.float64
    assert as_embeddings(np.array([[1e-45]], dtype=np.float32)).item() > 0


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2"])
def test_arrays_of_the_other_byte_order_are_taken(kind: str) -> None:
    assert as_embeddings(np.array([[1, 2]], dtype=kind)).tolist() == [[1, 2]]


def test_numbers_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(InputError, match="at most 64 bits"):
        as_embeddings(np.ones((2, 2), dtype=np.longdouble))


def test_counts_are_whole_numbers_of_python_or_numpy() -> None:
    assert checked_count(np.int64(3), "k") == 3
    for given in ("3", 2.5, True, None):
        with pytest.raises(InputError, match="k must be a whole number, got"):
            checked_count(given, "k")
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        checked_count(0, "k")
    assert checked_count(0, "expand", least=0) == 0
