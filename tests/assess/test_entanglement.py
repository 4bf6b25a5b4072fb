"""CEP, CAP and CGP of fitted networks: known answers on networks that read one half only, and the paper's order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
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


class Unblend(nn.Module):
    """Undoes the blend of a doubled image, so that every place reads one row of the image before it was resized.

    Rows 2i - 1 and 2i of the doubled image are 3/4 and 1/4, and 1/4 and 3/4, of rows i - 1 and i: three times the
    second less the first is twice row i, and nothing of row i - 1.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, images: Tensor) -> Tensor:
        above, below = images[:, :, 1:-1:2], images[:, :, 2::2]
        return (3 * below - above).mean(1, keepdim=True).repeat(1, self.dim, 1, 1)


def resized(data: GroupedDataset, size: tuple[int, int]) -> fv.ERM:
    """An ERM that sees ``data`` at another size, without normalisation so that sums stay whole numbers."""
    erm = fv.ERM("micro_resnet", epochs=0, augment=False, progress=False, model_args={"width": 4}).fit(data)
    erm.preprocess_ = dataclasses.replace(erm.preprocess_, size=size, mean=(0.0,) * 3, std=(1.0 / 255,) * 3)
    return erm


def test_a_network_that_reads_the_core_alone_scores_one_when_images_are_resized() -> None:
    # multiples of four: quarters of them are not rounded to other bytes
    pixels = np.random.default_rng(0).integers(0, 64, (24, 16, 8, 3), dtype=np.uint8) * 4
    data = GroupedDataset(ArrayImages(pixels.repeat(2, 2)), np.arange(24) % 2, ["a", "b"])  # 16x16, twice as wide
    erm = resized(data, (32, 16))
    backbone = erm.network_.backbone
    object.__setattr__(backbone.net, "forward_features", Unblend(backbone.map_dim))

    class Core(nn.Module):
        def forward(self, maps: Tensor) -> Tensor:
            return maps[:, :, 7:].mean((2, 3))  # the maps begin with row 1 of the image: from row 8 on

    erm.network_.pool = Core()
    found = fv.entanglement(erm, data, core=half_mask(16, 16), images=24)
    assert found.feature.value == pytest.approx(1.0, abs=1e-6)
    assert found.output.value == pytest.approx(1.0, abs=1e-6)
    assert not found.exact  # the network could tell them apart, but its input has rows of both


@pytest.mark.parametrize(
    ("size", "core", "exact"),
    [((16, 8), "bottom", True), ((32, 8), "bottom", False), ((12, 8), "bottom", False), ((32, 8), "right", True)],
)
def test_a_blended_seam_is_not_called_exact(size: tuple[int, int], core: str, exact: bool) -> None:
    data = stacked()
    erm = resized(data, size)
    assert fv.entanglement(erm, data, core=half_mask(16, 8, core), images=8).exact is exact
    # a mask at another scale means the same place
    other = fv.entanglement(erm, data, core=half_mask(32, 16, core), images=8)
    assert other.exact is exact
    assert other.to_dict() == fv.entanglement(erm, data, core=half_mask(16, 8, core), images=8).to_dict()


def test_resized_swaps_are_those_of_the_images_themselves() -> None:
    """The same as swapping in an image editor first: a dataset of swapped images through the same network."""
    data = stacked(2)  # of two, each is the other's donor
    erm = resized(data, (24, 8))
    net = erm.network_.backbone.net
    object.__setattr__(net, "forward_features", nn.Conv2d(3, erm.network_.backbone.map_dim, 8, 8))
    found = fv.entanglement(erm, data, core=half_mask(16, 8), images=2)
    a, b = (torch.from_numpy(data.images.read(i).copy()).permute(2, 0, 1) for i in (0, 1))
    shares = []
    for own, other in ((a, b), (b, a)):
        core = torch.cat([own[:, :8], other[:, 8:]], 1)
        rest = torch.cat([other[:, :8], own[:, 8:]], 1)
        x, c, s = erm.predict_logits([own, core, rest])
        to_core, to_rest = np.abs(x - c).sum(), np.abs(x - s).sum()
        shares.append(float(to_core / (to_core + to_rest)))
    assert found.output.value == pytest.approx(np.mean(shares), abs=1e-5)


def test_images_of_several_sizes_are_swapped_when_they_are_of_one() -> None:
    small, large = (stacked(6, seed).images for seed in (0, 1))
    pixels = [small.read(i) for i in range(6)] + [large.read(i).repeat(2, 0).repeat(2, 1) for i in range(6)]

    class Mixed(ArrayImages):
        def read(self, i: int) -> NDArray[np.uint8]:
            return pixels[i]

    data = GroupedDataset(Mixed(np.zeros((12, 16, 8, 3), np.uint8)), np.arange(12) % 2, ["a", "b"])
    found = fv.entanglement(resized(data, (16, 8)), data, core=half_mask(16, 8), images=12)
    assert not found.exact
    assert 0 <= found.output.value <= 1


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
