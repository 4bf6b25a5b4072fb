"""Glimpse: which tokens are kept, and that the rest of the image is neither read nor computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.errors import FoveateError, ModelError
from foveate.extract import Backbone, MaskedViT, create_backbone
from foveate.restrict import attended_tokens

Make = Callable[..., Backbone]


# -- which tokens ------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=6, max_size=6).filter(any), st.floats(0.01, 1.0), st.booleans())
def test_tokens_equal_brute_force(values: list[int], share: float, by_mass: bool) -> None:
    maps = torch.tensor(values, dtype=torch.float32).reshape(1, 2, 3)
    order = sorted(range(6), key=lambda i: (-values[i], i))
    count = math.ceil(round(share * 6, 9))
    if by_mass:
        count = next(n for n in range(1, 7) if sum(values[i] for i in order[:n]) >= (share - 1e-9) * sum(values))
    found = attended_tokens(maps, **{"mass" if by_mass else "keep": share})
    assert sorted(order[:count]) == found.flatten().nonzero()[:, 0].tolist()


def test_a_tenth_of_256_is_26_and_of_260_too() -> None:
    assert int(attended_tokens(torch.rand(1, 16, 16), keep=0.1).sum()) == 26
    assert int(attended_tokens(torch.rand(1, 13, 20), keep=0.1).sum()) == 26


def test_keep_or_mass_not_both() -> None:
    for wrong in ({}, {"keep": 0.1, "mass": 0.5}, {"keep": 0.0}, {"mass": 1.1}):
        with pytest.raises(FoveateError, match="above 0 and up to 1"):
            attended_tokens(torch.rand(1, 2, 2), **wrong)


# -- the system --------------------------------------------------------------------------


def test_glimpse_beats_the_full_image(squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path) -> None:
    net = vit()
    full = fv.FullImage(net, C=0.1, store=tmp_path).fit(squares.train)
    glimpse = fv.Glimpse(vit(1), net, keep=4 / 64, C=0.1, store=tmp_path).fit(squares.train)
    worst = {s: fv.evaluate(s, squares.test).worst_group for s in (full, glimpse)}
    assert worst[glimpse] > 0.85
    assert worst[glimpse] > worst[full] + 0.3


def test_it_reads_nothing_but_the_kept_tokens(
    squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path
) -> None:
    glimpse = fv.Glimpse(vit(), vit(), keep=4 / 64, store=tmp_path).fit(squares.train)
    image = squares.test[0].image
    other = torch.where(image[1] == 250, image, torch.full_like(image, 7))
    assert np.array_equal(glimpse.predict_logits([image]), glimpse.predict_logits([other]))
    gaze = glimpse.look([image, other])
    assert gaze.mask is not None
    assert torch.equal(gaze.mask[0], gaze.mask[1])
    pixels = gaze.mask[0].repeat_interleave(8, 0).repeat_interleave(8, 1)
    assert torch.equal(pixels, image[1] == 250)
    assert gaze.scores["kept"].tolist() == [1.0, 1.0]


def test_keeping_everything_is_the_full_image(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    net = vit()
    full = fv.FullImage(net, store=tmp_path).fit(squares.train)
    glimpse = fv.Glimpse(vit(1), net, keep=1.0, store=tmp_path).fit(squares.train)
    images = torch.rand(3, 3, 64, 64)
    ready = full.embedder_.prepare(images)  # who reads whole images gets them as the network wants them
    torch.testing.assert_close(glimpse._features(images, (0,)), full._features(ready, (0,)), atol=1e-5, rtol=1e-4)


def test_patches_of_another_size(squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path) -> None:
    """Attention on 8 x 8 patches, embedder with 16 x 16: a token is kept where the square is."""
    glimpse = fv.Glimpse(vit(), vit(1, patch_size=4), mass=0.5, store=tmp_path).fit(squares.train)
    image = squares.test[0].image
    gaze = glimpse.look([image])
    assert tuple(gaze.map.shape) == (1, 16, 16)
    assert gaze.mask is not None
    assert gaze.mask.shape == gaze.map.shape
    pixels = gaze.mask[0].repeat_interleave(4, 0).repeat_interleave(4, 1)
    assert bool((image[1][pixels] == 250).all())
    coarse = fv.Glimpse(vit(), vit(1, patch_size=16), keep=1 / 16, store=tmp_path).fit(squares.train)
    assert tuple(coarse.look([image]).map.shape) == (1, 4, 4)


def test_models_of_two_sizes(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    torch.manual_seed(0)
    small = create_backbone("micro_vit", image_size=(32, 32), patch_size=8, embed_dim=24, depth=1, num_heads=2)
    glimpse = fv.Glimpse(small, vit(), keep=0.25, store=tmp_path).fit(squares.train)
    assert (glimpse.attention_.size, glimpse.embedder_.size, glimpse.preprocess_.size) == (32, 64, (64, 64))
    gaze = glimpse.look([squares.test[0].image])
    assert tuple(gaze.map.shape) == (1, 8, 8)
    assert int(gaze.mask.sum()) == 16


def test_the_share_is_chosen_on_val(squares: Benchmark, vit: Make, true_attention: None, tmp_path: Path) -> None:
    glimpse = fv.Glimpse(vit(), vit(), choose=[1.0, 4 / 64], C=0.1, select="worst_group", store=tmp_path)
    glimpse.fit(squares.train, val=squares.val)
    assert glimpse.chosen_ == {"views": 4 / 64, "C": 0.1}
    assert glimpse.supervision() == "train: labels; selection: group labels (worst_group)"
    assert int(glimpse.look([squares.test[0].image]).mask.sum()) == 4
    alone = fv.Glimpse(vit(), vit(), keep=4 / 64, C=0.1, store=tmp_path).fit(squares.train)
    np.testing.assert_allclose(glimpse.head_.weight_, alone.head_.weight_, rtol=1e-3, atol=1e-5)


def test_only_kept_tokens_are_computed_and_only_once(
    squares: Benchmark, vit: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[int, int]] = []
    blocks = MaskedViT._blocks
    monkeypatch.setattr(
        MaskedViT, "_blocks", lambda self, t, *a: (rows.append(tuple(t.x.shape[:2])), blocks(self, t, *a))[1]
    )
    fv.Glimpse(vit(), vit(), keep=0.1, store=tmp_path).fit(squares.train)
    assert sum(n for n, _ in rows) == len(squares.train)
    assert {tokens for _, tokens in rows} == {1 + 7}  # CLS, and a tenth of 64 patches
    rows.clear()
    fv.Glimpse(vit(), vit(), keep=0.1, head="dfr", store=tmp_path).fit(squares.train, squares.train)
    assert rows == []


def test_save_and_load(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    glimpse = fv.Glimpse(vit(), vit(1), mass=0.5, head="dfr", store=tmp_path / "s")
    glimpse.fit(squares.train, squares.target, squares.val)
    again = fv.load(glimpse.save(tmp_path / "model"))
    again.store = str(tmp_path / "another store")
    assert np.array_equal(again.predict_logits(squares.test), glimpse.predict_logits(squares.test))
    images = [squares.test[0].image]
    assert torch.equal(again.look(images).mask, glimpse.look(images).mask)
    assert again.supervision() == "target: labels, groups; selection: group labels (worst_group)"


# -- bad input ---------------------------------------------------------------------------


def test_the_embedder_must_be_a_plain_vit(squares: Benchmark, vit: Make, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tokens cannot be masked"):
        fv.Glimpse(vit(), create_backbone("micro_resnet"), store=tmp_path).fit(squares.train)
    with pytest.raises(ModelError, match="not a vision transformer"):
        fv.Glimpse(create_backbone("micro_resnet"), vit(), store=tmp_path).fit(squares.train)


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"mass": 1.5}, {"choose": []}, {"choose": [0.1, 2]}])
def test_bad_shares_are_explained(squares: Benchmark, vit: Make, tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(FoveateError, match="lies above 0 and up to 1"):
        fv.Glimpse(vit(), vit(), store=tmp_path, **wrong).fit(squares.train, val=squares.val)
