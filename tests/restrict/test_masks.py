"""Early and late masks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate import compat  # noqa: F401  (before timm)
from foveate.errors import ModelError
from foveate.extract import MaskedViT
from foveate.look import PartDiscovery
from foveate.restrict import early_mask, keep_parts, late_mask, straight_through

from timm.models.vision_transformer import VisionTransformer  # isort: skip


def test_best_single_part_must_beat_the_background() -> None:
    #                      kept   together only   background   tie
    maps = torch.tensor([[0.6, 0.3, 0.1, 0.4], [0.1, 0.3, 0.1, 0.2], [0.3, 0.4, 0.8, 0.4]]).view(1, 3, 2, 2)
    assert early_mask(maps).tolist() == [[1, 0, 0, 0]]
    torch.testing.assert_close(early_mask(maps, soft=True), torch.tensor([[0.6, 0.3, 0.1, 0.4]]))


def test_a_soft_mask_teaches_the_strongest_part_alone() -> None:
    maps = torch.tensor([0.5, 0.3, 0.2]).view(1, 3, 1, 1).requires_grad_()
    early_mask(maps, soft=True).sum().backward()
    assert maps.grad is not None
    assert maps.grad.flatten().tolist() == [1.0, 0.0, 0.0]


@settings(max_examples=30, deadline=None)
@given(parts=st.integers(1, 5), seed=st.integers(0, 1000))
def test_straight_through_gradient_is_that_of_the_sum(parts: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(3, parts + 1, 4, 4, generator=generator).softmax(1).requires_grad_()
    weights = torch.randn(3, 16, generator=generator)
    mask = early_mask(maps)
    assert set(mask.unique().tolist()) <= {0.0, 1.0}  # exactly, no rounding left over
    (mask * weights).sum().backward()
    wanted = weights.view(3, 1, 4, 4).expand(3, parts, 4, 4)
    torch.testing.assert_close(maps.grad[:, :-1], wanted)
    assert (maps.grad[:, -1] == 0).all()


def test_dropped_parts_hide_their_patches_and_get_no_gradient() -> None:
    maps = torch.tensor([0.8, 0.1, 0.1]).view(1, 3, 1, 1).repeat(400, 1, 1, 1).requires_grad_()
    mask = early_mask(maps, dropout=0.3, generator=torch.Generator().manual_seed(0))
    share = float(mask.detach().mean())
    assert share == pytest.approx(0.7, abs=0.06)
    mask.sum().backward()
    dropped = maps.grad[:, 0, 0, 0] == 0
    assert torch.equal(dropped, mask.detach()[:, 0] == 0)
    assert float((maps.grad[:, 1] == 0).float().mean()) == pytest.approx(0.3, abs=0.06)
    # values of the parts that stay are not scaled: the hard decision is theirs alone
    assert early_mask(maps.detach(), dropout=0.3, soft=True).unique().tolist() == pytest.approx([0.0, 0.1, 0.8])


def test_one_part_with_dropout_empties_the_mask_of_its_share_of_images() -> None:
    maps = torch.tensor([0.9, 0.1]).view(1, 2, 1, 1).expand(2000, 2, 3, 3)
    empty = (early_mask(maps, dropout=0.3, generator=torch.Generator().manual_seed(1)).sum(1) == 0).float().mean()
    assert float(empty) == pytest.approx(0.3, abs=0.03)
    assert keep_parts(4, 3, 0.0).all()
    assert not keep_parts(4, 3, 1.0).any()


def test_masks_are_resized_to_the_nearest_pixel_of_each_patch_centre() -> None:
    mask = torch.zeros(1, 6, 6)
    mask[0, 1, 1] = 1  # the centre of the first of 2x2 patches of 3 px
    mask[0, 3:, 3:] = 1
    mask[0, 4, 4] = 0  # the last patch is full but for its centre
    assert early_mask(mask, grid=(2, 2)).tolist() == [[True, False, False, False]]
    assert early_mask(mask > 0).shape == (1, 36)
    grey = torch.full((1, 4, 4), 0.4)
    assert not early_mask(grey, grid=(2, 2)).any()
    assert early_mask(grey, grid=(2, 2), threshold=0.3).all()
    torch.testing.assert_close(early_mask(grey, grid=(2, 2), soft=True), torch.full((1, 4), 0.4))
    assert early_mask(torch.rand(1, 3, 4, 4), grid=(8, 8)).shape == (1, 64)


def test_late_mask_divides_by_all_patches() -> None:
    features = torch.tensor([[[1.0, 10.0], [3.0, 30.0], [5.0, 50.0], [7.0, 70.0]]])
    assert late_mask(features, torch.tensor([[1, 0, 0, 1]])).tolist() == [[2.0, 20.0]]
    assert late_mask(features, torch.zeros(1, 4)).tolist() == [[0.0, 0.0]]
    with pytest.raises(ModelError, match=r"\[1, 4\]; got \[1, 5\]"):
        late_mask(features, torch.ones(1, 5))


def two_stages() -> tuple[VisionTransformer, MaskedViT, PartDiscovery]:
    torch.manual_seed(0)
    size = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 3}
    look, second = VisionTransformer(**size), VisionTransformer(**size)
    second.head.weight.data.normal_()
    discovery = PartDiscovery(32, parts=2, classes=3, gumbel=False, dropout=0.0)
    discovery.prototypes.data.normal_()
    return look, MaskedViT(second), discovery


def test_stage_two_teaches_stage_one_only_through_the_float_mask() -> None:
    look, masked, discovery = two_stages()
    images, labels = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])
    features = look.forward_features(images)[:, 1:].transpose(1, 2).reshape(4, 32, 4, 4)
    mask = early_mask(discovery(features).maps)
    torch.nn.functional.cross_entropy(masked(images, mask), labels).backward(retain_graph=True)
    assert discovery.prototypes.grad is not None
    assert float(discovery.prototypes.grad.abs().max()) > 0
    discovery.prototypes.grad = None
    torch.nn.functional.cross_entropy(masked(images, mask.bool()), labels).backward()
    assert discovery.prototypes.grad is None


def test_late_mask_does_leak() -> None:
    look, masked, _ = two_stages()
    look.eval()
    masked.eval()
    images = torch.randn(2, 3, 32, 32)
    mask = torch.zeros(2, 4, 4, dtype=torch.bool)
    mask[:, :2] = True
    changed = images.clone()
    changed[:, :, 16:] = torch.randn(2, 3, 16, 32)
    with torch.no_grad():
        late = [late_mask(look.forward_features(x)[:, 1:], mask.flatten(1)) for x in (images, changed)]
        early = [masked(x, mask) for x in (images, changed)]
    assert float((late[0] - late[1]).abs().max()) > 1e-4
    assert torch.equal(early[0], early[1])


def test_clear_errors() -> None:
    with pytest.raises(ModelError, match="background last"):
        early_mask(torch.rand(2, 9))
    with pytest.raises(ModelError, match="probability"):
        early_mask(torch.rand(1, 3, 2, 2), dropout=1.5)
    hard, soft = torch.tensor([1.0]), torch.tensor([1e-8], requires_grad=True)
    assert straight_through(hard, soft).item() == 1.0
