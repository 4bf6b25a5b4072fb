"""Error slices: clusters and directions of errors are found, luck is not."""

from __future__ import annotations

import numpy as np
from benchmarks.slices_study import answers, best_of_mixture, mixture, planted

from foveate.report.discovery.slices import find_slices


def world(seed: int, marked: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings in which a slice differs along one of 60 directions only, labels, who is inside, answers."""
    rng = np.random.default_rng(seed)
    labels = np.arange(400) % 2
    inside = (labels == 1) & (rng.random(400) < 0.15) & marked
    x = rng.normal(size=(400, 60)) * np.linspace(2, 0.5, 60)
    x[inside, 5] += 6
    return x, labels, inside, answers(labels, inside, 2, rng)


def test_a_direction_of_errors_is_found_and_its_first_images_are_the_slice() -> None:
    x, labels, inside, said = world(1, marked=True)
    found = find_slices(x, labels, said)
    assert found
    assert inside[list(found[0].members[:10])].mean() >= 0.8  # 0.59 of the errors of this class are in the slice
    assert found[0].label == 1
    assert found[0].accuracy < found[0].average - 0.1


def test_a_property_names_what_a_slice_stands_out_by() -> None:
    x, labels, inside, said = world(2, marked=True)
    blind = np.random.default_rng(0).normal(size=(400, 8))
    found = find_slices(blind, labels, said, properties={"noise": blind[:, :2], "mark": x[:, 5:6]})
    assert found[0].by == "mark"
    assert inside[list(found[0].members[:10])].mean() >= 0.9


def test_errors_at_random_are_no_slice() -> None:
    alarms = 0
    for seed in range(20):
        x, labels, _, said = world(100 + seed, marked=False)
        alarms += bool(find_slices(x, labels, said, properties={"a": x[:, :3], "b": x[:, 3:9]}))
    assert alarms <= 2


def test_no_slice_is_told_twice() -> None:
    x, labels, _, said = world(3, marked=True)
    found = find_slices(x, labels, said, properties={"again": x})
    for k, one in enumerate(found):
        before = {i for s in found[:k] for i in s.members}
        assert np.mean([i in before for i in one.members]) <= 0.5


def test_the_mixture_of_the_study_finds_a_bunch_of_errors() -> None:
    rng = np.random.default_rng(0)
    inside = np.arange(200) >= 150
    x = rng.normal(size=(200, 6)) + 8 * inside[:, None]
    labels = np.zeros(200, dtype=np.int64)
    held = mixture(x, labels, inside.astype(np.int64), slices=4)
    assert np.allclose(held.sum(1), 1)
    shown, precision, _ = best_of_mixture(held, inside, inside)
    assert shown >= 1
    assert precision == 1.0


def test_planted_images_differ_where_they_should() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    rows = np.array([1, 3])
    for kind in ("dark", "blurred", "marked"):
        out = planted(pixels, rows, kind)
        assert (out[[0, 2]] == pixels[[0, 2]]).all()
        assert (out[rows] != pixels[rows]).any()
    assert planted(pixels, rows, "dark")[rows].mean() < 0.5 * pixels[rows].mean()
