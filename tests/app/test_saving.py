"""What the page says before it saves, when it opens, and about an image that is like nothing in training."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate as fv
from foveate.app.novelty import Familiar, appearance
from foveate.app.state import NONE, Session
from foveate.app.views import Change
from foveate.data.benchmark import Benchmark
from foveate.errors import DataError

pytest.importorskip("gradio", reason="the page needs the extra 'app'")


@pytest.fixture
def page(saved_models: Path, critters: Benchmark, tmp_path: Path) -> Any:
    from foveate.app.page import Page

    folder = shutil.copytree(saved_models / "ifam", tmp_path / "ifam")
    models = {"ifam": fv.load(folder), "erm": fv.load(saved_models / "erm")}
    return Page(Session(models, critters, folders={"ifam": folder, "erm": saved_models / "erm"}))


def test_opening_the_page_gives_gradio_an_answer_it_takes(page: Any) -> None:
    """Nothing to tell is not the same as no answer: Gradio wants a value for every output."""
    (load,) = [f for f in page.blocks.fns.values() if getattr(f.fn, "__name__", "") == "on_load"]
    assert page.on_load("ifam", {"split": "val", "row": 0}) == {}
    answer = page._told(page.on_load, clears=False)("ifam", {"split": "val", "row": 0})
    told = asyncio.run(page.blocks.postprocess_data(load, answer, None))
    assert len(told) == len(load.outputs)


def changes_of(page: Any, change: Change) -> dict[str, Change]:
    return {"ifam": change, "erm": Change()}


def test_saving_what_costs_the_worst_group_asks_first(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = page.session
    real = session.report
    worse = {Change(): 0, Change((0,)): -1, Change((1,)): 1}

    def report(model: str, split: str | None = None, change: Change = NONE) -> Any:
        found = real(model, split, Change())
        figures = {**found.figures, "worst_group": 0.5 + 0.1 * worse[change]}
        return type(found)(**{**vars(found), "figures": figures})

    monkeypatch.setattr(session, "report", report)
    saved = fv.load(session.folders["ifam"])
    told = page.on_save("ifam", changes_of(page, Change((0,))))
    assert "worst group on val falls from 50.0 to 40.0 %" in told[page.message]
    assert told[page.sure].visible is True
    assert fv.load(session.folders["ifam"]).dropped_parts_ == saved.dropped_parts_
    told = page.on_sure("ifam", changes_of(page, Change((0,))))
    assert "without part 0" in told[page.message]
    assert told[page.sure].visible is False
    assert fv.load(session.folders["ifam"]).dropped_parts_ == (0,)
    assert "without part 1" in page.on_save("ifam", changes_of(page, Change((1,))))[page.message]


def test_a_model_without_parts_offers_nothing_to_save(page: Any, saved_models: Path, critters: Benchmark) -> None:
    from foveate.app.page import Page

    assert page.saving.visible is True
    assert page.on_model("erm", changes_of(page, Change()))[page.saving].visible is False
    assert page.on_model("ifam", changes_of(page, Change()))[page.saving].visible is True
    alone = Page(Session({"erm": fv.load(saved_models / "erm")}, critters))
    assert alone.saving.visible is False


def test_an_image_like_nothing_in_training_is_said_to_be_so(page: Any, critters: Benchmark) -> None:
    rng = np.random.default_rng(0)
    for strange in (rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), np.zeros((32, 32, 3), np.uint8)):
        told = page.session.unlike_training(strange)
        assert "unlike the training images" in told
    usual = [page.session.unlike_training(critters.test.images.read(i)) for i in range(16)]
    assert sum(told is not None for told in usual) <= 2


def test_the_limit_is_what_is_usual_among_the_images(critters: Benchmark) -> None:
    known = Familiar(critters.train)
    assert len(known) == 48
    vectors = np.stack([appearance(critters.train.images.read(i)) for i in range(48)])
    nearest = [min(np.linalg.norm(vectors[i] - vectors[j]) for j in range(48) if j != i) for i in range(48)]
    assert known.limit == pytest.approx(max(nearest))  # one in a hundred of 48 is none
    assert known.strangeness(critters.train.images.read(3)) == 0
    with pytest.raises(DataError, match="too few"):
        Familiar(critters.train.subset(range(5)))


def test_without_training_images_nothing_is_said(saved_models: Path, critters: Benchmark) -> None:
    data = Benchmark("some", {"val": critters.val})
    session = Session({"erm": fv.load(saved_models / "erm")}, data)
    assert session.unlike_training(np.zeros((8, 8, 3), np.uint8)) is None
