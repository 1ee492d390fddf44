"""The map: places that keep neighbours together, the same on every run, kept on the disk and checked."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from vicinal.index.map import FILE, kept_layout, lay_out

pytestmark = pytest.mark.unit


def heaps(many: int, classes: int = 4, dim: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, many)
    return (4 * rng.normal(size=(classes, dim))[labels] + rng.normal(size=(many, dim))).astype(np.float32), labels


def purity(places: np.ndarray, labels: np.ndarray) -> float:
    nearest = NearestNeighbors(n_neighbors=2).fit(places).kneighbors(places, return_distance=False)[:, 1]
    return float((labels[nearest] == labels).mean())


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_classes_that_lie_apart_lie_apart_on_the_map(distance: str) -> None:
    vectors, labels = heaps(150)
    layout = lay_out(vectors, distance=distance)
    assert (layout.method, layout.landmarks) == ("t-SNE", 150)
    assert purity(layout.positions, labels) > 0.97


def test_items_beside_the_landmarks_go_to_their_class() -> None:
    vectors, labels = heaps(600)
    layout = lay_out(vectors, landmarks=100)
    assert (layout.method, layout.landmarks) == ("t-SNE", 100)
    assert purity(layout.positions, labels) > 0.97
    assert np.abs(layout.positions).max() == 1.0


def test_an_item_on_a_landmark_gets_its_place() -> None:
    vectors, _ = heaps(100)
    layout = lay_out(np.concatenate([vectors, vectors]), landmarks=100, distance="euclidean")
    chosen = np.sort(np.random.default_rng(0).choice(200, 100, replace=False))
    twins = [(place, (place + 100) % 200) for place in chosen if (place + 100) % 200 not in set(chosen.tolist())]
    assert len(twins) > 20
    for landmark, twin in twins:
        assert np.linalg.norm(layout.positions[landmark] - layout.positions[twin]) < 0.2


def test_the_same_seed_gives_the_same_bits() -> None:
    vectors, _ = heaps(200)
    first, second = lay_out(vectors, landmarks=80, seed=3), lay_out(vectors, landmarks=80, seed=3)
    assert first.positions.tobytes() == second.positions.tobytes()
    assert first.positions.tobytes() != lay_out(vectors, landmarks=80, seed=4).positions.tobytes()


def test_few_items_are_placed_by_their_principal_axes() -> None:
    layout = lay_out(np.float32([[0, 0, 5], [2, 0, 5], [4, 0, 5], [2, 1, 5]]), distance="euclidean")
    assert layout.method == "PCA"
    # The longer axis is x and fills the square; the origin is the middle of the frame.
    np.testing.assert_allclose(layout.positions[:3, 0], [-1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(np.ptp(layout.positions[:, 1]), 0.5, atol=1e-6)


@pytest.mark.parametrize("many", [0, 1, 2])
def test_hardly_any_items(many: int) -> None:
    layout = lay_out(np.ones((many, 3), np.float32))
    assert layout.positions.shape == (many, 2)
    assert np.isfinite(layout.positions).all()


def test_equal_vectors_and_zero_vectors_are_placed() -> None:
    vectors = np.zeros((30, 4), np.float32)
    vectors[15:] = 1
    assert np.isfinite(lay_out(vectors).positions).all()


def test_a_layout_is_kept_and_read_again(tmp_path, monkeypatch) -> None:
    vectors, _ = heaps(40)
    made = kept_layout(tmp_path, vectors)
    monkeypatch.setattr("vicinal.index.map.lay_out", None)
    again = kept_layout(tmp_path, vectors)
    assert again.positions.tobytes() == made.positions.tobytes()
    assert (again.method, again.landmarks) == (made.method, made.landmarks)


@pytest.mark.parametrize("change", ["vectors", "distance", "damage", "cut", "foreign"])
def test_a_layout_of_something_else_or_a_damaged_one_is_made_anew(tmp_path, change: str) -> None:
    vectors, _ = heaps(40)
    made = kept_layout(tmp_path, vectors)
    file = tmp_path / FILE
    content = bytearray(file.read_bytes())
    distance = "cosine"
    if change == "vectors":
        vectors = vectors[::-1].copy()
    elif change == "distance":
        distance = "euclidean"
    elif change == "damage":
        content[content.index(made.positions.tobytes()) + 5] ^= 1
        file.write_bytes(content)
    elif change == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.with_suffix(".json").write_text('{"version": 2, "sha256": "", "key": 1}')
    expected = lay_out(vectors, distance=distance)
    assert kept_layout(tmp_path, vectors, distance=distance).positions.tobytes() == expected.positions.tobytes()
    assert kept_layout(tmp_path, vectors, distance=distance).positions.tobytes() == expected.positions.tobytes()


def test_a_folder_that_cannot_be_written_to_still_has_a_map(tmp_path) -> None:
    vectors, _ = heaps(20)
    assert kept_layout(tmp_path / "gone", vectors).positions.shape == (20, 2)


def test_who_waits_is_told_how_many_items_are_placed() -> None:
    told: list[int] = []
    vectors, _ = heaps(40)
    lay_out(vectors, landmarks=20, placed=told.append)
    assert told == [20, len(vectors)]
