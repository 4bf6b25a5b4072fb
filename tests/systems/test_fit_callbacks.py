"""``fit(callbacks=…)``: systems with epochs hand callbacks down to the loop, and keep what there is when stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import foveate as fv
from foveate.engine import EpochEnd, StopTraining

SMALL = {"layers": [1, 1], "width": 8, "stem_stride": 2}


def test_systems_with_epochs_hand_them_down(tmp_path: Path) -> None:
    data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    shared = {"epochs": 3, "batch_size": 16, "progress": False}
    base = fv.ERM("micro_resnet", model_args=SMALL, **shared)
    vit = {"model_args": {"depth": 2, "embed_dim": 24}, **shared}
    there = {"store": str(tmp_path), **shared}
    heard: list[EpochEnd] = []

    def watch(end: EpochEnd) -> None:
        heard.append(end)
        if end.epoch == 2:
            raise StopTraining

    base.fit(data.train, val=data.val, callbacks=[watch])
    systems = [
        fv.DAR(base, **there),
        fv.DFR(base, variant="two-layer", **there),
        fv.PDiscoFormer("micro_vit", parts=2, **vit),
        fv.EarlyMask("micro_vit", **vit),
    ]
    for system in systems:
        system.fit(data.train, data.target, data.val, callbacks=[watch])
        assert len(system.history_.epochs) == 2, system
    assert [end.epoch for end in heard] == [1, 2] * 5
    assert all(end.score is not None and end.epochs == 3 for end in heard)
    with pytest.raises(ZeroDivisionError):
        base.fit(data.train, callbacks=[lambda end: print(1 // 0)])
