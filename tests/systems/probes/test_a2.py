"""A² and its references, end to end on squares whose ground gives the class away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.errors import DataError, FoveateError, ModelError
from foveate.extract import Backbone, BackboneSpec, FrozenModel, create_backbone
from foveate.restrict import random_boxes, tiles

Make = Callable[..., Backbone]


# -- what it is for ----------------------------------------------------------------------


def test_looking_at_the_object_beats_the_full_image(
    squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path
) -> None:
    net = vit()
    settings = {"store": tmp_path, "C": 0.1}
    systems = {
        "full": fv.FullImage(net, **settings),
        "random": fv.RandomCrops(net, crops=(16,), image_size=64, **settings),
        "a2": fv.A2(vit(1), net, crops=(16,), **settings),
    }
    reports = {name: fv.evaluate(s.fit(squares.train), squares.test) for name, s in systems.items()}
    assert reports["a2"].worst_group > 0.9
    assert reports["a2"].worst_group > reports["full"].worst_group + 0.3
    assert reports["a2"].worst_group > reports["random"].worst_group + 0.3


def test_the_gaze_shows_map_crops_and_what_they_hold(
    squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path
) -> None:
    a2 = fv.A2(vit(), vit(), crops=(16, 8), store=tmp_path).fit(squares.train)
    images = torch.stack([squares.test[i].image for i in range(5)])
    gaze = a2.look(images)
    assert tuple(gaze.map.shape) == (5, 8, 8)
    assert gaze.boxes is not None
    assert tuple(gaze.boxes.shape) == (5, 2, 3)
    for image, (x, y, size), held in zip(images, gaze.boxes[:, 0].tolist(), gaze.scores["crops"], strict=True):
        assert size == 16
        assert (image[1, y : y + size, x : x + size] == 250).all()  # exactly the square
        # bilinear upsampling spreads some of a mask of 2 x 2 cells around it
        assert 0.5 < float(held[0]) < 1
        assert float(held.sum()) <= 1 + 1e-6
    assert gaze.draw(images).shape == (5, 64, 64, 3)


def test_it_reads_nothing_but_the_crops(squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path) -> None:
    """With the attention held fixed, pixels outside of the crops cannot move the logits by a bit."""
    a2 = fv.A2(vit(), vit(), crops=(16,), store=tmp_path).fit(squares.train)
    image = squares.test[0].image
    other = torch.where(image[1] == 250, image, torch.full_like(image, 7))
    assert np.array_equal(a2.predict_logits([image]), a2.predict_logits([other]))
    full = fv.FullImage(vit(), store=tmp_path).fit(squares.train)
    assert not np.array_equal(full.predict_logits([image]), full.predict_logits([other]))


def test_real_attention_end_to_end_on_critters(vit: Make, tmp_path: Path) -> None:
    data = fv.data.critters(size=64, train=40, target=16, val=16, test=16)
    a2 = fv.A2(vit(), vit(), crops=(24,), heads="max", layer=0, store=tmp_path).fit(data.train, val=data.val)
    assert a2.predict(data.test).shape == (16,)
    np.testing.assert_allclose(a2.predict_proba(data.test).sum(1), 1, rtol=1e-5)
    shares = a2.look([data.test[0].image]).scores
    assert float(shares["cls"] + shares["registers"] + shares["patches"]) == pytest.approx(1, abs=1e-5)


def test_each_model_gets_its_own_normalisation_and_size(vit: Make) -> None:
    image = torch.rand(2, 3, 64, 64)
    model = FrozenModel.open(vit())
    mean, std = torch.tensor(model.view.mean).view(3, 1, 1), torch.tensor(model.view.std).view(3, 1, 1)
    torch.testing.assert_close(model.prepare(image), (image - mean) / std)
    cnn = FrozenModel.open(BackboneSpec("micro_resnet"), 48)
    assert tuple(cnn.prepare(image).shape) == (2, 3, 48, 48)


# -- choices on validation ---------------------------------------------------------------


def test_the_number_of_crops_is_chosen_on_val(
    squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path
) -> None:
    settings = {"crops": (8, 16, 32), "store": tmp_path}
    a2 = fv.A2(vit(), vit(), crop_counts=[1, 2, 3], C=[0.1, 1.0], **settings).fit(squares.train, val=squares.val)
    assert len(a2.scores_) == 6
    best = max(row["average"] for row in a2.scores_)
    first = next(row for row in a2.scores_ if row["average"] == best)
    assert a2.chosen_ == {"views": first["views"], "C": first["C"]}
    assert a2.views_ == tuple(range(a2.chosen_["views"]))
    # the head it keeps is the head of that setting alone
    alone = fv.A2(vit(), vit(), C=first["C"], **{**settings, "crops": settings["crops"][: first["views"]]})
    np.testing.assert_allclose(
        a2.predict_logits(squares.test), alone.fit(squares.train).predict_logits(squares.test), atol=1e-4
    )
    assert a2.supervision() == "train: labels; selection: labels (average)"
    assert a2.look([squares.test[0].image]).boxes.shape[1] == a2.chosen_["views"]


def test_choosing_needs_val(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    a2 = fv.A2(vit(), vit(), crops=(16, 8), crop_counts=[1, 2], store=tmp_path)
    with pytest.raises(FoveateError, match="choose among 1, 2 on validation"):
        a2.fit(squares.train)


# -- the DFR head ------------------------------------------------------------------------


def test_dfr_head_is_fitted_on_target_and_says_so(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    plain = fv.FullImage(vit(), store=tmp_path, C=0.1).fit(squares.train)
    dfr = fv.FullImage(vit(), head="dfr", store=tmp_path).fit(squares.train, squares.target)
    worst = {n: fv.evaluate(s, squares.test).worst_group for n, s in {"plain": plain, "dfr": dfr}.items()}
    assert worst["dfr"] > worst["plain"] + 0.1
    assert dfr.supervision() == "target: labels, groups; selection: group labels (worst_group)"
    assert plain.supervision() == "train: labels"
    on_train = fv.FullImage(vit(), head="dfr", C=0.1, store=tmp_path).fit(squares.train)
    assert on_train.supervision() == "train: labels, groups"
    on_val = fv.FullImage(vit(), head="dfr", store=tmp_path).fit(squares.train, squares.target, squares.val)
    assert on_val.selection_ == {"metric": "worst_group", "on": "val", "uses_groups": True}


def test_dfr_head_without_groups_says_what_to_do(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    bare = GroupedDataset(squares.train.images, squares.train.labels, squares.train.class_names, name="mine")
    with pytest.raises(DataError, match="needs groups, but mine has no attributes"):
        fv.FullImage(vit(), head="dfr", store=tmp_path).fit(bare)
    fv.FullImage(vit(), store=tmp_path).fit(bare)  # the logistic head needs none


def test_the_logistic_head_leaves_target_alone(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    alone = fv.FullImage(vit(), store=tmp_path).fit(squares.train)
    both = fv.FullImage(vit(), store=tmp_path).fit(squares.train, squares.target)
    assert np.array_equal(alone.head_.weight_, both.head_.weight_)


# -- the store ---------------------------------------------------------------------------


def test_another_head_reads_the_same_embeddings(
    squares: Benchmark, vit: Make, embedded: list[int], tmp_path: Path
) -> None:
    looks, reads = vit(1), vit(2)
    fv.A2(looks, reads, crops=(16,), store=tmp_path).fit(squares.train).predict(squares.test)
    assert sum(embedded) == len(squares.train) + len(squares.test)
    embedded.clear()
    again = fv.A2(looks, reads, crops=(16,), head="dfr", store=tmp_path).fit(squares.train)
    again.predict(squares.test)
    assert embedded == []
    # whatever changes what is read makes another entry
    for change in ({"crops": (24,)}, {"heads": "max"}, {"layer": 0}, {"source": "original"}):
        embedded.clear()
        fv.A2(looks, reads, **{"crops": (16,), "store": tmp_path, **change}).fit(squares.train)
        # a source of 64 px has nothing more to give than the resized image: the same crops
        assert sum(embedded) == (0 if "source" in change else len(squares.train)), change
    embedded.clear()
    fv.A2(vit(7), reads, crops=(16,), store=tmp_path).fit(squares.train)
    assert sum(embedded) == len(squares.train), "another attention model must not share an entry"


def test_unreadable_images_are_skipped(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    class Broken(ArrayImages):
        def read(self, i: int) -> np.ndarray:
            if i == 3:
                raise fv.errors.UnreadableImage("row 3", "broken")
            return super().read(i)

    pixels = np.stack([squares.train.images.read(i) for i in range(20)])
    data = GroupedDataset(Broken(pixels), squares.train.labels[:20], ["red", "blue"])
    with pytest.raises(DataError, match="row 3"):
        fv.A2(vit(), vit(), crops=(16,), store=tmp_path).fit(data)
    a2 = fv.A2(vit(), vit(), crops=(16,), store=tmp_path, on_bad="skip").fit(data)
    found = a2.predict(data, on_bad="skip")
    assert found[3] == -1
    assert (np.delete(found, 3) >= 0).all()


def test_a_store_that_cannot_be_written_does_not_stop_prediction(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    full = fv.FullImage(vit(), store=tmp_path / "store").fit(squares.train)
    expected = full.predict_logits(squares.test)
    (tmp_path / "file").write_text("in the way")
    full.store = str(tmp_path / "file" / "store")
    np.testing.assert_allclose(full.predict_logits(squares.test), expected, atol=1e-4)


# -- saving ------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_saved_models_are_whole(squares: Benchmark, vit: Make, tmp_path: Path, shared: bool) -> None:
    looks = vit(1)
    reads = looks if shared else create_backbone("micro_resnet", image_size=(64, 64), width=8)
    a2 = fv.A2(looks, reads, crops=(16, 8), crop_counts=[1, 2], embed_size=64, store=tmp_path / "s")
    a2.fit(squares.train, val=squares.val)
    assert (a2.attention_ is a2.embedder_) == shared
    again = fv.load(a2.save(tmp_path / "model"))
    again.store = str(tmp_path / "another store")
    assert np.array_equal(again.predict_logits(squares.test), a2.predict_logits(squares.test))
    images = [squares.test[0].image]
    assert torch.equal(again.look(images).map, a2.look(images).map)
    assert again.supervision() == a2.supervision()
    assert again.chosen_ == a2.chosen_
    again.fit(squares.train, val=squares.val)  # also without the objects it was made from
    assert np.array_equal(again.predict_logits(squares.test), a2.predict_logits(squares.test))
    saved = (tmp_path / "model" / "weights.safetensors").stat().st_size
    weights = sum(p.numel() * 4 for net in {id(looks): looks, id(reads): reads}.values() for p in net.parameters())
    assert saved < 1.2 * weights + 20_000  # a model in both roles is saved once


# -- references --------------------------------------------------------------------------


def test_tiles_are_cut_in_raster_order() -> None:
    image = torch.arange(36).reshape(1, 1, 6, 6)
    cut = tiles(image, 3)
    assert tuple(cut.shape) == (1, 9, 1, 2, 2)
    assert cut[0, 5, 0].tolist() == [[16, 17], [22, 23]]  # second row of tiles, third column
    assert torch.equal(tiles(image, 1)[:, 0], image)


def test_s2_averages_tiles_and_joins_scales(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    net = vit()
    s2 = fv.S2(net, store=tmp_path).fit(squares.train)
    image = squares.test[0].image[None].float() / 255
    model = FrozenModel.open(net)
    large = torch.nn.functional.interpolate(image, (128, 128), mode="bicubic", align_corners=False)
    assert large.max() > 1.01  # the squares' edges overshoot, and the authors do not cut that off
    quarters = [large[:, :, y : y + 64, x : x + 64] for y in (0, 64) for x in (0, 64)]
    expected = torch.stack([model.embed(image)[0], model.embed(torch.cat(quarters)).mean(0)])
    torch.testing.assert_close(s2._features(image, (0, 1))[0], expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(FoveateError, match="whole numbers from 1 up"):
        fv.S2(net, scales=(1, 1.5), store=tmp_path).fit(squares.train)


def test_random_crops_depend_on_the_image_alone(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    crops = fv.RandomCrops(vit(), crops=(16, 16, 8), image_size=64, store=tmp_path).fit(squares.train)
    images = [squares.test[i].image for i in range(6)]
    boxes = crops.look(images).boxes
    assert boxes is not None
    assert torch.equal(crops.look(images[::-1]).boxes.flip(0), boxes)
    assert len({tuple(b.flatten().tolist()) for b in boxes}) == 6
    for row in boxes.tolist():
        taken = np.zeros((64, 64), int)
        for x, y, size in row:
            taken[y : y + size, x : x + size] += 1
        assert taken.max() == 1
        assert taken.sum() == 2 * 256 + 64
    other = fv.RandomCrops(vit(), crops=(16, 16, 8), image_size=64, seed=1, store=tmp_path).fit(squares.train)
    assert not torch.equal(other.look(images).boxes, boxes)


def test_random_boxes_cover_all_places_evenly() -> None:
    rng = np.random.default_rng(0)
    found = [tuple(random_boxes(rng, [2, 1], 3)[1][:2]) for _ in range(2000)]
    counts = {place: found.count(place) for place in set(found)}
    assert len(counts) == 8
    assert counts.get((1, 1)) is None
    assert min(counts.values()) > 0.3 * max(counts.values())


def test_centre_crop_looks_at_the_centre(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    centre = fv.CentreCrop(vit(), crops=16, image_size=64, store=tmp_path).fit(squares.train)
    image = squares.test[0].image
    edge = image.clone()
    edge[:, :24] = 0
    assert np.array_equal(centre.predict_logits([image]), centre.predict_logits([edge]))
    gaze = centre.look([image])
    assert gaze.map.sum() == 256
    assert gaze.map[0, 24:40, 24:40].all()


def test_full_image_shows_grad_cam_and_leaves_the_model_alone(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    full = fv.FullImage(vit(), store=tmp_path).fit(squares.train)
    before = full.embedder_.backbone.weights_hash()
    gaze = full.look([squares.test[0].image])
    assert tuple(gaze.map.shape) == (1, 8, 8)
    assert gaze.kind == "grad-cam"
    assert full.embedder_.backbone.weights_hash() == before


def test_original_source_keeps_the_detail(
    vit: Make, tmp_path: Path, true_attention: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fine stripes inside the square: gone at 64 px, plain to see in the file of 256 px."""
    rng = np.random.default_rng(0)
    images = np.full((12, 256, 256, 3), 60, np.uint8)
    stripes = np.where(np.arange(64) % 4 < 2, 255, 0).astype(np.uint8)
    for image in images:
        y, x = 32 * rng.integers(0, 6, 2)
        patch = np.broadcast_to(stripes, (64, 64))
        image[y : y + 64, x : x + 64] = np.stack([patch, np.full_like(patch, 250), patch], -1)
    data = GroupedDataset(ArrayImages(images), np.arange(12) % 2, ["a", "b"])
    seen: list[torch.Tensor] = []
    embed = FrozenModel.embed
    monkeypatch.setattr(FrozenModel, "embed", lambda self, x, *a: (seen.append(x), embed(self, x, *a))[1])
    for source, side, crop in (("resized", 64, 16), ("original", 256, 64)):
        a2 = fv.A2(vit(), vit(1), crops=(16,), source=source, store=tmp_path).fit(data)
        assert a2.preprocess_.size == (side, side)
        x, y, size = a2.look([data[0].image]).boxes[0, 0].tolist()
        assert size == crop
        assert (images[0, y : y + 4, x : x + 4, 1] == 250).all() == (source == "original")
        spread = float(seen[-1][:, 0, 16:48, 16:48].std())
        assert spread > 0.49 if source == "original" else spread < 0.02


# -- bad input ---------------------------------------------------------------------------


def test_a_cnn_cannot_be_the_attention_model(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a vision transformer"):
        fv.A2(create_backbone("micro_resnet"), vit(), crops=(16,), store=tmp_path).fit(squares.train)


@pytest.mark.parametrize("crop", [64, 100])
def test_a_crop_as_large_as_the_image(squares: Benchmark, vit: Make, tmp_path: Path, crop: int) -> None:
    with pytest.raises(DataError, match=f"a crop of {crop} px takes in the whole image.*64 px.*smaller crops"):
        fv.A2(vit(), vit(), crops=(crop,), store=tmp_path).fit(squares.train)


def test_small_images_get_a_word(vit: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    data = GroupedDataset(ArrayImages(images), np.arange(12) % 2, ["a", "b"], name="tiny")
    fv.A2(vit(), vit(), crops=(16,), store=tmp_path).fit(data)
    assert "images of tiny have 8 px, less than the crop of 16 px" in caplog.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"crops": ()}, "whole numbers of pixels"),
        ({"crops": (16.5,)}, "whole numbers of pixels"),
        ({"crops": (16,), "crop_counts": [2]}, "each from 1 to 1"),
        ({"crops": (16,), "heads": "median"}, "unknown way to put heads together"),
        ({"crops": (16,), "layer": 9}, "there is no layer 9"),
        ({"crops": (16,), "attention_size": 32}, "was built for images of 64 x 64"),
        ({"crops": (16,), "C": []}, "C is an empty list"),
    ],
)
def test_bad_settings_are_explained(
    squares: Benchmark, vit: Make, tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(FoveateError, match=words):
        fv.A2(vit(), vit(), store=tmp_path, **settings).fit(squares.train, val=squares.val)


def test_settings_wrong_by_themselves_are_refused_before_anything_is_read(vit: Make) -> None:
    for wrong in ({"head": "svm"}, {"source": "thumbnail"}, {"select": "luck"}, {"batch_size": 0}):
        system = fv.A2(vit(), vit(), **wrong)
        with pytest.raises(FoveateError):
            system.check()
    with pytest.raises(ModelError, match="expected a model name"):
        FrozenModel.open(3)  # type: ignore[arg-type]
