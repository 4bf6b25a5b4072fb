"""Clusters of patches: known answers, and the same result whatever the order of images."""

from __future__ import annotations

import pytest
import torch

from foveate.errors import FoveateError
from foveate.look import cluster_patches


def test_well_separated_blobs_are_found() -> None:
    torch.manual_seed(0)
    centres = torch.tensor([[0.0, 0, 0, 0], [9.0, 0, 0, 0], [0.0, 9, 0, 0]])
    truth = torch.arange(30) % 3
    labels = cluster_patches((centres[truth] + 0.3 * torch.randn(30, 4))[None])[0]
    for k in range(3):
        assert len(labels[truth == k].unique()) == 1
    assert len(labels.unique()) == 3


def test_every_image_by_itself() -> None:
    torch.manual_seed(1)
    tokens = torch.randn(4, 20, 6)
    together = cluster_patches(tokens)
    assert all(torch.equal(together[i], cluster_patches(tokens[i : i + 1])[0]) for i in range(4))
    shifted = cluster_patches(tokens + 5.0)
    assert (shifted == together).float().mean() > 0.95, "a shift of all patches changes nothing but rounding"


def test_identical_patches_make_one_cluster() -> None:
    assert cluster_patches(torch.ones(1, 5, 3)).tolist() == [[0] * 5]


def test_more_clusters_than_patches() -> None:
    with pytest.raises(FoveateError, match="4 clusters"):
        cluster_patches(torch.zeros(1, 3, 2), clusters=4)
