"""The CLS tap against the softmax every family writes down when its fused attention is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foveate import compat  # noqa: F401
from foveate.errors import ModelError
from foveate.look import aggregate_heads, cls_attention

from timm.models.deit import VisionTransformerDistilled  # isort: skip
from timm.models.eva import Eva  # isort: skip
from timm.models.vision_transformer import VisionTransformer  # isort: skip

SMALL: dict[str, Any] = {"img_size": (32, 48), "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4}
GRID = (4, 6)
NARROW = {**SMALL, "num_classes": 0}


def vit(**more: Any) -> nn.Module:
    return VisionTransformer(**{**NARROW, **more})


def eva(**more: Any) -> nn.Module:
    return Eva(**{**NARROW, "use_abs_pos_emb": False, "use_rot_pos_emb": True, **more})


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "DINO, MAE, DeiT": vit,
    "DINOv2": lambda: vit(init_values=0.5, no_embed_class=True),
    "DINOv2 with registers": lambda: vit(init_values=0.5, no_embed_class=True, reg_tokens=4),
    "CLIP in timm": lambda: vit(pre_norm=True, norm_layer=nn.LayerNorm),
    "distilled DeiT": lambda: VisionTransformerDistilled(**NARROW),
    "normalised queries and keys": lambda: vit(qk_norm=True),
    "no qkv bias": lambda: vit(qkv_bias=False),
    "dynamic size": lambda: vit(dynamic_img_size=True, img_size=32),
    "EVA-02": lambda: eva(qkv_fused=False, swiglu_mlp=True, scale_mlp=True),
    "EVA, fused": lambda: eva(qkv_fused=True, class_token=True),
    "EVA, absolute positions": lambda: eva(use_rot_pos_emb=False, use_abs_pos_emb=True),
    "DINOv3": lambda: eva(rope_type="dinov3", num_reg_tokens=4, init_values=0.5, rope_rotate_half=True),
    "rotary, mixed": lambda: eva(rope_type="mixed", attn_type="rope", rope_grid_indexing="xy"),
    "rotary with normalised keys": lambda: eva(attn_type="rope", qk_norm=True, num_reg_tokens=2),
    "rotary, grouped queries": lambda: eva(attn_type="rope", num_kv_heads=2, qkv_fused=False),
}  # fmt: skip


def shaken(model: nn.Module) -> nn.Module:
    """Weights and biases far from their start values, so that a forgotten bias or scale shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def written_down(model: Any, images: Tensor) -> list[Tensor]:
    """Each block's CLS row ``[B, heads, tokens]``, from an eager pass through the model's own code."""
    rows: list[Tensor] = []
    handles = []
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_pre_hook(lambda _, x: rows.append(x[0][:, :, 0])))
    with torch.no_grad():
        model.forward_features(images)
    for handle in handles:
        handle.remove()
    for block in model.blocks:
        block.attn.fused_attn = True
    return rows


@pytest.mark.parametrize("name", FAMILIES)
def test_equals_the_models_own_softmax(name: str) -> None:
    torch.manual_seed(0)
    model = shaken(FAMILIES[name]())
    images = torch.randn(2, 3, 32, 48)
    truth = written_down(model, images)
    gazes = cls_attention(model, images, layer="all", heads=None)
    assert len(gazes) == len(truth) == 3
    patches = GRID[0] * GRID[1]
    for gaze, row in zip(gazes, truth, strict=True):
        expected = row[..., -patches:].unflatten(-1, GRID)
        assert gaze.scores["heads"].shape == (2, 4, *GRID)
        torch.testing.assert_close(gaze.scores["heads"], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(gaze.map, expected.mean(1), atol=1e-5, rtol=0)
        torch.testing.assert_close(gaze.scores["cls"], row[:, :, 0].mean(1), atol=1e-5, rtol=0)
        torch.testing.assert_close(gaze.scores["registers"], row[:, :, 1:-patches].sum(-1).mean(1), atol=1e-5, rtol=0)
        assert torch.allclose(sum(gaze.scores[s] for s in ("cls", "registers", "patches")), torch.ones(2))  # type: ignore[arg-type]
        assert row.std() > 1e-3, "a flat row would not test anything"


def test_any_layer_any_order() -> None:
    torch.manual_seed(0)
    model, images = shaken(vit()), torch.randn(2, 3, 32, 48)
    every = cls_attention(model, images, layer="all")
    for layer in (0, 1, 2, -1, -3):
        assert torch.equal(cls_attention(model, images, layer=layer).map, every[layer].map)
    last, first = cls_attention(model, images, layer=[-1, 0])
    assert torch.equal(last.map, every[2].map)
    assert torch.equal(first.map, every[0].map)
    assert not torch.allclose(first.map, last.map)


def test_stops_early_and_leaves_the_model_alone() -> None:
    model = vit(drop_path_rate=0.5, proj_drop_rate=0.5).train()
    model.blocks[1].eval()  # type: ignore[index,union-attr]
    modes = [m.training for m in model.modules()]
    seen: list[int] = []
    for i, block in enumerate(model.blocks):  # type: ignore[arg-type]
        block.mlp.register_forward_hook(lambda *_, i=i: seen.append(i))
    images = torch.randn(1, 3, 32, 48)
    a, b = cls_attention(model, images, layer=1), cls_attention(model, images, layer=1)
    assert torch.equal(a.map, b.map), "dropout must be off"
    assert seen == [0, 0], "blocks after the wanted one, and its own MLP, must not run"
    assert [m.training for m in model.modules()] == modes
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert not a.map.requires_grad


def test_hooks_go_away_when_the_model_fails() -> None:
    model = vit()
    with pytest.raises(ModelError, match="dynamic_img_size"):
        cls_attention(model, torch.randn(1, 3, 40, 40))
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_features_are_the_models_own() -> None:
    torch.manual_seed(0)
    model, images = shaken(vit(reg_tokens=2)), torch.randn(2, 3, 32, 48)
    gaze = cls_attention(model, images, layer=0, return_features=True)
    with torch.no_grad():
        assert torch.equal(gaze.scores["features"], model.forward_features(images))  # type: ignore[operator]
    assert torch.equal(gaze.map, cls_attention(model, images, layer=0).map)


@pytest.mark.bf16
def test_half_precision_models_give_float_maps() -> None:
    torch.manual_seed(0)
    model, images = shaken(vit()), torch.randn(2, 3, 32, 48)
    full = cls_attention(model, images).map
    half = cls_attention(model.bfloat16(), images).map
    assert half.dtype == torch.float32
    assert (half - full).abs().max() < 0.1 * full.max()


# -- open_clip -----------------------------------------------------------------------------------------------


class Block(nn.Module):
    """The residual block of open_clip's towers, as small as it can be."""

    def __init__(self, width: int, heads: int, batch_first: bool):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=batch_first)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Tower(nn.Module):
    """Named like open_clip's VisionTransformer; tokens go through the blocks batch first or batch second."""

    def __init__(self, batch_first: bool, width: int = 32):
        super().__init__()
        self.batch_first = batch_first
        self.conv1 = nn.Conv2d(3, width, 8, 8, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn(25, width))
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(Block(width, 4, batch_first) for _ in range(2))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], 1) + self.positional_embedding
        x = x if self.batch_first else x.transpose(0, 1)
        for block in self.transformer.resblocks:  # type: ignore[union-attr]
            x = block(x)
        x = x if self.batch_first else x.transpose(0, 1)
        return self.ln_post(x)[:, 0]


def open_clip_rows(visual: Any, images: Tensor) -> list[Tensor]:
    """CLS rows from nn.MultiheadAttention itself, asked for its weights."""
    rows: list[Tensor] = []

    def read(attn: nn.MultiheadAttention, args: tuple[Tensor, ...]) -> None:
        rows.append(attn.forward(args[0], args[0], args[0], average_attn_weights=False)[1][:, :, 0])

    handles = [b.attn.register_forward_pre_hook(read) for b in visual.transformer.resblocks]
    with torch.no_grad():
        visual(images)
    for handle in handles:
        handle.remove()
    return rows


def check_open_clip(model: nn.Module, visual: Any, images: Tensor, grid: tuple[int, int]) -> None:
    truth = open_clip_rows(visual, images)
    gazes = cls_attention(model, images, layer="all", heads=None)
    assert len(gazes) == len(truth)
    for gaze, row in zip(gazes, truth, strict=True):
        torch.testing.assert_close(gaze.scores["heads"], row[..., 1:].unflatten(-1, grid), atol=1e-5, rtol=0)
        assert gaze.scores["registers"].abs().max() == 0


@pytest.mark.parametrize("batch_first", [True, False])
def test_open_clip_towers(batch_first: bool) -> None:
    torch.manual_seed(0)
    visual, images = shaken(Tower(batch_first)), torch.randn(3, 3, 32, 48)
    check_open_clip(visual, visual, images, GRID)
    whole = nn.Module()  # an open_clip model holds its tower as .visual
    whole.visual = visual
    check_open_clip(whole, visual, images, GRID)
    tokens = cls_attention(visual, images, return_features=True).scores["features"]
    with torch.no_grad():
        torch.testing.assert_close(tokens[:, 0], visual(images))


def test_open_clip_itself() -> None:
    open_clip = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    tower = open_clip.transformer.VisionTransformer(
        image_size=32, patch_size=8, width=32, layers=2, heads=4, mlp_ratio=2, output_dim=16
    )
    images = torch.randn(2, 3, 32, 32)
    shaken(tower)
    check_open_clip(tower, tower, images, (4, 4))
    tokens = cls_attention(tower, images, return_features=True).scores["features"]
    with torch.no_grad():
        torch.testing.assert_close(tokens[:, 0] @ tower.proj, tower(images))


# -- what cannot be tapped -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("resnet10t", {}, "not a vision transformer.*gradcam"),
        (
            "swin_tiny_patch4_window7_224",
            {"img_size": 224, "embed_dim": 24, "depths": (1, 1, 1, 1)},
            "cannot be tapped",
        ),
        ("beit_base_patch16_224", {"img_size": 32, "embed_dim": 32, "depth": 1, "num_heads": 2}, "cannot be tapped"),
        ("xcit_nano_12_p16_224", {"img_size": 32, "depth": 1}, "cannot be tapped"),
        ("cait_xxs24_224", {"img_size": 32, "depth": 1}, "cannot be tapped"),
        ("vit_tiny_patch16_224", {"img_size": 32, "class_token": False, "global_pool": "avg"}, "no class token"),
    ],
)
def test_refusals_say_what_to_do(name: str, settings: dict[str, Any], says: str) -> None:
    import timm

    size = settings.get("img_size", 32)
    with pytest.raises(ModelError, match=says) as error:
        cls_attention(timm.create_model(name, **settings), torch.randn(1, 3, size, size))
    assert "vit_small_patch14_dinov2" in str(error.value)


def test_bad_arguments() -> None:
    model, images = vit(), torch.randn(1, 3, 32, 48)
    with pytest.raises(ModelError, match="3 blocks"):
        cls_attention(model, images, layer=3)
    with pytest.raises(ModelError, match="'all'"):
        cls_attention(model, images, layer="last")  # type: ignore[call-overload]
    with pytest.raises(ModelError, match="empty"):
        cls_attention(model, images, layer=[])
    with pytest.raises(ModelError, match="known: mean"):
        cls_attention(model, images, heads="median")
    with pytest.raises(ModelError, match="Normalise"):
        cls_attention(model, torch.zeros(1, 3, 32, 48, dtype=torch.uint8))


# -- heads ---------------------------------------------------------------------------------------------------


def test_aggregation_known_answers() -> None:
    heads = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [0.4, 0.4, 0.0, 0.0], [0.0, 0.0, 0.1, 0.0]]])
    # entropies: log 4, log 2, 0; weights log N - H: 0, log 2, log 4, so 0, 1/3, 2/3
    torch.testing.assert_close(aggregate_heads(heads, "mean")[0], torch.tensor([0.65, 0.65, 0.35, 0.25]) / 3)
    torch.testing.assert_close(aggregate_heads(heads, "max")[0], torch.tensor([0.4, 0.4, 0.25, 0.25]))
    torch.testing.assert_close(aggregate_heads(heads, "entropy")[0], torch.tensor([0.4, 0.4, 0.2, 0.0]) / 3)
    torch.testing.assert_close(aggregate_heads(heads, "lowest-entropy-k", k=1)[0], heads[0, 2])
    torch.testing.assert_close(aggregate_heads(heads, "lowest-entropy-k", k=2), heads[:, 1:].mean(1))
    torch.testing.assert_close(aggregate_heads(heads, "lowest-entropy-k", k=9), heads.mean(1))


@pytest.mark.parametrize("how", ["mean", "max", "entropy", "lowest-entropy-k"])
def test_aggregation_shapes_and_flat_heads(how: str) -> None:
    maps = torch.rand(2, 5, 3, 4)
    torch.testing.assert_close(aggregate_heads(maps, how, k=2).flatten(1), aggregate_heads(maps.flatten(2), how, k=2))
    flat = torch.full((1, 3, 2, 2), 0.2)
    torch.testing.assert_close(aggregate_heads(flat, how), flat[:, 0])
    assert torch.isfinite(aggregate_heads(torch.zeros(1, 2, 2, 2), how)).all()


def test_the_tap_aggregates_the_same_way() -> None:
    torch.manual_seed(0)
    model, images = shaken(vit()), torch.randn(2, 3, 32, 48)
    heads = cls_attention(model, images, heads=None).scores["heads"]
    for how in ("max", "entropy", "lowest-entropy-k"):
        torch.testing.assert_close(cls_attention(model, images, heads=how, k=2).map, aggregate_heads(heads, how, k=2))
