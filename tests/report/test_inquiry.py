"""What is asked about a model, and what is made of two answers together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

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


def of_two_lights(n: int = 80) -> Sheet:
    """Flat pictures, every second one dark."""
    pixels = np.where(np.arange(n) % 2, 60, 140)[:, None, None, None] + np.random.default_rng(0).integers(
        -9, 10, (n, 3, 16, 16)
    )
    labels = (np.arange(n) // 2 % 2).astype(np.int64)
    answers = np.arange(n, dtype=np.int64) % 2
    return Sheet(
        torch.from_numpy(pixels.astype(np.uint8)), torch.zeros(n, 16, 16), labels, answers, np.ones(n), np.arange(n)
    )


@pytest.mark.parametrize(("reads", "by"), [("light", "brightness"), ("plate", None)])
def test_a_dark_patch_of_a_dark_picture_is_no_thing_of_its_own(reads: str, by: str | None) -> None:
    sheet = of_two_lights()
    marks = torch.zeros(80, 16, 16, dtype=torch.uint8)
    marks[1::2, 2:12, 2:12] = 1
    sheet.images[1::2, :, 5:9, 5:9] = torch.tensor([250, 0], dtype=torch.uint8).repeat(2)  # a plate in light stripes

    def answers(x: Tensor) -> NDArray[np.int64]:
        stripes = x[:, 0].float().diff(dim=2).abs().amax((1, 2)) > 100
        dark = x.float().mean((1, 2, 3)) < 118
        return (stripes if reads == "plate" else dark).long().numpy()

    def logits(x: Tensor) -> NDArray[np.float32]:
        return np.eye(2, dtype=np.float32)[answers(x)]

    light = np.arange(0, 80, 2)
    pairs = tuple((int(i), int(i + 2) % 80, int(i + 1)) for i in light)
    asked = Inquiry(sheet, {}, logits, lambda scores: scores.argmax(1), marks=marks)
    asked.pulls = [replace(pulled(PUT, 0.8), pairs=pairs)]
    asked._beside(None, [replace(pulled(BY_KEY["brightness"], 0.9), pairs=pairs)])
    found = asked.nesting.explained.get(MARK.key)
    assert (found and found.key) == by


def test_a_window_beside_the_object_brings_nothing_of_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = of_two_lights()
    sheet.masks[:, :, 8:] = 1.0
    asked = Inquiry(sheet, {}, lambda x: np.zeros((len(x), 2), np.float32), lambda scores: scores.argmax(1))
    monkeypatch.setattr(inquiry, "find_marks", lambda *_: {0: (2, 10, 4, 12)})
    asked._search(pulled(BY_KEY["background"], 0.4), [])
    assert asked.marks is not None
    assert torch.equal(torch.nonzero(asked.marks[0].amax(0)).flatten(), torch.arange(4, 8))


@pytest.mark.parametrize(("wide", "searched"), [(0.0, False), (0.2, True)])
def test_marks_are_not_searched_behind_a_pull_that_was_the_cuts(
    wide: float, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = of_two_lights()
    background = BY_KEY["background"]
    found = replace(pulled(background, 0.3), generous=pulled(background, wide))
    asked = Inquiry(sheet, {}, lambda x: np.zeros((len(x), 2), np.float32), lambda scores: scores.argmax(1))
    monkeypatch.setattr(Inquiry, "_pull", lambda self, cue: found if cue is background else None)
    monkeypatch.setattr(Inquiry, "_on_the_object", lambda self: None)
    asks: list[Pull] = []
    monkeypatch.setattr(Inquiry, "_search", lambda self, whole, others: asks.append(whole))
    asked.run()
    assert bool(asks) is searched
