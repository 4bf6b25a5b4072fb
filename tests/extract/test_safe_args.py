"""What a file may ask of a network: shapes, and nothing that names another file or runs code."""

from __future__ import annotations

import pytest

from foveate.errors import ModelError
from foveate.extract import BackboneSpec, create_backbone
from foveate.extract.safe_args import check_args


@pytest.mark.parametrize(
    "args",
    [
        {"checkpoint_path": "evil.pth"}, {"pretrained": True}, {"pretrained_cfg": {"file": "evil.pth"}},
        {"pretrained_cfg_overlay": {"url": "x"}, "depth": 2}, {"cache_dir": "x"}, {"features_only": True},
        {"act_layer": "os.system"}, {"norm_layer": "a/b"}, {"embed_dim": float("nan")}, {"embed_dim": 1e9},
        {"embed_dim": 16000, "depth": 16000}, {"width": 16000, "layers": [9] * 60}, {"embed_dim": {"a": 1}},
        {"config": {"embed_dim": 8, "vision_cfg": {"timm_model_name": "../x"}}},
        {"config": {"embed_dim": 8, "vision_cfg": {}, "text_cfg": {"hf_model_name": "evil"}}}, {"config": 3},
    ],
)  # fmt: skip
def test_what_does_more_than_shape_is_refused(args: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        check_args(args)
    with pytest.raises(ModelError):
        BackboneSpec.from_dict({"name": "micro_vit", "args": args})


@pytest.mark.parametrize("name", ["hf-hub:evil/model", "local-dir:/tmp", "../evil", "", 3, None])
def test_a_name_is_one_of_timm(name: object) -> None:
    with pytest.raises(ModelError):
        create_backbone(BackboneSpec.from_dict({"name": name}))


@pytest.mark.parametrize("size", [[0, 5], [5], "64", [1e9, 3], [True, True], [-1, 4], {"a": 1}])
def test_image_sizes_are_two_numbers(size: object) -> None:
    with pytest.raises(ModelError, match="two sides"):
        BackboneSpec.from_dict({"name": "micro_vit", "image_size": size})


def test_a_spec_survives_its_file() -> None:
    spec = BackboneSpec("micro_vit", (32, 32), args={"embed_dim": 24, "depth": 1, "num_heads": 3})
    assert BackboneSpec.from_dict(spec.to_dict()) == spec
