"""CLIP towers by name, with a tiny random model from a configuration file."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import foveate as fv
from foveate.errors import MissingExtra, ModelError
from foveate.extract import Backbone, BackboneSpec, create_backbone, freeze, open_backbone
from foveate.extract.clip import import_open_clip, open_clip_model, parse_name

open_clip = pytest.importorskip("open_clip")

TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a tiny CLIP model with weights in a file."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("clip")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    save_file(dict(open_clip.CLIP(**TINY).state_dict()), str(folder / "tiny.safetensors"))
    return f"open_clip:{folder}/tiny.json@{folder}/tiny.safetensors"


def original(tiny: str) -> Any:
    model = open_clip.CLIP(**TINY)
    open_clip.load_checkpoint(model, tiny.partition("@")[2])
    return model.eval()


def test_embeddings_are_those_of_open_clip(tiny: str) -> None:
    clip, model = open_clip_model(tiny), original(tiny)
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(clip.visual(x), model.encode_image(x))
        tokens = open_clip.SimpleTokenizer(context_length=16)(["a cat", "two dogs on a sofa"])
        torch.testing.assert_close(clip.encode_text(["a cat", "two dogs on a sofa"]), model.encode_text(tokens))
    assert clip.visual.dim == 24
    assert tuple(clip.visual.maps(x).shape) == (3, 64, 4, 4)
    assert clip.scale == pytest.approx(float(model.logit_scale.detach().exp()))
    assert clip.preprocess.mean == pytest.approx(open_clip.OPENAI_DATASET_MEAN)


def test_the_class_token_projected_is_the_embedding(tiny: str) -> None:
    visual = open_clip_model(tiny).visual
    x = torch.randn(2, 3, 32, 32)
    tokens = visual.net.tokens(x)  # type: ignore[operator,union-attr]
    torch.testing.assert_close(visual.net.project(tokens)[:, 0], visual(x))  # type: ignore[operator,union-attr]


def test_attention_can_be_tapped_and_open_backbone_finds_it(tiny: str) -> None:
    backbone, view = open_backbone(tiny, 48)
    assert view.size == (48, 48)
    gaze = fv.look.cls_attention(backbone.net, torch.randn(2, 3, 48, 48))
    assert tuple(gaze.map.shape) == (2, 6, 6)


def test_a_tower_is_built_again_from_its_spec(tiny: str) -> None:
    visual = open_clip_model(tiny).visual
    spec = BackboneSpec.from_dict(json.loads(json.dumps(visual.spec.to_dict())))
    again = freeze(create_backbone(spec))
    again.load_state_dict(visual.state_dict())
    assert isinstance(again, Backbone)
    assert again.weights_hash() == visual.weights_hash()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(x), visual(x))
    assert not any("token_embedding" in name for name in visual.state_dict()), "the text tower is not saved with it"


def test_names() -> None:
    assert parse_name("open_clip:ViT-B-32/openai") == ("ViT-B-32", "openai", None)
    assert parse_name("open_clip:ViT-B-32@a/b.pt") == ("ViT-B-32", None, "a/b.pt")
    assert parse_name("open_clip:ViT-B-32") == ("ViT-B-32", None, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vit", "named 'open_clip:ARCH/TAG'"),
        ("open_clip:ViT-B-3/openai", "Did you mean 'ViT-B-32'"),
        ("open_clip:ViT-B-32/opanai", "Did you mean 'openai'"),
        ("open_clip:ViT-B-32", "names no weights"),
        ("open_clip:missing.json@x.safetensors", "not a readable CLIP configuration"),
    ],
)
def test_bad_names_get_a_sentence(name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        open_clip_model(name)


def test_bad_files_get_a_sentence(tiny: str, tmp_path: Path) -> None:
    config = tiny.partition("@")[0]
    with pytest.raises(ModelError, match="no checkpoint file"):
        open_clip_model(f"{config}@{tmp_path}/none.safetensors")
    save_file({"x": torch.zeros(1)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(ModelError, match="does not hold weights"):
        open_clip_model(f"{config}@{tmp_path}/other.safetensors")


def test_weights_that_are_not_here_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: Any, **kwargs: Any) -> str:
        raise OSError("Name or service not known")

    monkeypatch.setattr(open_clip, "download_pretrained", no_network)
    with pytest.raises(ModelError, match=r"not on this machine.*'open_clip:ViT-B-32@FILE.safetensors'"):
        open_clip_model("open_clip:ViT-B-32/openai")


def test_without_open_clip_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "open_clip":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"foveate\[clip\]"):
        import_open_clip()
