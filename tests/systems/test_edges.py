"""What a user can do slightly wrong, or slightly differently, and must not be punished for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import foveate as fv
from foveate.data import ArrayImages, Benchmark, GroupedDataset
from foveate.errors import FoveateError, ModelError, StorageError, UnreadableImage
from foveate.extract import create_backbone
from foveate.systems.dfr import unfreeze_last_convolution

SMALL = {"model_args": {"width": 12, "layers": [1, 1, 1], "stem_stride": 2}, "progress": False}


def reversed_classes(ds: GroupedDataset) -> GroupedDataset:
    return ds.with_labels(ds.num_classes - 1 - ds.labels, ds.class_names[::-1])


def test_classes_in_another_order_are_matched_by_name(data: Benchmark, erm: fv.ERM, store: Path) -> None:
    assert fv.evaluate(erm, reversed_classes(data.test)).average == fv.evaluate(erm, data.test).average
    for kind, options in ((fv.DFR, {}), (fv.DAR, {"heads": 4, "epochs": 2})):
        plain = kind(erm, store=str(store), progress=False, **options).fit(data.target, val=data.val)
        other = kind(erm, store=str(store), progress=False, **options)
        other.fit(reversed_classes(data.target), val=reversed_classes(data.val))
        assert (other.predict(data.test) == plain.predict(data.test)).all()
    one = fv.ERM("micro_resnet", epochs=1, **SMALL).fit(data.train.subset(range(64)), val=data.val)
    two = fv.ERM("micro_resnet", epochs=1, **SMALL).fit(data.train.subset(range(64)), val=reversed_classes(data.val))
    assert one.history_.best_score == two.history_.best_score


def test_settings_survive_saving(data: Benchmark, erm: fv.ERM, store: Path, tmp_path: Path) -> None:
    """Also those that equal the general default but not the system's own."""
    dar = fv.DAR(erm, store=str(store), heads=4, epochs=10, optimizer="adam", progress=False).fit(data.target)
    again = fv.load(dar.save(tmp_path / "dar"))
    assert again.training == dar.training
    assert again.training.epochs == 10
    # a folder of this machine means nothing on another: where features are kept is not part of a model
    gone = {"base", "store"}
    assert {k: v for k, v in again.get_params(deep=False).items() if k not in gone} == {
        k: v for k, v in dar.get_params(deep=False).items() if k not in gone
    }
    assert again.store is None


def test_labels_the_base_consumed_are_told(data: Benchmark, store: Path, tmp_path: Path) -> None:
    robust = fv.GroupDRO("micro_resnet", epochs=1, select="worst_group", **SMALL).fit(
        data.train.subset(range(64)), val=data.val
    )
    dar = fv.DAR(robust, store=str(store), heads=4, epochs=1, progress=False).fit(data.target)
    assert "base (labels, groups; selection: group labels (worst_group))" in dar.supervision()
    assert fv.load(dar.save(tmp_path / "dar")).supervision() == dar.supervision()


def test_saving_never_deletes_what_is_not_a_model(erm: fv.ERM, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match="is not a saved model"):
        erm.save(tmp_path)
    with pytest.raises(StorageError, match="is not a saved model"):
        erm.save(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    erm.save(tmp_path / "model")
    erm.save(tmp_path / "model")  # over another model is fine


def test_a_checkpoint_of_another_method_is_refused(data: Benchmark, tmp_path: Path) -> None:
    some = data.train.subset(range(64))
    file = str(tmp_path / "run.ckpt")
    fv.ERM("micro_resnet", epochs=1, checkpoint=file, **SMALL).fit(some)
    with pytest.raises(ModelError, match="another method"):
        fv.CVaRDRO("micro_resnet", epochs=1, checkpoint=file, **SMALL).fit(some)
    with pytest.raises(ModelError, match=r"another method \(changed: augment\)"):
        fv.ERM("micro_resnet", epochs=1, checkpoint=file, augment=False, **SMALL).fit(some)


def test_a_killed_fit_goes_on(data: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three epochs, a crash, the same command again: bit-identical to the run that was not disturbed."""
    some = data.train.subset(range(128))
    options = {"epochs": 3, "seed": 5, **SMALL}
    whole = fv.GroupDRO("micro_resnet", **options).fit(some, val=data.val)

    def crash(self: fv.GroupDRO, *_: object) -> object:
        def stop(epoch: int, model: torch.nn.Module) -> None:
            if epoch == 3:
                raise KeyboardInterrupt

        return stop

    file = str(tmp_path / "run.ckpt")
    with monkeypatch.context() as patched:
        patched.setattr(fv.GroupDRO, "_after_epoch", crash)
        with pytest.raises(KeyboardInterrupt):
            fv.GroupDRO("micro_resnet", checkpoint=file, **options).fit(some, val=data.val)
    resumed = fv.GroupDRO("micro_resnet", checkpoint=file, **options).fit(some, val=data.val)
    for a, b in zip(whole.network_.state_dict().values(), resumed.network_.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_unreadable_images_pass_through_every_stage(data: Benchmark, erm: fv.ERM, tmp_path: Path) -> None:
    class OneBad(ArrayImages):
        def read(self, i: int) -> np.ndarray:
            if i == 3:
                raise UnreadableImage("photos/broken.png", "truncated")
            return super().read(i)

    def broken(ds: GroupedDataset, n: int) -> GroupedDataset:
        pixels = np.stack([ds.images.read(i) for i in range(n)])
        return GroupedDataset(
            OneBad(pixels), ds.labels[:n], ds.class_names,
            attributes=ds.attributes[:n], attribute_names=ds.attribute_names,
        )  # fmt: skip

    target, train = broken(data.target, 40), broken(data.train, 64)
    for kind, options in (
        (fv.DFR, {}),
        (fv.DFR, {"variant": "gradient", "epochs": 2}),
        (fv.DAR, {"heads": 4, "epochs": 2}),
    ):
        system = kind(erm, store=str(tmp_path), on_bad="skip", progress=False, **options).fit(target)
        assert np.isfinite(system.predict_logits(data.test.subset(range(4)))).all()
        with pytest.raises(UnreadableImage, match=r"broken\.png"):
            kind(erm, store=str(tmp_path), progress=False, **options).fit(target)
    jtt = fv.JTT("micro_resnet", epochs=1, on_bad="skip", **SMALL).fit(train)
    assert 3 not in jtt.errors_
    cnc = fv.CnC("micro_resnet", epochs=1, samples=4, on_bad="skip", **SMALL).fit(train)
    assert cnc.fitted


@pytest.mark.parametrize(("name", "place"), [("resnet10t", "layer4.0.conv2"), ("resnet50", "layer4.2.conv3"),
                         ("efficientnet_b0", "conv_head"), ("densenet121", None)])  # fmt: skip
def test_the_last_convolution_is_the_last_one(name: str, place: str | None) -> None:
    backbone = create_backbone(name)
    backbone.requires_grad_(False)
    chosen = unfreeze_last_convolution(backbone)
    names = {id(m): n for n, m in backbone.net.named_modules()}
    if place is not None:
        assert names[id(chosen)] == place
    assert sum(p.requires_grad for p in backbone.parameters()) == 1


@pytest.mark.parametrize("backbone", ["efficientnet_b0", "densenet121"])
def test_post_hoc_on_other_families(backbone: str, data: Benchmark, store: Path) -> None:
    base = fv.ERM(backbone, small_stem=True, epochs=1, batch_size=8, progress=False).fit(data.train.subset(range(16)))
    before = {k: v.clone() for k, v in base.network_.backbone.state_dict().items()}
    some = data.target.subset(np.r_[0:12])
    dar = fv.DAR(base, store=str(store), epochs=1, progress=False).fit(some)
    assert all(torch.equal(v, before[k]) for k, v in dar.network_.backbone.state_dict().items())
    conv = fv.DFR(base, variant="conv", store=str(store), epochs=1, progress=False).fit(some)
    moved = [k for k, v in conv.network_.backbone.state_dict().items() if not torch.equal(v, before[k])]
    assert len(moved) == 1, moved
    assert dar.look([data.test[0].image]).map.ndim == 3


@pytest.mark.bf16
def test_mixed_precision_trains(data: Benchmark) -> None:
    some = data.train.subset(range(64))
    mixed = fv.ERM("micro_resnet", epochs=2, precision="bf16-mixed", **SMALL).fit(some)
    plain = fv.ERM("micro_resnet", epochs=2, **SMALL).fit(some)
    assert mixed.history_.losses != plain.history_.losses
    assert np.allclose(mixed.history_.losses, plain.history_.losses, atol=0.1)
    assert next(mixed.network_.parameters()).dtype == torch.float32


class Products(TorchDispatchMode):
    """Notes in which type the products of matrices that gradients flow through are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_grad_enabled() and "addmm" in str(function):
            self.seen.add(args[0].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.bf16
@pytest.mark.parametrize("system", ["ERM", "PDiscoFormer", "IFAM", "CnC"])
def test_the_precision_reaches_every_method_of_a_network(data: Benchmark, system: str) -> None:
    """Not only its ``forward``: PDiscoFormer and iFAM call ``loss``, CnC ``embed``."""
    vit = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 8}
    model = getattr(fv, system)("micro_vit", model_args=vit, epochs=1, precision="bf16-mixed", progress=False)
    with Products() as products:
        model.fit(data.train.subset(range(64)))
    assert products.seen == {torch.bfloat16}
    assert np.isfinite(model.history_.losses).all()


def test_what_does_not_fit_the_machine_is_said(data: Benchmark) -> None:
    with pytest.raises(FoveateError, match="precision do not fit"):
        fv.ERM("micro_resnet", precision="17-bit", **SMALL).fit(data.train.subset(range(8)))
    with pytest.raises(ModelError, match="has not been fitted"):
        fv.ERM().look([data.test[0].image])
    with pytest.raises(FoveateError, match="two anchors"):
        fv.CnC("micro_resnet", samples=1, epochs=1, **SMALL).fit(data.train.subset(range(32)))
    with pytest.raises(FoveateError, match="a number or 'auto'"):
        fv.GroupDRO(adjustment="some").check()


def test_a_last_batch_of_one_image_is_left_out(data: Benchmark) -> None:
    model = fv.ERM("resnet10t", epochs=1, batch_size=8, progress=False).fit(data.train.subset(range(17)))
    assert len(model.history_.losses) == 2


def test_adjustment_of_a_group_without_validation_images_is_zero(
    data: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foveate.decide import GroupDROLoss

    given: list[torch.Tensor] = []
    original = GroupDROLoss.set_adjustment
    monkeypatch.setattr(
        GroupDROLoss, "set_adjustment", lambda self, c: given.append(torch.as_tensor(c)) or original(self, c)
    )
    lacking = data.val.subset(data.val.groups != 1)
    fv.GroupDRO("micro_resnet", adjustment="auto", epochs=1, **SMALL).fit(data.train, val=lacking)
    assert given[-1].shape == (4,)
    assert given[-1][1] == 0
    assert (given[-1][[0, 2]] != 0).all()
