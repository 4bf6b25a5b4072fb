"""Saliency: the seed step of FOUND against hand-worked answers, and U2-Net-p through onnxruntime."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import foveate as fv
from foveate import assets, compat  # noqa: F401  (before timm)
from foveate.errors import MissingExtra, ModelError
from foveate.extract import create_backbone
from foveate.look import background_seed, background_similarity, found_saliency, u2netp
from foveate.look import saliency as module
from foveate.measure import attention_mass

from timm.models.vision_transformer import VisionTransformer  # isort: skip


def vit(**args: object) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(**{"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 3, **args})


def test_head_weights_and_seed_by_hand():
    # mean over heads and patches 0.25; head 0 exceeds it on 1 of 4 patches, head 1 on 2 of 4
    attention = torch.tensor([[[0.7, 0.1, 0.1, 0.1], [0.4, 0.4, 0.15, 0.05]]])
    seed, weights = background_seed(attention)
    assert weights[0].tolist() == pytest.approx([np.log(0.75 / 0.25), np.log(0.75 / 0.5)])
    # weighted attention of patch 3: 0.1 log 3 + 0.05 log 1.5, the least
    assert seed.tolist() == [3]


def test_a_head_that_looks_nowhere_more_counts_finitely():
    attention = torch.full((1, 2, 4), 0.1)
    attention[0, 1, 0] = 0.9
    _, weights = background_seed(attention)
    assert weights.isfinite().all()
    with pytest.raises(ModelError, match="per head"):
        background_seed(attention[0])


def test_similarity_weighs_heads():
    keys = torch.tensor([[[[1.0], [1.0]], [[1.0], [-1.0]]]])  # one image, two heads, two patches, d = 1
    similar = background_similarity(keys, torch.tensor([0]), torch.tensor([[2.0, 1.0]]))
    assert similar[0].tolist() == pytest.approx([1.0, (4 - 1) / 5])


@torch.no_grad()
def test_found_equals_a_plain_computation():
    """The same from a full attention matrix and keys written out by hand."""
    net, x = vit().eval(), torch.rand(2, 3, 32, 32)
    gaze = found_saliency(net, x, threshold=0.9)
    tokens = net.pos_drop(net._pos_embed(net.patch_embed(x)))
    tokens = net.blocks[0](tokens)
    block = net.blocks[1]
    q, k, _ = block.attn.qkv(block.norm1(tokens)).reshape(2, 17, 3, 3, 4).permute(2, 0, 3, 1, 4)
    attention = (q @ k.transpose(-1, -2) / 2).softmax(-1)[:, :, 0, 1:]
    seed, weights = background_seed(attention)
    for i in range(2):
        rows = torch.cat([k[i, h, 1:] * weights[i, h] for h in range(3)], dim=-1)
        cosine = torch.nn.functional.cosine_similarity(rows, rows[seed[i]][None], dim=-1).reshape(4, 4)
        torch.testing.assert_close(gaze.map[i], (1 - cosine) / 2, atol=1e-5, rtol=1e-4)
        assert torch.equal(gaze.mask[i], cosine <= 0.9)
    assert torch.equal(gaze.scores["seed"], seed)
    assert gaze.map.flatten(1).gather(1, seed[:, None]).abs().max() < 1e-6  # the seed is all background


def test_found_leaves_the_model_alone_and_refuses_what_it_cannot_read():
    net = vit().train()
    found_saliency(net, torch.rand(1, 3, 32, 32), centre=True)
    assert net.training
    assert not net.blocks[-1].attn._forward_pre_hooks
    with pytest.raises(ModelError, match="not a vision transformer"):
        found_saliency(create_backbone("micro_resnet").net, torch.rand(1, 3, 32, 32))
    with pytest.raises(ModelError, match="does not take images"):
        found_saliency(net, torch.rand(1, 3, 40, 40))


# -- U2-Net-p ------------------------------------------------------------------------------------------------


def test_missing_onnxruntime_names_the_extra(monkeypatch):
    module._session.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"foveate\[onnx\]"):
        u2netp(torch.rand(1, 3, 8, 8))


def test_network_of_ones_own(tmp_path):
    """A one-layer network in place of U2-Net-p: normalisation, stretching, averaging and mask by hand."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.array([1, 0, 0], dtype=np.float32).reshape(1, 3, 1, 1), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "red",
        [helper.make_tensor_value_info("x", 1, [1, 3, 320, 320])],
        [helper.make_tensor_value_info("y", 1, [1, 1, 320, 320])],
        [weight],
    )
    path = tmp_path / "red.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    images = np.zeros((2, 320, 320, 3), dtype=np.uint8)
    images[0, :, 160:, 0] = 100  # red on the right
    gaze = u2netp(images, grid=(2, 2), model=str(path))
    assert gaze.map[0].tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert gaze.map[1].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert gaze.mask[0].tolist() == [[False, True], [False, True]]
    with pytest.raises(ModelError, match="no file"):
        u2netp(images, model=str(tmp_path / "none.onnx"))


def test_u2netp_finds_a_critter():
    pytest.importorskip("onnxruntime")
    if not any(row.name == "u2netp" and row.ready for row in assets.status()):
        pytest.skip("the asset 'u2netp' is not on this machine; foveate assets u2netp")
    module._session.cache_clear()
    test = fv.data.critters(seed=0, size=128, train=0, target=0, val=0, test=4).test
    images = torch.stack([test[i].image for i in range(2)])
    masks = torch.stack([test[i].mask for i in range(2)])
    assert attention_mass(u2netp(images).map, masks).mean() > 2 * masks.mean()
