"""verify: exactly nothing for early masks and iFAM, something for late masks and full models; and it can tell."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.errors import DataError, ModelError
from foveate.intervene import verify
from foveate.intervene.verify import REPLACEMENTS, Verified, patches_to_pixels

VIT = {"model_args": {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 4}, "epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def data() -> Benchmark:
    return fv.data.critters(size=32, train=40, target=16, val=16, test=40)


@pytest.fixture(scope="module")
def systems(data: Benchmark) -> dict[str, Any]:
    torch.set_num_threads(1)
    kinds = {
        "iFAM": (fv.IFAM, {"parts": 3}),
        "early": (fv.EarlyMask, {}),
        "late": (fv.LateMask, {}),
        "full": (fv.ERM, {}),
    }
    made: dict[str, Any] = {}
    for name, (kind, more) in kinds.items():
        made[name] = kind("micro_vit", **more, **VIT).fit(data.train)
    return made


def test_nothing_reaches_an_early_mask_and_something_the_others(systems: dict[str, Any], data: Benchmark) -> None:
    report = verify(systems, data.test, images=6)
    by_name = {found.name: found for found in report.systems}
    for name in ("iFAM", "early"):
        found = by_name[name]
        assert found.held
        assert set(found.changes) == set(REPLACEMENTS)
        assert found.largest == 0  # not "small": exactly nothing
        assert found.pruned == 0
        assert found.gradient == 0
        assert found.flips == 0
    assert by_name["early"].holds
    assert by_name["early"].inside > 0  # the control: it does read what is inside
    for name in ("late", "full"):
        found = by_name[name]
        assert min(found.changes.values()) > 0
        assert found.gradient is not None
        assert found.gradient > 0
        assert not found.holds
        assert "reaches the prediction" in found.verdict
    assert by_name["full"].held is False
    assert "outside the true masks" in by_name["full"].verdict
    assert len(by_name["early"].coverage) == 6
    assert all(0 < share < 1 for share in by_name["early"].coverage)


def test_the_report_reads_as_text_and_json(systems: dict[str, Any], data: Benchmark) -> None:
    report = verify({"early": systems["early"], "late": systems["late"]}, data.test, images=3)
    text = str(report)
    assert "checkerboard" in text
    assert "do not reach the logits" in text
    saved = json.loads(json.dumps(report.to_dict()))
    assert saved["holds"] is True
    assert [s["holds"] for s in saved["systems"]] == [True, False]
    assert saved["systems"][0]["largest"] == 0
    again = verify({"early": systems["early"], "late": systems["late"]}, data.test, images=3)
    assert again.to_dict() == report.to_dict()
    other = verify(systems["late"], data.test, images=3, seed=1)
    assert other.systems[0].changes != report.systems[1].changes


def test_images_without_masks_are_judged_by_the_gaze(systems: dict[str, Any], data: Benchmark) -> None:
    found = verify(systems["full"], [data.test[i].image for i in range(2)]).systems[0]
    assert "it does not look at" in found.region
    assert found.largest > 0
    assert verify(systems["iFAM"], [data.test[0].image]).systems[0].largest == 0  # one image alone


class Leaky:
    """A made-up system: logits are sums over the kept patches plus ``leak`` times one pixel that is hidden."""

    def __init__(self, leak: float, tokens: Tensor, weight: float = 1.0):
        self.leak, self.tokens, self.weight = leak, tokens, weight
        self.preprocess_ = fv.data.preprocess.Preprocess((4, 4), mean=(0.0,) * 3, std=(1.0,) * 3)

    def _require_fit(self) -> None: ...

    def stage_inputs(self, images: Any) -> tuple[Tensor, Tensor]:
        inputs = torch.stack([i.float() / 255 for i in images])
        return inputs, self.tokens.expand(len(inputs), -1)

    def logits_with_mask(self, inputs: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        kept = torch.where(patches_to_pixels(token_mask, (4, 4))[:, None], inputs, torch.zeros(()))
        first = self.weight * kept.sum((1, 2, 3)) + self.leak * inputs[:, 0, 3, 3]
        return torch.stack([first, torch.zeros_like(first)], 1)


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(60, 200, (3, 3, 4, 4), dtype=torch.uint8, generator=generator)


def test_a_leak_of_known_size_is_found(pictures: Tensor) -> None:
    tokens = torch.tensor([[True, False, False, False]])  # the pixel (3, 3) is in the last patch
    tight: Any = Leaky(0.0, tokens)
    assert verify(tight, pictures).holds
    found = verify(Leaky(0.5, tokens), pictures).systems[0]  # type: ignore[arg-type]
    pixel = pictures[:, 0, 3, 3].float()
    brightest, darkest = float(pixel.max()), float(pixel.min())
    assert found.changes["black"] == pytest.approx(0.5 * brightest / 255, abs=1e-5)
    assert found.changes["white"] == pytest.approx(0.5 * (1 - darkest / 255), abs=1e-5)
    assert found.gradient == pytest.approx(0.5)
    assert found.coverage == (0.25,) * 3
    assert not found.holds


def test_controls_must_pass_before_anything_holds(pictures: Tensor) -> None:
    some = torch.tensor([[True, False, False, False]])
    cases: list[tuple[Any, str, str]] = [
        (Leaky(0.0, torch.zeros(1, 4, dtype=torch.bool)), "visible pixels", "empty in every image"),
        (Leaky(0.0, some, weight=0.0), "visible pixels", "ignores its images"),
        (Leaky(0.0, torch.ones(1, 4, dtype=torch.bool)), "hidden pixels", "nothing to test"),
    ]
    for system, control, why in cases:
        report = verify(system, pictures)
        found = report.systems[0]
        assert found.largest == 0
        assert not found.holds
        assert found.failed_control == control
        assert f"control of {control} failed" in found.verdict
        assert why in found.verdict
        assert report.to_dict()["holds"] is False
        assert report.to_dict()["systems"][0]["failed_control"] == control
    # empty in some images only: the others show that what is visible is read
    mixed: Any = Leaky(0.0, torch.stack([torch.zeros(4), torch.tensor([1.0, 0, 0, 0]), torch.zeros(4)]).bool())
    assert verify(mixed, pictures).systems[0].failed_control is None
    assert verify(mixed, pictures).holds


def test_a_trained_system_with_its_weights_at_zero_does_not_hold(systems: dict[str, Any], data: Benchmark) -> None:
    blind = copy.deepcopy(systems["early"])
    with torch.no_grad():
        for weight in blind.network_.parameters():
            weight.zero_()
    found = verify(blind, data.test, images=4).systems[0]
    assert found.held
    assert found.largest == 0
    assert found.inside == 0
    assert not found.holds
    assert "control of visible pixels failed" in found.verdict


class Sensitive(Leaky):
    """Reads the visible pixels, but answers to pure black only: noise alone does not show that it reads them."""

    def logits_with_mask(self, inputs: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        kept = torch.where(patches_to_pixels(token_mask, (4, 4))[:, None], inputs, torch.ones(()))
        dark = (kept == 0).flatten(1).sum(1).ge(12).to(inputs)
        return torch.stack([dark, torch.zeros_like(dark)], 1)


def test_the_positive_control_tries_more_than_noise(pictures: Tensor) -> None:
    rare: Any = Sensitive(0.0, torch.tensor([[True, False, False, False]]))
    found = verify(rare, pictures).systems[0]
    assert found.inside == 1
    assert found.holds


def test_not_a_number_never_passes(pictures: Tensor) -> None:
    some = torch.tensor([[True, False, False, False]])
    broken: Any = Leaky(float("nan"), some)
    assert verify(broken, pictures).systems[0].largest == float("inf")  # NaN must not pass for no change
    undefined = Verified("m", "the patches its mask hides", True, {"noise": 0.0}, None, None, math.inf, 0, (0.5,))
    assert undefined.failed_control == "visible pixels"
    assert "not numbers" in undefined.verdict
    free = Verified("m", "the pixels outside the true masks", False, {"noise": 0.0}, None, None, 1.0, 0, (0.5,))
    assert not free.holds  # nothing moved, but there is no mask that could be held
    assert "no mask to hold" in free.verdict
    assert "reaches the prediction" not in free.verdict


def test_more_images_than_fit_at_once(pictures: Tensor) -> None:
    tokens = torch.tensor([[True, False, False, False]])
    many = pictures.repeat(14, 1, 1, 1)
    found = verify(Leaky(0.5, tokens), many).systems[0]  # type: ignore[arg-type]
    assert len(found.coverage) == 42
    assert found.largest > 0


def test_patches_to_pixels_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    for rows, columns, height, width in ((2, 3, 8, 12), (4, 4, 16, 16), (3, 1, 9, 3)):
        tokens = torch.from_numpy(rng.random((2, rows, columns)) < 0.5)
        expected = torch.zeros(2, height, width, dtype=torch.bool)
        for y in range(height):
            for x in range(width):
                expected[:, y, x] = tokens[:, y * rows // height, x * columns // width]
        assert torch.equal(patches_to_pixels(tokens, (height, width)), expected)
        assert torch.equal(patches_to_pixels(tokens.flatten(1), (height, width)), expected)
    with pytest.raises(ModelError, match=r"3x3 patches does not divide images of 10x10"):
        patches_to_pixels(torch.ones(1, 9, dtype=torch.bool), (10, 10))


def test_many_classes_are_mixed() -> None:
    """With more classes than are looked at one by one, a leak into any of them is still found."""
    from foveate.intervene.verify import _Case, _gradient

    inside = torch.tensor([[[True, False]]])

    def logits(x: Tensor) -> Tensor:  # [1, 40]: 39 constants and the pixel outside
        return torch.cat([torch.zeros(1, 39), x[:, 0, 0, 1:]], 1)

    case = _Case(torch.zeros(1, 3, 1, 2), inside, logits, None, logits)
    found = _gradient(case, torch.Generator().manual_seed(0))
    assert found is not None
    assert found > 0


def test_sentences(systems: dict[str, Any], data: Benchmark) -> None:
    with pytest.raises(DataError, match=r"at least one image; got images=0"):
        verify(systems["early"], data.test, images=0)
    with pytest.raises(ModelError, match=r"at least one system"):
        verify({}, data.test)
    with pytest.raises(ModelError, match=r"has not been fitted"):
        verify(fv.ERM("micro_vit"), data.test)
    assert isinstance(verify(systems["early"], data.test, images=99).systems[0], Verified)  # no more than there are
