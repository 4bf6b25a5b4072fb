"""The report in a real browser: it opens from the disk, calls nobody, and can be read everywhere, also on paper."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PAPER = {"width": 718, "height": 1000}  # A4 less one centimetre on each side, in CSS pixels


def reads_surroundings(x: Tensor) -> Tensor:
    score = 12 * (x[:, 1, -8:].mean((1, 2)) - x[:, 2, -8:].mean((1, 2)))
    return torch.stack([score, -score], 1)


def one_model() -> fv.report.Audit:
    """With attributes, masks, experiments, probes, slices and mistakes: every section of the page."""
    data = fv.data.critters(train=40, target=16, val=16, test=160, size=32)
    view = Preprocess((32, 32), mean=(0.0,) * 3, std=(1.0,) * 3)
    model = fv.wrap(reads_surroundings, data.test.class_names, preprocess=view, name="reads surroundings")
    return fv.audit(
        {"reads surroundings": model}, data.test, attribute="habitat", train_counts=[[95, 5], [5, 95]], examples=4
    )


class Answers:
    """Right with a chance that depends on whether the attribute is the label's; looks nowhere."""

    needs = "train: labels, and a very long remark on what else was consumed for choosing the epoch"

    def __init__(self, data: GroupedDataset, usual: float, unusual: float, seed: int):
        rng = np.random.default_rng(seed)
        self.class_names_ = list(data.class_names)
        right = rng.random(len(data)) < np.where(data.attributes == data.labels, usual, unusual)
        self.answers = np.where(right, data.labels, (data.labels + 1) % data.num_classes)

    def predict_proba(self, data: GroupedDataset) -> np.ndarray:
        return np.eye(len(self.class_names_))[self.answers]


def many_groups() -> fv.report.Audit:
    """Three models on 10 classes of 10 attributes, with long names."""
    rng = np.random.default_rng(0)
    n = 1200
    pixels = rng.integers(0, 255, (n, 8, 8, 3), dtype=np.uint8)
    data = GroupedDataset(
        ArrayImages(pixels, "a/long/path/" + "without_any_place_to_break_it_" * 3), np.arange(n) % 10,
        [f"class-with-a-long-name-{i}" for i in range(10)], attributes=np.arange(n) // 10 % 10,
        attribute_names=[f"surroundings_{i}" for i in range(10)], name="many-" * 12,
    )  # fmt: skip
    chances = {"ERM": (0.97, 0.4), "DAR": (0.9, 0.88), "third": (0.9, 0.7)}
    models = {name: Answers(data, *chance, seed) for seed, (name, chance) in enumerate(chances.items())}
    return fv.audit(models, data, train_counts=np.full((10, 10), 5) + 900 * np.eye(10, dtype=int), examples=3)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "one": one_model().save(folder / "one model.html"),
            "many": many_groups().save(folder / "many.html"),
        }


@pytest.fixture(params=["one", "many"])
def opened(request: pytest.FixtureRequest, browser: Any, reports: dict[str, Path]) -> Iterator[Any]:
    """The report opened from the disk; the test fails when it complains or asks for anything else."""
    path = reports[request.param]
    page = browser.new_page(viewport=DESKTOP)
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda line: errors.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith("data:") else asked.append(r.url))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert errors == []
    assert asked == [path.as_uri()]


TOO_WIDE = """() => {
  const wide = document.documentElement.clientWidth;
  const inside = e => e && (getComputedStyle(e).overflowX === 'auto' || inside(e.parentElement));
  const out = [...document.body.querySelectorAll('*')].filter(
    e => e.getClientRects().length && e.getBoundingClientRect().right > wide + 1 && !inside(e));
  return {over: document.documentElement.scrollWidth - wide, which: out.slice(0, 5).map(e => e.outerHTML.slice(0, 90))};
}"""

CONTRASTS = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")

CUT = """() => [...document.body.querySelectorAll('*')].filter(e => {
  const s = getComputedStyle(e), svg = e.closest('svg');
  return !svg && s.display !== 'inline' && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)
    && [s.overflowX, s.overflowY].some(o => o !== 'visible');
}).map(e => e.outerHTML.slice(0, 90))"""


def test_the_verdict_comes_first(opened: Any) -> None:
    for size in (DESKTOP, PHONE):
        opened.set_viewport_size(size)
        assert opened.locator("h2").first.inner_text() == "Verdict"
        card = opened.locator("main > :not(.eyebrow, h1, h2)").first
        assert "verdict" in (card.get_attribute("class") or "").split()
        box = card.locator(".first").bounding_box()
        assert box["y"] + min(box["height"], 120) < size["height"], "one has to scroll to see the verdict"
        assert "lean" in card.locator(".first").inner_text()
        assert card.locator(".pill").is_visible()


def test_nothing_is_wider_than_a_phone(opened: Any) -> None:
    opened.set_viewport_size(PHONE)
    found = opened.evaluate(TOO_WIDE)
    assert found == {"over": 0, "which": []}
    sizes = "[...document.querySelectorAll('p, td, th')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(opened.evaluate(sizes)) >= 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_light_and_dark(opened: Any, scheme: str) -> None:
    opened.emulate_media(color_scheme=scheme)
    page = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(v) for v in page[4:-1].split(",")) < 300) == (scheme == "dark")
    found = opened.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [entry for entry in found if entry[0] < 4.5] == []


def test_paper_cuts_nothing(opened: Any) -> None:
    opened.emulate_media(media="print", color_scheme="dark")  # paper is light whatever the screen is
    opened.set_viewport_size(PAPER)
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.evaluate(TOO_WIDE) == {"over": 0, "which": []}
    assert opened.evaluate(CUT) == []
    hidden = "[...document.querySelectorAll('details > :not(summary)')].filter(e => !e.checkVisibility()).length"
    assert opened.evaluate(hidden) == 0
    assert [entry for entry in opened.evaluate(CONTRASTS) if entry[0] < 4.5] == []
    assert opened.pdf(format="A4").startswith(b"%PDF")
