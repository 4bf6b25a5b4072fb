"""Images that pass a network at once: as many as memory holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.preprocess import Preprocess
from foveate.engine.batches import as_memory_allows, batch_that_fits, quickest_batch


def test_a_batch_that_does_not_fit_is_halved_until_it_does_and_stays_in_order() -> None:
    passes: list[int] = []

    def call(x: Tensor) -> Tensor:
        if len(x) > 5:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")
        passes.append(len(x))
        return x * 10

    inputs = torch.arange(23.0)[:, None]
    assert torch.equal(as_memory_allows(call, inputs), inputs * 10)
    assert max(passes) <= 5
    assert sum(passes) == 23


def test_one_image_that_does_not_fit_and_other_errors_are_errors() -> None:
    def full(x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("no")

    def wrong(x: Tensor) -> Tensor:
        raise RuntimeError("shapes do not match")

    with pytest.raises(torch.OutOfMemoryError):
        as_memory_allows(full, torch.zeros(8, 1))
    with pytest.raises(RuntimeError, match="shapes"):
        as_memory_allows(wrong, torch.zeros(8, 1))


def test_less_memory_smaller_batches() -> None:
    sizes = [batch_that_fits(224, 224, free=2**k) for k in range(20, 36)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, quickest_batch())


def test_a_system_answers_alike_when_memory_is_short() -> None:
    def logits(x: Tensor) -> Tensor:
        if len(x) > 3:
            raise torch.OutOfMemoryError("no")
        return torch.stack([x.mean((1, 2, 3)), -x.mean((1, 2, 3))], 1)

    model = fv.wrap(logits, ["light", "dark"], preprocess=Preprocess((32, 32)))
    images = [torch.full((3, 32, 32), value, dtype=torch.uint8) for value in range(0, 250, 25)]
    whole = model.predict_logits(images)
    assert np.allclose(whole, np.concatenate([model.predict_logits([image]) for image in images]))
