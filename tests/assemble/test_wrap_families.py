"""Every way people hold a model, on a small real instance: opened, cured, saved and read back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import foveate as fv
from foveate import compat  # noqa: F401  (before timm and torchvision)
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError

import timm  # isort: skip
import torchvision.models as tv  # isort: skip
from torchvision.models.convnext import CNBlockConfig  # isort: skip
from torchvision.models.efficientnet import EfficientNet, MBConvConfig  # isort: skip

VIEW = Preprocess((48, 48), mean=(0.5,) * 3, std=(0.25,) * 3)
NAMES = ["cat", "duck"]


class Held(nn.Module):
    """A network inside another: nobody can tell where it comes from."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def torchvision_efficientnet() -> nn.Module:
    blocks = [MBConvConfig(1, 3, 1, 32, 16, 1, 0.5, 1.0), MBConvConfig(4, 3, 2, 16, 24, 1, 0.5, 1.0)]
    return EfficientNet(blocks, 0.2, num_classes=2)


def torchvision_convnext() -> nn.Module:
    return tv.convnext.ConvNeXt([CNBlockConfig(16, 24, 1), CNBlockConfig(24, None, 1)], num_classes=2)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "torchvision ResNet": lambda: tv.resnet.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1], num_classes=2),
    "torchvision EfficientNet": torchvision_efficientnet,
    "torchvision DenseNet": lambda: tv.DenseNet(8, (2, 2), 16, num_classes=2),
    "torchvision ConvNeXt": torchvision_convnext,
    "torchvision MobileNet": lambda: tv.MobileNetV2(num_classes=2, width_mult=0.25),
    "timm ResNet": lambda: Held(timm.create_model("test_resnet", num_classes=2)),
    "timm EfficientNet": lambda: Held(timm.create_model("test_efficientnet", num_classes=2)),
    "timm ConvNeXt": lambda: Held(timm.create_model("test_convnext", num_classes=2)),
}


def made(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()


@pytest.fixture(scope="module")
def data() -> Any:
    return fv.data.critters(train=16, target=16, val=8, test=8, size=48)


@pytest.mark.parametrize("family", FAMILIES)
def test_dfr_and_dar_on_every_family_of_cnns(family: str, data: Any, tmp_path: Path) -> None:
    wrapped = fv.wrap(made(FAMILIES[family]), NAMES, preprocess=VIEW)
    assert wrapped.abilities.maps is not None
    assert wrapped.abilities.embedding is not None
    how: dict[str, Any] = {"store": tmp_path / "store", "progress": False}
    width = wrapped.abilities.channels
    heads = next(h for h in (8, 4, 2, 1) if width % h == 0)
    dfr = fv.DFR(wrapped, refits=1, **how).fit(data.target)
    dar = fv.DAR(wrapped, epochs=1, queries=1, heads=heads, **how).fit(data.target)
    for name, system in (("base", wrapped), ("dfr", dfr), ("dar", dar)):
        again = fv.load(system.save(tmp_path / name))
        assert np.array_equal(again.predict_logits(data.test), system.predict_logits(data.test)), name


def test_a_timm_object_is_held_by_its_name(data: Any, tmp_path: Path) -> None:
    net = made(lambda: timm.create_model("test_vit", num_classes=2, img_size=48))
    wrapped = fv.wrap(net, NAMES)
    assert wrapped.abilities.masks
    assert wrapped.preprocess_.size == (48, 48)
    saved = wrapped.save(tmp_path / "vit")
    assert json.loads((saved / "system.json").read_text())["learned"]["backbone"]["name"] == "test_vit"
    assert np.array_equal(fv.load(saved).predict_logits(data.test), wrapped.predict_logits(data.test))


def test_glimpse_reads_with_a_wrapped_vit_of_any_shape(data: Any, tmp_path: Path) -> None:
    from timm.models.vision_transformer import VisionTransformer

    net = made(lambda: VisionTransformer(48, 8, embed_dim=24, depth=2, num_heads=3, num_classes=2))
    wrapped = fv.wrap(net, NAMES, preprocess=VIEW)
    assert wrapped.abilities.masks
    glimpse = fv.Glimpse("micro-vit", wrapped, keep=0.3, store=tmp_path / "store", progress=False).fit(data.train)
    again = fv.load(glimpse.save(tmp_path / "glimpse"))
    assert np.array_equal(again.predict_logits(data.test), glimpse.predict_logits(data.test))
    assert int(again.look([data.test[0].image]).mask.sum()) == round(0.3 * 36)


def test_tokens_of_a_vit_that_is_no_one_elses(data: Any, tmp_path: Path) -> None:
    net = made(lambda: tv.VisionTransformer(48, 12, 2, 2, 32, 64, num_classes=2))
    torch.nn.init.normal_(net.heads[0].weight)  # type: ignore[index, union-attr]
    wrapped = fv.wrap(net, NAMES, preprocess=VIEW)
    assert wrapped.abilities.tokens
    assert wrapped.abilities.grid == (4, 4)
    assert not wrapped.abilities.masks
    assert float(wrapped.look(data.test[0].image[None]).map.sum()) > 0
    dar = fv.DAR(wrapped, epochs=1, queries=1, store=tmp_path, progress=False).fit(data.target)
    assert dar.predict(data.test).shape == (8,)


def test_a_classifier_of_transformers(data: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    names = {0: "cat", 1: "duck"}
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=48, patch_size=12,
        id2label=names, label2id={v: k for k, v in names.items()},
    )  # fmt: skip
    net = made(lambda: transformers.ViTForImageClassification(config))
    folder = tmp_path / "hf"
    net.save_pretrained(folder)  # type: ignore[operator]
    told = {"size": {"height": 48, "width": 48}, "image_mean": [0.4] * 3, "image_std": [0.3] * 3, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    wrapped = fv.wrap(folder)
    assert wrapped.class_names_ == NAMES
    assert (wrapped.preprocess_.size, wrapped.preprocess_.mean) == ((48, 48), (0.4,) * 3)
    with torch.no_grad():
        own = net(wrapped.inputs(data.test[0].image[None])).logits
    assert np.array_equal(wrapped.predict_logits(data.test[0].image[None]), own)
    assert wrapped.abilities.tokens
    assert fv.wrap(net).class_names_ == NAMES
    again = fv.load(wrapped.save(tmp_path / "kept"))
    assert np.array_equal(again.predict_logits(data.test), wrapped.predict_logits(data.test))
    (folder / "config.json").write_text(
        '{"model_type": "vit", "auto_map": {"AutoConfig": "evil.Evil"}, "hidden_size": 0}'
    )
    with pytest.raises(ModelError, match="cannot be opened as an image classifier"):
        fv.wrap(folder)


CLIP = {
    "embed_dim": 16, "vision_cfg": {"image_size": 48, "layers": 2, "width": 32, "head_width": 16, "patch_size": 12},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}  # fmt: skip


def test_a_clip_tower_by_texts_or_with_a_linear_head(data: Any, tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    net = made(lambda: open_clip.CLIP(**json.loads(json.dumps(CLIP))))
    (tmp_path / "own.json").write_text(json.dumps(CLIP))
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, tmp_path / "own.safetensors")
    name = f"open_clip:{tmp_path / 'own.json'}@{tmp_path / 'own.safetensors'}"
    by_name, by_object = fv.wrap(name, NAMES), fv.wrap(net, NAMES)
    np.testing.assert_allclose(by_name.predict_logits(data.test), by_object.predict_logits(data.test), atol=1e-4)
    other = fv.wrap(name, NAMES, prompts={"cat": "a tabby", "duck": "a bird on water"})
    assert not np.allclose(other.predict_logits(data.test), by_name.predict_logits(data.test))
    heat = by_name.look([data.test[0].image])
    assert (heat.kind, tuple(heat.map.shape)) == ("grad-cam", (1, 4, 4))
    save_file({"weight": torch.ones(2, 16), "bias": torch.tensor([0.0, 1.0])}, tmp_path / "head.safetensors")
    linear = fv.wrap(name, NAMES, head=tmp_path / "head.safetensors")
    assert set(linear.predict(data.test)) == {1}
    for system in (by_name, by_object, linear):
        again = fv.load(system.save(tmp_path / "kept"))
        assert np.array_equal(again.predict_logits(data.test), system.predict_logits(data.test))
    save_file({"weight": torch.ones(2, 8)}, tmp_path / "head.safetensors")
    with pytest.raises(ModelError, match="no linear head on 16"):
        fv.wrap(name, NAMES, head=tmp_path / "head.safetensors")


FACTORY = """
from torch import nn
def build(num_classes=2):
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), pool, nn.Linear(8, num_classes))
    net.class_names = ["cat", "duck"]
    return net
def broken():
    raise OSError("the weights are on another disk")
number = 3
"""


def test_a_factory_of_ones_own(data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "handmade_models.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "handmade_models", raising=False)
    net = fv.wrap("handmade_models:build", preprocess=VIEW).model.module  # type: ignore[union-attr]
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    wrapped = fv.wrap("handmade_models:build", weights=tmp_path / "w.safetensors", preprocess=VIEW)
    assert wrapped.class_names_ == NAMES
    assert wrapped.abilities.embedding == 8
    same = fv.wrap(f"handmade_models:build@{tmp_path / 'w.safetensors'}", preprocess=VIEW)
    assert np.array_equal(same.predict_logits(data.test), wrapped.predict_logits(data.test))
    for address, said in (
        ("handmade_models:broken", "raised OSError: the weights are on another disk"),
        ("handmade_models:builds", "has no 'builds'"),
        ("handmade_models:number", "expected a function"),
        ("no_such_package:build", "cannot be imported"),
    ):
        with pytest.raises(ModelError, match=said):
            fv.wrap(address, NAMES)
    save_file({"0.weight": torch.zeros(8, 3, 5, 5)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="does not fit what handmade_models:build makes"):
        fv.wrap("handmade_models:build", weights=tmp_path / "other.safetensors", preprocess=VIEW)


class Says(nn.Module):
    """Gives what it is told to give, made from one linear layer."""

    def __init__(self, form: Callable[[Tensor], Any], columns: int = 2) -> None:
        super().__init__()
        self.form, self.layer = form, nn.Linear(3, columns)

    def forward(self, x: Tensor) -> Any:
        return self.form(self.layer(x.mean((2, 3))))


@pytest.mark.parametrize(
    "form",
    [
        lambda z: {"logits": z, "features": z.repeat(1, 4)},
        lambda z: {"out": z, "aux": z * 0},
        lambda z: (z, z[:, :, None, None].expand(-1, -1, 2, 2)),
        lambda z: [z],
    ],
)
def test_logits_are_found_where_it_is_clear(form: Any, data: Any) -> None:
    torch.manual_seed(0)
    plain = Says(lambda z: z).eval()
    told = Says(form).eval()
    told.layer = plain.layer
    one, two = (fv.wrap(m, NAMES, preprocess=VIEW) for m in (plain, told))
    assert np.array_equal(one.predict_logits(data.test), two.predict_logits(data.test))
    assert two.abilities.embedding == 3


def test_one_logit_is_two_classes(data: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    for form in (lambda z: z, lambda z: z[:, 0], lambda z: z.squeeze(1)):
        wrapped = fv.wrap(Says(form, 1).eval(), NAMES, preprocess=VIEW)
        with torch.no_grad():
            z = wrapped.model.module.layer(wrapped.inputs([s.image for s in data.test]).mean((2, 3)))  # type: ignore
        np.testing.assert_allclose(wrapped.predict_proba(data.test)[:, 1], z.sigmoid()[:, 0], atol=1e-6)
        again = fv.load(wrapped.save(tmp_path / "one"))
        assert np.array_equal(again.predict_logits(data.test), wrapped.predict_logits(data.test))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: Says(lambda z: {"a": z, "b": z}), "several tensors that could be logits"),
        (lambda: Says(lambda z: {"a": z[:, :, None]}), "no tensor that could be logits"),
        (lambda: Says(lambda z: "cat"), "gives str, in which there are no logits"),
        (lambda: Says(lambda z: z, 5), "one column for each of the classes"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(7, 2)), "cannot be run on images"),
        (lambda: Says(lambda z: z).to("meta"), "no weights yet"),
    ],
)
def test_what_does_not_fit_is_told_at_once(model: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        fv.wrap(model().eval(), NAMES, preprocess=VIEW)


def test_other_classes_than_the_data_has(data: Any, tmp_path: Path) -> None:
    wrapped = fv.wrap(Says(lambda z: z).eval(), ["dog", "owl"], preprocess=VIEW)
    with pytest.raises(fv.FoveateError, match="has the label 'cat'"):
        fv.evaluate(wrapped, data.test)
    with pytest.raises(fv.FoveateError, match="has the label 'cat'"):
        fv.DFR(wrapped, store=tmp_path).fit(data.target)


def test_a_network_that_looks_before_it_decides_is_a_black_box(data: Any) -> None:
    class Moody(Says):
        def forward(self, x: Tensor) -> Any:
            return self.layer(x.mean((2, 3)) if x.mean() > 0 else x.amax((2, 3)))

    found = fv.wrap(Moody(lambda z: z).eval(), NAMES, preprocess=VIEW)
    assert found.abilities.black_box
    assert found.abilities.why
    assert found.look(data.test[0].image[None]).kind == "occlusion"


def test_a_layer_can_be_named(data: Any) -> None:
    net = made(FAMILIES["torchvision ResNet"])
    assert fv.wrap(net, NAMES, preprocess=VIEW, layer="layer2").abilities.maps == "layer2"
    with pytest.raises(ModelError, match="there is no layer 'layer9'"):
        _ = fv.wrap(net, NAMES, preprocess=VIEW, layer="layer9").abilities
    with pytest.raises(ModelError, match="not feature maps that everything passes"):
        _ = fv.wrap(net, NAMES, preprocess=VIEW, layer="layer2.0.conv1").abilities
