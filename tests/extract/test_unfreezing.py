"""What of a network is trained: the names of its last stage, and that nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.errors import FoveateError, ModelError
from foveate.extract import create_backbone
from foveate.extract.unfreezing import last_stage, unfreeze

FEW: dict[str, Any] = {"train": 16, "target": 0, "val": 8, "test": 8, "size": 32}


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("resnet18", ("layer4",), ("conv1", "bn1", "layer1", "layer2", "layer3")),
        ("mobilenetv2_100", ("blocks.6", "conv_head", "bn2"), ("conv_stem", "bn1", *(f"blocks.{i}" for i in range(6)))),
        (
            "vit_tiny_patch16_224",
            ("blocks.11", "norm"),
            ("cls_token", "pos_embed", "patch_embed", "blocks.0", "blocks.10"),
        ),
        ("convnext_atto", ("stages.3", "head"), ("stem", "stages.0", "stages.2")),
        ("micro_vit", ("blocks.5", "norm"), ("patch_embed", "blocks.4")),
    ],
)
def test_the_last_stage_of_known_networks(name: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    backbone = create_backbone(name)
    names = [n for n, _ in backbone.named_parameters()]
    learns = last_stage(backbone)
    for part, wanted in [*((p, True) for p in inside), *((p, False) for p in outside)]:
        mine = {n for n in names if n.startswith((f"net.{part}.", f"net.{part}")) and _whole(n, part)}
        assert mine, f"{name} has no {part}"
        assert (mine <= learns) if wanted else not (mine & learns), (part, sorted(mine & learns))
    unfreeze(backbone, "last-stage")
    assert {n for n, p in backbone.named_parameters() if p.requires_grad} == learns


def _whole(name: str, part: str) -> bool:
    return name == f"net.{part}" or name.startswith(f"net.{part}.")


def test_all_and_none() -> None:
    backbone = create_backbone("micro_resnet")
    assert all(p.requires_grad for p in unfreeze(backbone, "all").parameters())
    assert not any(p.requires_grad for p in unfreeze(backbone, "none").parameters())
    with pytest.raises(ModelError, match="one of all, last-stage, none; found 'head'"):
        unfreeze(backbone, "head")  # type: ignore[arg-type]


def test_a_network_without_stages_says_so() -> None:
    backbone = create_backbone("micro_resnet")
    backbone.net.feature_info = []
    with pytest.raises(ModelError, match="does not tell the stages"):
        last_stage(backbone)


@pytest.mark.parametrize("what", ["last-stage", "none", "all"])
def test_training_moves_what_is_unfrozen_and_nothing_else(what: str) -> None:
    """Weights *and* the statistics of the normalisation."""
    data = fv.data.critters(**FEW)
    plain = fv.ERM("micro_resnet", epochs=0, progress=False).fit(data.train)
    told = fv.ERM("micro_resnet", epochs=2, unfreeze=what, lr=0.01, progress=False).fit(data.train)  # type: ignore[arg-type]
    before, after = (dict(s.network_.backbone.net.state_dict()) for s in (plain, told))
    moved = {n for n, value in before.items() if not _same(value, after[n])}
    last = {n for n in before if n.startswith("layer4.")}
    assert (moved == set()) if what == "none" else bool(moved & last)
    assert (moved - last == set()) == (what != "all")
    assert any("running_mean" in n for n in moved) == (what != "none")
    assert not torch.equal(plain.network_.head.weight, told.network_.head.weight)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a, b))


def test_a_slower_backbone_goes_with_a_frozen_one() -> None:
    data = fv.data.critters(**FEW)
    for what in ("last-stage", "none"):
        found = fv.ERM("micro_resnet", epochs=1, unfreeze=what, backbone_scale=0.1, progress=False).fit(data.train)
        assert found.predict_proba(data.test).shape == (8, 2)


def test_wrong_words_and_parts_are_refused() -> None:
    with pytest.raises(FoveateError, match="unfreeze is one of all, last-stage, none; found 'head'"):
        fv.ERM("micro_resnet", unfreeze="head").check()  # type: ignore[arg-type]
    with pytest.raises(FoveateError, match="tune says what"):
        fv.IFAM(unfreeze="none").check()
