"""A module given straight to ``fv.audit`` or ``fv.evaluate`` is wrapped, and what was assumed of it is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import foveate as fv
from foveate.assemble.wrapping.given import WrappedWarning, as_system
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.errors import DataError, ModelError


@pytest.fixture(scope="module")
def images() -> GroupedDataset:
    """Red or blue squares, red first in the alphabet of the outputs below but not in the classes."""
    labels = np.arange(20) % 2
    pixels = np.zeros((20, 16, 16, 3), np.uint8)
    pixels[labels == 0, ..., 2] = 200
    pixels[labels == 1, ..., 0] = 200
    return GroupedDataset(ArrayImages(pixels), labels, ["blue", "red"], name="squares")


def reddish(outputs: int = 2) -> nn.Module:
    """A network that says ``red`` (its second output) by the first channel."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, outputs))
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.zero_()
        net[2].weight[1, 0], net[2].weight[0, 2] = 1.0, 1.0
    return net


def test_a_module_is_evaluated_and_what_was_assumed_is_said(images: GroupedDataset) -> None:
    with pytest.warns(WrappedWarning, match=r"taken for blue, red \(in the order of the dataset\).*fv\.wrap"):
        report = fv.evaluate(reddish(), images)
    assert report.average == 1.0


def test_the_names_a_module_carries_come_first(images: GroupedDataset) -> None:
    net = reddish()
    net.class_names = ["red", "blue"]  # the other way round: always wrong
    with pytest.warns(WrappedWarning, match="as the model names them"):
        assert fv.evaluate(net, images).average == 0.0


def test_a_module_is_audited(images: GroupedDataset) -> None:
    with pytest.warns(WrappedWarning, match="224 x 224"):
        found = fv.audit({"mine": reddish()}, images, discover=False)
    assert found.findings.models[0].name == "mine"


def test_systems_and_strangers_are_left_alone(images: GroupedDataset, recwarn: pytest.WarningsRecorder) -> None:
    wrapped = fv.wrap(reddish(), ["blue", "red"])
    assert as_system(wrapped, images) is wrapped
    assert not [w for w in recwarn.list if issubclass(w.category, WrappedWarning)]
    with pytest.raises(DataError, match=r"no predict_proba; .* from elsewhere as fv\.wrap"):
        fv.audit({"f": len}, images)


def test_a_module_with_other_outputs_is_refused(images: GroupedDataset) -> None:
    with pytest.raises(ModelError):
        fv.evaluate(reddish(3), images)
