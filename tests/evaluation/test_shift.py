"""Whether new items look like calibration classes: level, power, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.evaluation import check_shift

pytestmark = pytest.mark.unit


def drawn(seed: int, classes: int, shift: float = 0.0, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), 4)
    centres = shift + spread * rng.standard_normal((classes, 6))
    return centres[labels] + 0.4 * rng.standard_normal((len(labels), 6)), labels


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_items_of_the_same_kind_rarely_differ_and_others_do(distance):
    differs = [check_shift(*drawn(seed, 50), drawn(seed + 100, 15)[0], distance=distance).differs for seed in range(20)]
    assert sum(differs) <= 2
    for change in ({"shift": 2.0}, {"spread": 0.2, "shift": 0.5}):
        assert check_shift(*drawn(0, 50), drawn(1, 15, **change)[0], distance=distance).differs


def test_the_sentence_says_which_and_by_how_much():
    shift = check_shift(*drawn(0, 50), drawn(1, 15, shift=2.0)[0])
    assert shift.among > shift.expected_among[1]
    assert str(shift).startswith("The new items do not look like the calibration classes (p = 0.02): median similarity")
    alike = check_shift(*drawn(0, 50), drawn(1, 15)[0])
    assert str(alike).startswith("The new items look like the calibration classes (p = ")
    assert alike.expected_nearest[0] <= alike.nearest <= alike.expected_nearest[1]


def test_more_new_items_than_calibration_items():
    assert not check_shift(*drawn(0, 12), drawn(1, 200)[0]).differs


def test_too_few():
    with pytest.raises(InputError, match="at least 10 classes and 10 new items; got 9 and 40"):
        check_shift(*drawn(0, 9), drawn(1, 10)[0])
    with pytest.raises(InputError, match="got 20 and 4"):
        check_shift(*drawn(0, 20), drawn(1, 1)[0])
