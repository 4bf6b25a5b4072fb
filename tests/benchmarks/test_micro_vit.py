"""The parts of the script that makes the micro ViT: what the student is asked to learn is what was meant."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

from foveate.extract import create_backbone
from foveate.look import cls_attention

sys.path.insert(0, str(Path(__file__).parents[2]))
script = importlib.import_module("benchmarks.micro_vit")
DIRECTIONS = script.DIRECTIONS


def test_a_head_that_looks_away_is_left_out():
    towards = torch.tensor([0.6, 0.2, 0.1, 0.1])
    heads = torch.stack([towards, towards, towards, towards.flip(0)])[None, :, :, None]
    target = script.attention_target(heads)[0, :, 0]
    sharp = towards**1.5
    torch.testing.assert_close(target, sharp / sharp.sum())


def test_whitened_directions_have_one_scale():
    torch.manual_seed(0)
    scales = torch.logspace(-1, 1, 80)
    white = script.whitened(torch.randn(40, 50, 80) * scales + 3).float().flatten(0, 1)
    assert white.shape == (2000, DIRECTIONS)
    torch.testing.assert_close(torch.cov(white.T), torch.eye(DIRECTIONS), atol=0.01, rtol=0.01)
    torch.testing.assert_close(white.mean(0), torch.zeros(DIRECTIONS), atol=0.01, rtol=0)


def test_the_student_learns_the_attention_that_is_read_later():
    torch.manual_seed(0)
    net = create_backbone("micro_vit", image_size=(64, 64)).net.eval()
    x = torch.randn(3, 3, 64, 64)
    seen, features = script.Student(net, 5)(x)
    maps = cls_attention(net, x).map.flatten(1)
    torch.testing.assert_close(seen.exp(), maps / maps.sum(1, keepdim=True), atol=1e-5, rtol=1e-4)
    assert features.shape == (3, 65, 5)
    seen.sum().backward()
    assert net.blocks[-1].attn.qkv.weight.grad.abs().sum() > 0


def test_the_same_scenes_at_both_sizes():
    small, large = (script.pictures(12, size) for size in (32, 64))
    assert small.shape == (12, 32, 32, 3)
    halved = large.reshape(12, 32, 2, 32, 2, 3).mean((2, 4))
    own = abs(halved - small).mean((1, 2, 3))
    other = abs(halved - small[::-1]).mean((1, 2, 3))
    assert (own < other).all()
    assert (script.pictures(12, 32, start=5) == small[5:]).all()
