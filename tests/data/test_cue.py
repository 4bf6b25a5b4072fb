"""Critters with a cue: what the label is, where it stands, and that it can be told from the rest."""

from __future__ import annotations

import numpy as np
import pytest

import foveate as fv
from foveate.errors import DataError


@pytest.fixture(scope="module")
def data() -> fv.data.Benchmark:
    return fv.data.load("critters-cue", train=200, target=0, val=0, test=40)


def test_the_thing_is_the_label_and_the_animal_the_shortcut(data: fv.data.Benchmark) -> None:
    assert data.train.class_names == ["mushroom", "ball"]
    assert data.train.attribute_names == ["cat", "duck"]
    assert data.train.group_counts.tolist() == [95, 5, 5, 95]
    assert data.test.group_counts.tolist() == [10, 10, 10, 10]
    for i in range(20):
        scene = data.test.images.scenes[i]  # type: ignore[attr-defined]
        assert scene.species == data.test.attributes[i]  # type: ignore[index]
        assert scene.second is None


def test_the_mask_is_where_the_picture_differs_between_things(data: fv.data.Benchmark) -> None:
    source = data.test.images
    for i in range(10):
        image, mask = source.pair(i)  # type: ignore[attr-defined]
        bare, animal = source.redraw(i)  # type: ignore[attr-defined]
        changed = np.abs(image.astype(int) - bare).max(2) > 130
        assert (mask[changed] == 255).all(), "what changed strongly is the thing"
        assert 0.005 < mask.mean() / 255 < 0.04
        assert ((mask > 0) & (animal > 0)).sum() <= 0.25 * (mask > 0).sum(), "it stands apart from the animal"
        x0, y0, x1, y1 = data.test.boxes[i].astype(int)  # type: ignore[index]
        outside = mask.copy()
        outside[y0:y1, x0:x1] = 0
        assert not outside.any(), "the box holds the mask"


def test_the_same_bits_and_places_whatever_the_thing() -> None:
    one, other = (fv.data.cue_critters(seed=3, train=12, target=0, val=0, test=0) for _ in range(2))
    assert all(np.array_equal(one.train.images.read(i), other.train.images.read(i)) for i in range(12))
    assert one.train.fingerprint == other.train.fingerprint


def test_a_small_linear_model_reads_the_thing_in_its_box_and_nowhere_else() -> None:
    data = fv.data.cue_critters(strength=0.5, train=160, target=0, val=0, test=80)

    def colours(split: fv.data.GroupedDataset, inside: bool) -> np.ndarray:  # type: ignore[type-arg]
        rows = []
        for i in range(len(split)):
            image, mask = split.images.read(i), split.masks.read(i) > 0  # type: ignore[union-attr]
            rows.append(image[mask if inside else ~mask].mean(0))
        return np.stack(rows)

    def accuracy(inside: bool) -> float:
        head = fv.decide.LinearHead().fit(colours(data.train, inside), data.train.labels)
        return float((head.predict(colours(data.test, inside)) == data.test.labels).mean())

    assert accuracy(inside=True) > 0.95
    assert accuracy(inside=False) < 0.7


def test_contrast_and_size_are_knobs() -> None:
    faint, strong = (
        fv.data.cue_critters(train=4, target=0, val=0, test=0, contrast=c, cue_size=(0.2, 0.2)).train
        for c in (0.3, 1.0)
    )
    bare = strong.images.redraw(0)[0].astype(int)  # type: ignore[attr-defined]
    away = [np.abs(split.images.read(0).astype(int) - bare).sum() for split in (faint, strong)]
    assert away[0] == pytest.approx(0.3 * away[1], rel=0.1)
    assert np.array_equal(faint.masks.read(0), strong.masks.read(0))  # type: ignore[union-attr]
    for bad in ({"contrast": 0.0}, {"cue_size": (0.3, 0.2)}, {"strength": 1.2}):
        with pytest.raises(DataError):
            fv.data.cue_critters(**bad)  # type: ignore[arg-type]
