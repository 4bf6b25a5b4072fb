"""Where prototypes start: on what differs from the border, or on what the CLS token looks at."""

from __future__ import annotations

import pytest
import torch

import foveate as fv
from foveate.assemble.parts_network import ATTENDED, PartsNetwork
from foveate.errors import ModelError
from foveate.extract import open_backbone
from foveate.look import cls_attention
from foveate.look.part_start import split_tokens
from foveate.measure import foreground_miou


def planted(generator: torch.Generator, things: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens ``[20, 6, 8, 8]``: noise, with the object (2 x 2 patches) raised in channel 0 and ``things`` other
    patches raised in channel 1; and the object's mask."""
    maps = 0.1 * torch.randn(20, 6, 8, 8, generator=generator)
    mask = torch.zeros(20, 8, 8, dtype=torch.bool)
    for i in range(20):
        row, column = torch.randint(1, 6, (2,), generator=generator).tolist()
        mask[i, row : row + 2, column : column + 2] = True
        free = torch.nonzero(~mask[i])
        for at in free[torch.randperm(len(free), generator=generator)[:things]]:
            maps[i, 1, at[0], at[1]] += 3
    maps[:, 0] += 3 * mask
    return maps, mask


def selected(maps: torch.Tensor, parts: torch.Tensor, background: torch.Tensor) -> torch.Tensor:
    tokens = maps.flatten(2).transpose(1, 2)
    nearest = torch.cdist(tokens, torch.cat([parts, background[None]])).argmin(2)
    return (nearest < len(parts)).view(len(maps), *maps.shape[-2:])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_scores_say_which_of_two_striking_things_is_the_object(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    maps, mask = planted(generator)
    scores = mask + 0.02 * torch.rand(mask.shape, generator=generator)
    by_scores = selected(maps, *split_tokens(maps, 1, scores=scores, share=0.3))
    by_border = selected(maps, *split_tokens(maps, 1))
    assert torch.equal(by_scores, mask)
    assert not torch.equal(by_border, mask)  # the other things are as unlike the border as the object is


def test_the_fewest_patches_that_hold_the_share_and_never_none() -> None:
    maps = torch.zeros(1, 2, 4, 4)
    maps[0, 0, 1, 1], maps[0, 1, 1, 2] = 1.0, 1.0
    scores = torch.full((1, 4, 4), 0.01)
    scores[0, 1, 1] = 5.0  # one patch holds all of the share
    parts, background = split_tokens(maps, 1, scores=scores, share=0.3)
    along = parts[0] - background
    assert along[0] > 10 * along[1].abs()
    flat = split_tokens(maps, 1, scores=torch.zeros(1, 4, 4), share=0.3)  # a look that says nothing
    assert all(torch.isfinite(t).all() for t in flat)


def test_the_attention_of_the_packaged_vit_starts_the_parts_on_small_animals() -> None:
    backbone, view = open_backbone("micro-vit", 64)
    data = fv.data.critters(train=60, target=0, val=0, test=0, object_scale=(0.28, 0.42)).train
    inputs = view.normalise(torch.stack([view.prepare(s.image) for s in data]))
    masks = torch.stack([s.mask for s in data])  # type: ignore[misc]
    found = {}
    for attention in (False, True):
        network = PartsNetwork(backbone, 2, parts=2).eval()
        network.start_prototypes([inputs[:30], inputs[30:]], attention=attention)
        found[attention] = foreground_miou(network.parts(inputs)[1].maps, masks)
    assert found[True] > found[False] + 0.1


def test_the_attention_start_reads_every_image_once_and_is_that_of_two_passes() -> None:
    backbone, view = open_backbone("micro-vit", 64)
    data = fv.data.critters(train=24, target=0, val=0, test=0).train
    inputs = view.normalise(torch.stack([view.prepare(s.image) for s in data]))
    with torch.no_grad():
        maps, scores = backbone.eval().maps(inputs), cls_attention(backbone.net, inputs).map
    parts, background = split_tokens(maps, 3, seed=1, scores=scores, share=ATTENDED)
    network = PartsNetwork(backbone, 2, parts=3)
    read: list[int] = []
    backbone.net.patch_embed.register_forward_hook(lambda _, args, __: read.append(len(args[0])))
    network.start_prototypes([inputs], seed=1, attention=True)
    assert read == [24]
    assert torch.equal(network.discovery.prototypes, torch.cat([parts, background[None]]))
    assert network.training  # the mode is put back


def test_an_unknown_start_is_named() -> None:
    with pytest.raises(ModelError, match="'attention', 'tokens' or 'random'"):
        fv.IFAM("micro-vit", start="middle").check()
