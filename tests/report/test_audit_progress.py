"""An audit on a terminal shows how far it is and how long it will take; elsewhere it is silent."""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.engine.progress import Progress

pty = pytest.importorskip("pty", reason="needs a Unix terminal")
SIDE = 16


@pytest.fixture(scope="module")
def images() -> GroupedDataset:
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    pixels = rng.integers(60, 120, (80, SIDE, SIDE, 3), dtype=np.uint8)
    pixels[:, 5:11, 5:11, 0] = np.where(labels, 240, 20)[:, None, None]
    masks = np.zeros((80, SIDE, SIDE), np.uint8)
    masks[:, 5:11, 5:11] = 255
    return GroupedDataset(ArrayImages(pixels), labels, ["blue", "red"], masks=ArrayImages(masks), name="toy")


def model() -> fv.Wrapped:
    def logits(x: Tensor) -> Tensor:
        score = 9 * (x[:, 0, 6:10, 6:10].mean((1, 2)) - 0.5)
        return torch.stack([-score, score], 1)

    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    return fv.wrap(logits, ["blue", "red"], preprocess=view, name="M")


def test_a_terminal_shows_share_speed_and_time_left(images: GroupedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    said: list[bytes] = []

    def listen() -> None:  # a terminal that nobody reads would stop the writer
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                return
            if not part:
                return
            said.append(part)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        fv.audit({"M": model()}, images, examples=0, show_progress=True)
        monkeypatch.undo()
    listener.join(timeout=5)
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(said).decode("utf-8", "replace"))
    assert "audit" in text
    assert re.search(r"\d+ %", text)
    assert re.search(r"[\d,]+/s", text)
    assert re.search(r"(\d:\d\d:\d\d|-:--:--)", text)
    stages = ("M: predicting", "looking at the images", "M: experiments", "M: where it looks")
    assert any(stage in text for stage in stages)  # the bar is drawn ten times a second and may skip some


def test_the_work_is_foreseen(images: GroupedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time left is right only if the amount of work was."""
    bars: list[Progress] = []

    class Kept(Progress):
        def __init__(self, *given: Any, **more: Any):
            super().__init__(*given, **more)
            bars.append(self)

    monkeypatch.setattr(sys.modules["foveate.report.answers"], "Progress", Kept)
    fv.audit({"M": model()}, images, examples=0, show_progress=True)
    fv.audit({"M": model()}, images, examples=0, show_progress=True, discover=False)
    for bar in bars:
        assert 0.9 * bar.total <= bar.done <= bar.total


def test_nothing_is_written_elsewhere(images: GroupedDataset, capfd: pytest.CaptureFixture[str]) -> None:
    fv.audit({"M": model()}, images.subset(np.arange(40)), examples=0, show_progress=True, discover=False)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
