"""CEP, CAP and CGP of fitted networks: known answers on networks that read one half only, and the paper's order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.errors import DataError
from foveate.measure import half_mask
from foveate.report import cep_histograms, gradcam_panels, query_maps, save_figure


def stacked(n: int = 40, seed: int = 0) -> GroupedDataset:
    """Random halves on top of each other, 16x8 pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 16, 8, 3), dtype=np.uint8)
    return GroupedDataset(ArrayImages(pixels), np.arange(n) % 2, ["a", "b"])


class Half(nn.Module):
    """A head that reads the pooled features of one half of a 2x1 map only."""

    def __init__(self, row: int):
        super().__init__()
        self.row = row

    def forward(self, maps: Tensor) -> Tensor:
        return maps[:, :, self.row :: 2].mean((2, 3))


@pytest.mark.parametrize(("row", "expected"), [(1, 1.0), (0, 0.0)])
def test_a_network_that_reads_one_half(row: int, expected: float) -> None:
    data = stacked()
    erm = fv.ERM("micro_resnet", epochs=0, augment=False, progress=False, model_args={"width": 4}).fit(data)
    backbone = erm.network_.backbone
    # every place sees its own half alone
    object.__setattr__(backbone.net, "forward_features", nn.Conv2d(3, backbone.map_dim, 8, 8))
    erm.network_.pool = Half(row)
    found = fv.entanglement(erm, data, core=half_mask(16, 8), images=40)
    assert found.exact
    assert found.output.value == pytest.approx(expected, abs=1e-6)
    assert found.feature.value == pytest.approx(expected, abs=1e-6)
    places = found.pixel.values
    assert places[:, 0].nanmean() == pytest.approx(0.0, abs=1e-6)
    assert places[:, 1].nanmean() == pytest.approx(1.0, abs=1e-6)
    assert 0.3 < found.map.value < 0.7


def test_swapping_the_roles_gives_the_complement() -> None:
    data = stacked()
    erm = fv.ERM("micro_resnet", epochs=0, progress=False, model_args={"width": 4}).fit(data)
    bottom = fv.entanglement(erm, data, core=half_mask(16, 8), images=20)
    top = fv.entanglement(erm, data, core=1 - half_mask(16, 8), images=20)
    for level in ("map", "pixel", "feature", "output", "cap"):
        assert getattr(bottom, level).value == pytest.approx(1 - getattr(top, level).value, abs=1e-5), level


def test_dar_reads_more_core_than_erm(data: Benchmark, erm: fv.ERM, store: Path, tmp_path: Path) -> None:
    dar = fv.DAR(erm, store=str(store), heads=4, epochs=40, progress=False).fit(data.target, val=data.val)
    spurious = fv.DAR(erm, store=str(store), heads=4, epochs=40, learn="attribute", progress=False).fit(data.target)
    found = {
        name: fv.entanglement(system, data.test, images=100)
        for name, system in (("ERM", erm), ("DAR", dar), ("DAR on spurious", spurious))
    }
    assert not found["ERM"].exact
    assert found["DAR"].output.value > found["ERM"].output.value
    assert found["DAR"].output.value > found["DAR on spurious"].output.value
    # the maps are the same: the backbone is frozen
    assert found["DAR"].map.value == pytest.approx(found["ERM"].map.value, abs=1e-9)
    for name, figure in {
        "cep": cep_histograms(found),
        "cam": gradcam_panels({"ERM": erm, "DAR": dar}, data.test, [0, 1]),
        "queries": query_maps(dar, data.test, [0, 1]),
    }.items():
        assert save_figure(figure, tmp_path / f"{name}.png").stat().st_size > 5000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cam.png", "cep.png", "queries.png"]


def test_no_masks_is_said(erm: fv.ERM, data: Benchmark) -> None:
    plain = GroupedDataset(data.test.images, data.test.labels, data.test.class_names)
    with pytest.raises(DataError, match="has no masks"):
        fv.entanglement(erm, plain)
    assert torch.is_tensor(half_mask(4, 4))
