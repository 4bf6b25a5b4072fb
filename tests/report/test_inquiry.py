"""What is asked about a model, and what is made of two answers together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foveate.report.discovery import inquiry
from foveate.report.discovery.cues import BY_KEY, Cue
from foveate.report.discovery.experiments import Pull, Sheet
from foveate.report.discovery.inquiry import Inquiry
from foveate.report.discovery.marks import MARK, PUT


def pulled(cue: Cue, value: float) -> Pull:
    return Pull(cue, 100, value, value - 0.05, value + 0.05, 1e-6, 1.0, 1.0 - value, pairs=((0, 1, 2),) * 80)


@pytest.mark.parametrize(
    ("mark", "sharpness", "held", "by"),
    [
        (0.20, 0.40, 0.5, "sharpness"),  # a window that pulls half as much as the sharpness is a sharp bit of it
        (0.45, 0.40, 0.5, None),  # letters pull about as much as the sharpness they lend the picture, or more
        (0.20, None, 0.5, None),
        (0.20, None, 0.1, "background"),  # a bit of the scene: the background pulls the same without it
        (0.20, None, 0.2, None),  # beside a scene that turns answers by itself
    ],
)
def test_a_window_is_a_mark_or_a_bit_of_something_larger(
    mark: float, sharpness: float | None, held: float, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 80
    images = torch.zeros(n, 3, 16, 16, dtype=torch.uint8)
    zeros = np.zeros(n, dtype=np.int64)
    sheet = Sheet(images, torch.zeros(n, 16, 16), zeros, zeros, np.ones(n), np.arange(n))
    whole = pulled(BY_KEY["background"], 0.4)
    others = [whole, *([] if sharpness is None else [pulled(BY_KEY["sharpness"], sharpness)])]
    asked = Inquiry(sheet, {}, lambda x: np.zeros((len(x), 2), np.float32), lambda x: zeros[: len(x)])
    monkeypatch.setattr(inquiry, "find_marks", lambda *_: {})
    monkeypatch.setattr(inquiry, "measure_pull", lambda *_, **__: pulled(PUT, mark))
    left = iter([mark, 0.4, 0.4 * (1 - held), *[0.4, 0.4] * 5])  # of the mark, of the background, of it without marks
    monkeypatch.setattr(inquiry, "pull_of_pairs", lambda *_: next(left))
    asked._search(whole, others)
    found = asked.nesting.explained.get(MARK.key)
    assert (found and found.key) == by
    assert asked.nesting.holds[MARK.key] == pytest.approx(held)
