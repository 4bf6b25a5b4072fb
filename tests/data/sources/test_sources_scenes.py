"""Spawrious, MetaShift, UrbanCars and SpuCo, each from a miniature in the published layout."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate as fv
from foveate.data import sources
from foveate.data.sources.layout import natural
from foveate.errors import DataError


def _groups(ds: fv.data.GroupedDataset) -> dict[str, int]:
    return {g: int(n) for g, n in zip(ds.group_names, ds.group_counts, strict=True) if n}


def test_spawrious_o2o_hard_has_the_official_pairs(miniatures: Any, tmp_path: Path) -> None:
    miniatures.spawrious(tmp_path)
    dogs = fv.data.load("spawrious-o2o-hard", tmp_path, cell=10)
    # int(0.97 * 10) + int(0.87 * 10) = 9 + 8 on the breed's place, 1 + 2 on the beach
    assert _groups(dogs.train) == {
        "bulldog/beach": 3, "bulldog/jungle": 17, "corgi/beach": 3, "corgi/desert": 17,
        "dachshund/beach": 3, "dachshund/mountain": 17, "labrador/beach": 3, "labrador/snow": 17,
    }  # fmt: skip
    assert _groups(dogs.test) == {
        "bulldog/mountain": 20, "corgi/jungle": 20, "dachshund/snow": 20, "labrador/desert": 20,
    }  # fmt: skip
    for ds in (dogs.train, dogs.test):
        for i in range(len(ds)):
            label, place = ds.group_names[ds.require_groups("test")[i]].split("/")
            assert f"/{place}/{label}/" in ds.where(i)
    with pytest.raises(DataError, match=r"needs 3,072 images in .*found 12"):
        fv.data.load("spawrious-o2o-hard", tmp_path)


def test_spawrious_published_sizes_follow_from_the_recipe() -> None:
    expected = sources.SOURCES["spawrious-o2o-hard"].expected
    assert sum(expected["train"].values()) == sum(expected["test"].values()) == 25344  # type: ignore[union-attr]
    assert int(0.97 * 3168) + int(0.87 * 3168) == 5828
    dar = sources.SOURCES["spawrious-dar"].expected["train"]
    assert sum(dar.values()) == 24544  # type: ignore[union-attr]
    for name, total in (("celeba-dar", 18946), ("spuco-animals-dar", 18944), ("waterbirds-dar", 9472)):
        assert sum(sources.SOURCES[name].expected["train"].values()) == total  # type: ignore[union-attr]
    assert sum(sources.SOURCES["urbancars-dar"].expected["train"].values()) == 6988  # type: ignore[union-attr]
    assert sum(sources.SOURCES["urbancars"].expected["train"].values()) == 8000  # type: ignore[union-attr]


def test_spawrious_m2m_hard_swaps_the_pairs(miniatures: Any, tmp_path: Path) -> None:
    miniatures.spawrious(tmp_path)
    dogs = fv.data.load("spawrious-m2m-hard", tmp_path, cell=5)
    first, second = {"dirt", "jungle"}, {"snow", "beach"}
    for ds, bulldogs, corgis in ((dogs.train, first, second), (dogs.test, second, first)):
        places: dict[str, set[str]] = {}
        for group, n in _groups(ds).items():
            assert n == 5
            places.setdefault(group.split("/")[0], set()).add(group.split("/")[1])
        assert places == {"bulldog": bulldogs, "dachshund": bulldogs, "corgi": corgis, "labrador": corgis}
    assert all("/spawrious224/0/" in dogs.train.where(i) for i in range(len(dogs.train)))


def test_spawrious_dar_counts(miniatures: Any, tmp_path: Path) -> None:
    miniatures.spawrious(tmp_path)
    dogs = fv.data.load("spawrious-dar", tmp_path, majority=16, minority=3, per_group=2, test_per_group=4)
    assert dogs.train.attribute_names == ["jungle", "desert", "mountain", "snow"]
    # Table 4 of the DAR paper: where the 5,830 and the 306 stand, rows bulldog, corgi, dachshund, labrador
    assert dogs.train.group_counts.reshape(4, 4).tolist() == [
        [16, 0, 3, 0], [3, 16, 0, 0], [0, 0, 16, 3], [0, 3, 0, 16],
    ]  # fmt: skip
    assert set(_groups(dogs.target).values()) == set(_groups(dogs.val).values()) == {2}
    assert set(_groups(dogs.test).values()) == {4}
    used = [d.where(i) for d in dogs.splits.values() for i in range(len(d))]
    assert len(used) == len(set(used))


def test_two_datasets_called_cat_vs_dog_are_never_confused(miniatures: Any, tmp_path: Path) -> None:
    disc = {"train/cat(sofa)": [1, 2], "train/cat(bed)": [3], "train/dog(bench)": [4], "train/dog(bike)": [5, 6],
            "test/cat(shelf)": list(range(10, 30)), "test/dog(shelf)": list(range(30, 50))}  # fmt: skip
    unmixed = {"train/cat(indoor)": [1, 2, 3, 7], "train/dog(outdoor)": [4, 5, 7, 20],
               "test/cat(outdoor)": [10, 11, 2], "test/dog(indoor)": [20, 21]}  # fmt: skip
    miniatures.metashift(tmp_path, "MetaDatasetCatDog", disc)
    miniatures.metashift(tmp_path, "MetaShift-Cat-Dog-indoor-outdoor", unmixed)
    a, b = fv.data.load("metashift-catdog-disc", tmp_path), fv.data.load("metashift-catdog-unmixed", tmp_path)
    assert _groups(a.train) == {"cat/sofa": 2, "cat/bed": 1, "dog/bench": 1, "dog/bike": 2}
    assert (len(a.val), len(a.test)) == (6, 34)  # int(0.15 * 40), drawn over both classes
    assert set(_groups(a.val + a.test)) == {"cat/shelf", "dog/shelf"}
    assert int(0.15 * 541) == 34 + 47  # as DISC published
    assert len(fv.data.load("metashift-catdog-disc", tmp_path, hold_out=0).test) == 40
    # 7 shows both animals (dropped twice); 2 and 20 are in test and leave train
    assert _groups(b.train) == {"cat/indoor": 2, "dog/outdoor": 2}
    assert _groups(b.test) == {"cat/outdoor": 3, "dog/indoor": 2}
    assert b.notes["dropped"] == {"both animals": 2, "train images in test": 2}
    for wrong, folder in (("disc", "MetaShift-Cat-Dog-indoor-outdoor"), ("unmixed", "MetaDatasetCatDog")):
        with pytest.raises(DataError, match=f"metashift-catdog-{wrong} is not here"):
            fv.data.load(f"metashift-catdog-{wrong}", tmp_path / folder)
    for common in ("metashift", "cat-dog", "Cat_vs_Dog", "metashift_catdog"):
        with pytest.raises(DataError, match=r"several datasets are called.*disc.*unmixed"):
            fv.data.load(common, tmp_path)


def _subsets() -> dict[str, list[str]]:
    from foveate.data.sources.metashift import ANIMALS

    made = {"cat(sofa)": ["9001"]}
    for k, animal in enumerate(ANIMALS):
        first = 100 * k
        made[f"{animal}(grass)"] = [str(first + i) for i in range(6)]
        made[f"{animal}(sky)"] = [str(first + i) for i in range(4, 9)]  # shares 4 and 5 with grass
        made[f"{animal}(tree)"] = [str(first + 50)]
    return made


def test_metashift_animals_divides_contexts_and_takes_test_images_out_of_train(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.metashift_animals(tmp_path, _subsets())
    contexts = {
        a: {"train": ["grass"], "test": ["sky", "tree"]}
        for a in ("bear", "bird", "cow", "elephant", "giraffe", "horse", "sheep", "zebra")
    }
    animals = fv.data.load("metashift-animals", tmp_path, contexts=contexts)
    assert animals.train.class_counts.tolist() == [4] * 8
    assert animals.test.class_counts.tolist() == [6] * 8
    assert animals.train.attribute_names == ["grass", "sky", "tree"]
    assert not set(animals.train.extras["number"]) & set(animals.test.extras["number"])
    both = {a: {"train": ["tree"], "test": ["grass", "sky"]} for a in contexts}
    (folder / "contexts.json").write_text(json.dumps(both))
    listed = fv.data.load("metashift-animals", tmp_path)
    # once for each context: 6 + 5 rows of 9 pictures
    assert (len(listed.test), listed.notes["unique_images"]["test"]) == (88, 72)
    assert listed.test[0].image.shape == (3, 32, 32)
    (folder / "contexts.json").unlink()
    dealt = fv.data.load("metashift-animals", tmp_path, per_class=2)
    assert set(dealt.train.extras["number"]).isdisjoint(dealt.test.extras["number"])
    problems = sources.check("metashift-animals", tmp_path)
    assert {p.severity for p in problems} == {"warning"}  # the recipe leaves choices open
    assert any("bear: published 503" in p.message for p in problems)
    with pytest.raises(DataError, match=r"has no subset bear\(snow\)"):
        fv.data.load("metashift-animals", tmp_path, contexts={**contexts, "bear": {"train": ["snow"], "test": ["sky"]}})


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo this must never run",)


def test_a_pickle_that_wants_to_run_something_is_refused(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.metashift_animals(tmp_path, _subsets())
    (folder / "full-candidate-subsets.pkl").write_bytes(pickle.dumps({"bear(sky)": _Evil()}))
    with pytest.raises(DataError, match=r"it asks for \w+\.system"):
        fv.data.load("metashift-animals", tmp_path)
    (folder / "full-candidate-subsets.pkl").write_bytes(b"\x80\x04broken")
    with pytest.raises(DataError, match="is not read"):
        fv.data.load("metashift-animals", tmp_path)


def test_urbancars_has_two_shortcuts(miniatures: Any, tmp_path: Path) -> None:
    miniatures.urbancars(tmp_path)
    cars = fv.data.load("urbancars", tmp_path)
    assert cars.train.group_counts.tolist() == [20, 4, 4, 2, 2, 4, 4, 20]
    assert cars.test.group_counts.tolist() == [2] * 8  # the mask files beside the pictures are not images
    for i in range(len(cars.train)):
        kinds = [("urban", "country")[int(cars.train.extras[e][i])] for e in ("background", "object")]
        kind = cars.train.class_names[cars.train.labels[i]]
        assert f"obj-{kind}_bg-{kinds[0]}_co_occur_obj-{kinds[1]}/" in cars.train.where(i)


def test_urbancars_dar_leaves_the_rest_as_target(miniatures: Any, tmp_path: Path) -> None:
    miniatures.urbancars(tmp_path)
    cars = fv.data.load("urbancars-dar", tmp_path, share=0.005)
    assert cars.train.group_counts.tolist() == [16, 1, 1, 1, 1, 1, 1, 16]
    assert cars.target.group_counts.tolist() == [4, 3, 3, 1, 1, 3, 3, 4]
    paths = {s: {d.where(i) for i in range(len(d))} for s, d in cars.splits.items()}
    assert not paths["train"] & paths["target"]


@given(st.lists(st.integers(0, 1), min_size=24, max_size=24))
def test_urbancars_gaps_match_a_plain_count(right: list[int]) -> None:
    labels = np.tile(np.repeat([0, 1], 4), 3)
    attributes = np.tile([0, 1, 2, 3], 6)
    hits = np.array(right)
    gaps = sources.urbancars_gaps(np.where(hits, labels, 1 - labels), labels, attributes)
    accuracy = {(y, a): hits[(labels == y) & (attributes == a)].mean() for y in (0, 1) for a in range(4)}
    usual = 0.0
    parts: dict[tuple[bool, bool], list[float]] = {}
    for (y, a), value in accuracy.items():
        odd_background, odd_object = (a // 2) != y, (a % 2) != y
        usual += 0.5 * value * (0.05 if odd_background else 0.95) * (0.05 if odd_object else 0.95)
        parts.setdefault((odd_background, odd_object), []).append(float(value))
    assert gaps.in_distribution == pytest.approx(usual)
    assert gaps.background == pytest.approx(np.mean(parts[True, False]) - usual)
    assert gaps.object == pytest.approx(np.mean(parts[False, True]) - usual)
    assert gaps.both == pytest.approx(np.mean(parts[True, True]) - usual)


def test_spuco_animals_and_its_dar_counts(miniatures: Any, tmp_path: Path) -> None:
    miniatures.spuco(tmp_path)
    animals = fv.data.load("spuco-animals", tmp_path)
    assert animals.train.group_counts.reshape(4, 4).tolist() == [
        [12, 6, 0, 0], [6, 12, 0, 0], [0, 0, 12, 6], [0, 0, 6, 12],
    ]  # fmt: skip
    assert (len(animals.val), len(animals.test)) == (16, 16)
    dar = fv.data.load("spuco-animals-dar", tmp_path, majority=8, minority=2, per_group=2)
    assert dar.train.group_counts.reshape(4, 4).tolist() == [[8, 2, 0, 0], [2, 8, 0, 0], [0, 0, 8, 2], [0, 0, 2, 8]]
    assert _groups(dar.target) == dict.fromkeys(_groups(animals.train), 2)
    with pytest.raises(DataError, match=r"landbirds/land \(train 4,500, target 125, val 125\)"):
        fv.data.load("spuco-animals-dar", tmp_path)


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_is_that_of_the_numbers(numbers: list[int]) -> None:
    assert sorted((f"dog_{n}.png" for n in numbers), key=natural) == [f"dog_{n}.png" for n in sorted(numbers)]
