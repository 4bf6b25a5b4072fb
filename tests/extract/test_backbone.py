"""Backbones by name: every family gives maps and features that belong together, and mistakes are explained."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.extract import Backbone, BackboneSpec, create_backbone, freeze, list_backbones
from foveate.extract.backbone import default_preprocess, native_size, read_state

SWIN = {"img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1)}
VIT = {"embed_dim": 24, "depth": 2, "num_heads": 2}
CNNS = [
    ("resnet18", {}, 512, 2),
    ("efficientnet_b0", {}, 1280, 2),
    ("densenet121", {}, 1024, 2),
    ("convnext_atto", {}, 320, 2),
    ("swin_tiny_patch4_window7_224", SWIN, 192, 2),
    ("micro_resnet", {"width": 4}, 32, 8),
]
VITS = [
    ("vit_tiny_patch16_224", VIT, 4, 1),
    ("deit_tiny_patch16_224", VIT, 4, 1),
    ("deit_tiny_distilled_patch16_224", VIT, 4, 2),
    ("vit_small_patch14_reg4_dinov2", VIT, 4, 5),
    ("micro_vit", {}, 8, 1),
]


def build(name: str, size: int = 64, **args: object) -> Backbone:
    torch.manual_seed(0)
    return create_backbone(name, image_size=(size, size), **args).eval()  # type: ignore[arg-type]


def images(size: int = 64) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


# -- families -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "args", "dim", "grid"), CNNS, ids=[c[0] for c in CNNS])
@torch.no_grad()
def test_cnn_maps_pooled_are_the_features(name, args, dim, grid):
    net, x = build(name, **args), images()
    maps, features = net.maps(x), net(x)
    assert maps.shape == (2, net.map_dim, grid, grid)
    assert features.shape == (2, net.dim) == (2, dim)
    torch.testing.assert_close(net.pooled(maps), features)
    assert not net.is_vit
    assert not torch.allclose(maps[0], maps[1])  # two images, two answers


@torch.no_grad()
def test_pooling_of_a_resnet_is_the_mean_over_places():
    net, x = build("micro_resnet", width=4), images()
    torch.testing.assert_close(net(x), net.maps(x).mean((2, 3)))


@pytest.mark.parametrize(("name", "args", "grid", "prefix"), VITS, ids=[v[0] for v in VITS])
@torch.no_grad()
def test_vit_maps_are_the_patch_tokens_in_place(name, args, grid, prefix):
    size = 56 if "patch14" in name else 64
    net, x = build(name, size, **args), images(size)
    maps = net.maps(x)
    assert maps.shape == (2, net.dim, grid, grid)
    assert (net.is_vit, net.prefix_tokens) == (True, prefix)
    tokens = net.net.forward_features(x)
    assert torch.equal(maps[:, :, 1, 2], tokens[:, prefix + grid + 2])  # row 1, column 2
    if "distilled" not in name:  # which averages its two class tokens
        torch.testing.assert_close(net(x), tokens[:, 0])
    with pytest.raises(ModelError, match="not part of its maps"):
        net.pooled(maps)


def test_oblong_images_keep_rows_and_columns_apart():
    net = create_backbone("vit_tiny_patch16_224", image_size=(32, 64), **VIT).eval()
    assert net.maps(torch.zeros(1, 3, 32, 64)).shape == (1, 24, 2, 4)
    assert build("micro_resnet", width=4).maps(torch.zeros(1, 3, 32, 64)).shape == (1, 32, 4, 8)


def test_a_head_wider_than_the_maps():
    net = build("mobilenetv3_small_050")
    assert (net.map_dim, net.dim) == (288, 1024)
    with torch.no_grad():
        torch.testing.assert_close(net.pooled(net.maps(images())), net(images()))


@pytest.mark.parametrize(
    ("name", "plain", "kept"), [("resnet18", 2, 8), ("densenet121", 2, 8), ("efficientnet_b0", 2, 4)]
)
def test_small_stem_keeps_the_resolution(name, plain, kept):
    with torch.no_grad():
        assert build(name).maps(images()).shape[-1] == plain
        net = build(name, small_stem=True)
        assert net.maps(images()).shape[-1] == kept
        torch.testing.assert_close(net.pooled(net.maps(images())), net(images()))
    assert net.spec.small_stem


def test_small_stem_of_a_vit_is_refused():
    with pytest.raises(ModelError, match="small_stem is for CNNs"):
        build("vit_tiny_patch16_224", small_stem=True, **VIT)


def test_image_size_reaches_every_family_built_for_a_size():
    small = {k: v for k, v in SWIN.items() if k != "img_size"}
    assert build("swin_tiny_patch4_window7_224", **small).maps(images()).shape[-2:] == (2, 2)


def test_a_family_without_maps_says_so():
    with pytest.raises(ModelError, match="use a CNN or a plain ViT"):
        build("mixer_s32_224").maps(images())


@torch.no_grad()
def test_maps_from_disk_can_be_pooled_by_a_fresh_backbone():
    made, fresh = build("swin_tiny_patch4_window7_224", **SWIN), build("swin_tiny_patch4_window7_224", **SWIN)
    torch.testing.assert_close(fresh.pooled(made.maps(images())), made(images()))


def test_micro_resnet_with_fewer_stages():
    assert build("micro_resnet", width=4, layers=(1, 1, 1)).maps(images()).shape == (2, 16, 16, 16)


# -- names ----------------------------------------------------------------------------------


def test_unknown_names_are_explained():
    with pytest.raises(ModelError, match=r"unknown weights 'resnet18\.nope'\. Known: resnet18\.a1_in1k"):
        native_size("resnet18.nope")
    with pytest.raises(ModelError, match=r"unknown model 'resnet81'\. Did you mean 'resnet18'\?"):
        create_backbone("resnet81")
    with pytest.raises(ModelError, match=r"cannot build 'resnet18'.*colour"):
        create_backbone("resnet18", colour="blue")
    assert "resnet18" in list_backbones("resnet*")
    assert {"micro_resnet", "micro_vit"} <= set(list_backbones("micro_*"))
    assert list_backbones("no such thing") == []


def test_spec_round_trip_builds_the_same_shapes():
    net = create_backbone("micro_resnet", image_size=(32, 32), width=4)
    spec = BackboneSpec.from_dict(net.spec.to_dict())
    assert spec == net.spec
    again = create_backbone(spec)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in net.state_dict().items()}


def test_default_preprocess_is_what_the_model_was_trained_with():
    view = default_preprocess(build("micro_resnet", width=4), (48, 32))
    assert view.size == (48, 32)
    assert view.mean == (0.485, 0.456, 0.406)


# -- hashes and freezing --------------------------------------------------------------------


def test_weights_hash_sees_every_weight_and_buffer():
    net = build("micro_resnet", width=4)
    assert net.weights_hash() == build("micro_resnet", width=4).weights_hash()
    seen = {net.weights_hash()}
    for name, tensor in net.state_dict().items():
        before = tensor.clone()
        tensor.reshape(-1)[-1] += 1
        seen.add(net.weights_hash())
        tensor.copy_(before)
        assert len(seen) > 1, name
    assert len(seen) == len(net.state_dict()) + 1


def test_freeze_stops_gradients_and_statistics():
    net = freeze(build("micro_resnet", width=4).train())
    before = net.weights_hash()
    assert not net(images()).requires_grad
    assert net.weights_hash() == before
    net.train()(images())  # the test can fail: training mode does move the statistics
    assert net.weights_hash() != before


# -- checkpoints ----------------------------------------------------------------------------


def saved(net: nn.Module, path: Path, **extra: Tensor) -> Path:
    state = {**net.state_dict(), **extra}
    if path.suffix == ".safetensors":
        save_file(state, str(path))
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_checkpoint_round_trip_ignores_a_classifier(tmp_path, suffix):
    made = build("micro_resnet", width=4)
    head = {"fc.weight": torch.zeros(10, 32), "fc.bias": torch.zeros(10)}
    path = saved(made.net, tmp_path / f"net{suffix}", **head)
    torch.manual_seed(5)
    loaded = create_backbone("micro_resnet", image_size=(64, 64), width=4, checkpoint=path)
    assert loaded.weights_hash() == made.weights_hash()


@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_wrapped_state_dicts(tmp_path, wrapper):
    made = build("micro_resnet", width=4)
    torch.save({wrapper: made.net.state_dict(), "epoch": 3}, tmp_path / "a.pth")
    loaded = create_backbone("micro_resnet", width=4, checkpoint=tmp_path / "a.pth")
    assert loaded.weights_hash() == made.weights_hash()


@pytest.mark.parametrize("other", [{"width": 8}, {"width": 4, "layers": (2, 1, 1, 1)}])
def test_checkpoint_of_another_architecture(tmp_path, other):
    path = saved(build("micro_resnet", **other).net, tmp_path / "a.safetensors")
    with pytest.raises(ModelError, match="another architecture than 'micro_resnet'"):
        create_backbone("micro_resnet", width=4, checkpoint=path)
    with pytest.raises(ModelError, match=r"another architecture than 'micro_vit'.*missing"):
        create_backbone("micro_vit", checkpoint=path)


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("plain", [True, False])
def test_pickled_code_is_refused_and_not_run(tmp_path, plain):
    mark, path = tmp_path / "ran", tmp_path / "a.pth"
    if plain:
        path.write_bytes(pickle.dumps({"conv1.weight": Bomb(mark)}))
    else:
        torch.save({"conv1.weight": Bomb(mark)}, path)
    with pytest.raises(ModelError, match="never does"):
        create_backbone("micro_resnet", width=4, checkpoint=path)
    assert not mark.exists()


def test_files_that_are_no_checkpoints(tmp_path):
    with pytest.raises(ModelError, match="there is no checkpoint file"):
        read_state(tmp_path / "missing.pth")
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        read_state(tmp_path / "a.safetensors")
    torch.save([1, 2, 3], tmp_path / "list.pth")
    with pytest.raises(ModelError, match="does not hold a state dict"):
        read_state(tmp_path / "list.pth")
    torch.save({"a": 1}, tmp_path / "numbers.pth")
    with pytest.raises(ModelError, match="does not hold a state dict"):
        read_state(tmp_path / "numbers.pth")


def test_pretrained_without_weights_on_this_machine_says_what_to_do(monkeypatch):
    import timm

    def offline(*args: object, **kwargs: object) -> None:
        raise OSError("no route to the hub")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(ModelError, match=r"no route to the hub.*weights="):
        create_backbone("resnet18", pretrained=True)
