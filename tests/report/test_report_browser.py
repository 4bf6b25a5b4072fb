"""The report in a real browser: it opens from the disk, calls nobody, and can be read everywhere, also on paper."""

from __future__ import annotations

import re
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

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PAPER = {"width": 718, "height": 1000}  # A4 less one centimetre on each side, in CSS pixels


def reads_surroundings(x: Tensor) -> Tensor:
    score = 12 * (x[:, 1, -8:].mean((1, 2)) - x[:, 2, -8:].mean((1, 2)))
    return torch.stack([score, -score], 1)


def reads_the_middle(x: Tensor) -> Tensor:
    return 9 * (x[:, :, 8:24, 8:24].mean((2, 3)) @ torch.tensor([[1.0, -1.0], [-0.4, 0.4], [-0.6, 0.6]]))


def some_models(count: int, images: int) -> fv.report.Audit:
    """With attributes, masks, experiments, probes, slices and mistakes: every section of the page."""
    data = fv.data.critters(train=40, target=16, val=16, test=images, size=32)
    view = Preprocess((32, 32), mean=(0.0,) * 3, std=(1.0,) * 3)
    models = {}
    for i in range(count):
        name, reads = ("surroundings", reads_surroundings) if i % 3 == 0 else ("the middle", reads_the_middle)
        models[f"reads {name}, run {i}"] = fv.wrap(reads, data.test.class_names, preprocess=view, name=name)
    return fv.audit(models, data.test, attribute="habitat", train_counts=[[95, 5], [5, 95]], examples=4)


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
    """Three models on 10 classes of 20 attributes, 200 groups, with long names."""
    rng = np.random.default_rng(0)
    n = 2400
    pixels = rng.integers(0, 255, (n, 8, 8, 3), dtype=np.uint8)
    data = GroupedDataset(
        ArrayImages(pixels, "a/long/path/" + "without_any_place_to_break_it_" * 3), np.arange(n) % 10,
        [f"class-with-a-long-name-{i}" for i in range(10)], attributes=np.arange(n) // 10 % 20,
        attribute_names=[f"surroundings_{i}" for i in range(20)], name="many-" * 12,
    )  # fmt: skip
    chances = {"ERM": (0.97, 0.4), "DAR": (0.9, 0.88), "third": (0.9, 0.7)}
    models = {name: Answers(data, *chance, seed) for seed, (name, chance) in enumerate(chances.items())}
    return fv.audit(models, data, train_counts=np.full((10, 20), 5) + 900 * np.eye(10, 20, dtype=int), examples=3)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "1": some_models(1, 160).save(folder / "one model.html"),
            "2": some_models(2, 100).save(folder / "2.html"),
            "8": some_models(8, 60).save(folder / "8.html"),
            "20": some_models(20, 60).save(folder / "20.html"),
            "200 groups": many_groups().save(folder / "many.html"),
        }


@pytest.fixture(params=["1", "2", "8", "20", "200 groups"])
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


UNFOLD = "document.querySelectorAll('details').forEach(fold => fold.open = true)"


def test_verdict_picture_numbers_and_command_are_on_the_first_screen(opened: Any) -> None:
    for size in (DESKTOP, PHONE):
        opened.set_viewport_size(size)
        assert opened.locator("h1").bounding_box()["y"] < 200
        for what in (".first", ".two dd", ".next"):
            box = opened.locator(what).first.bounding_box()
            assert box["y"] + min(box["height"], 40) < size["height"], what
        pictures = opened.locator(".first img")
        if pictures.count():  # models that only answer, without a map, have none
            box = pictures.first.bounding_box()
            assert box["y"] + box["height"] < size["height"]
            assert len({round(picture.bounding_box()["y"]) for picture in pictures.all()}) == 1, "one row"
        assert opened.locator(".first pre").count() == 1


def test_three_pictures_prove_the_verdict(browser: Any, reports: dict[str, Path]) -> None:
    page = browser.new_page(viewport=DESKTOP)
    page.goto(reports["1"].as_uri())
    words = page.locator("h1").inner_text()
    assert words.startswith("Put a ")
    assert words.endswith((" background and reads surroundings, run 0 says cat.", "run 0 says duck."))
    assert page.locator(".first img").count() == 3
    assert page.locator(".pill").first.inner_text() == "found"
    shares = [float(text.split()[0]) for text in page.locator(".two dd").all_inner_texts()]
    assert shares[0] > shares[1] + 30
    page.close()


def test_one_line_a_model_worst_first(browser: Any, reports: dict[str, Path]) -> None:
    page = browser.new_page(viewport=DESKTOP)
    page.goto(reports["20"].as_uri())
    assert page.locator(".summary tbody tr").count() == page.locator("details.fold.card").count() == 20
    heights = page.evaluate("[...document.querySelectorAll('.summary tbody tr')].map(row => row.offsetHeight)")
    assert max(heights) < 60
    order = ["found", "hint", "cannot tell", "none", "not tested"]
    levels = [order.index(text) for text in page.locator(".summary .pill").all_inner_texts()]
    assert levels == sorted(levels)
    page.close()


def test_with_scripts_tables_sort_rows_filter_and_pictures_grow(browser: Any, reports: dict[str, Path]) -> None:
    page = browser.new_page(viewport=DESKTOP)
    page.goto(reports["20"].as_uri())
    page.locator(".summary th", has_text="Model").first.click()
    names = page.locator(".summary tbody th").all_inner_texts()
    assert names == sorted(names, key=lambda name: (name.split(",")[0], int(name.split()[-1])))
    average = page.locator(".summary thead th", has_text="Average")
    average.click()
    shares = [float(cell.split()[0]) for cell in page.locator(".summary td:nth-child(6)").all_inner_texts()]
    assert shares == sorted(shares)
    page.locator(".folds > input").fill("run 19")
    assert page.locator("details.fold.card:visible").count() == 1
    page.locator(".first img").first.click()
    assert page.locator("dialog img").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog img").is_visible()
    page.close()


def test_without_scripts_everything_is_there(browser: Any, reports: dict[str, Path]) -> None:
    quiet = browser.new_context(java_script_enabled=False, viewport=DESKTOP)
    loud = browser.new_context(viewport=DESKTOP)
    for path in reports.values():
        texts = []
        for context in (quiet, loud):
            page = context.new_page()
            page.goto(path.as_uri())
            texts.append(" ".join((page.locator("main").text_content() or "").split()))
            page.locator("summary").first.click()
            assert page.locator("details > :not(summary)").first.is_visible()
            page.close()
        assert texts[0] == texts[1]
    quiet.close()
    loud.close()


def test_the_file_stays_small(reports: dict[str, Path]) -> None:
    assert max(path.stat().st_size for path in reports.values()) < 5e6


def test_nothing_is_wider_than_a_phone(opened: Any) -> None:
    opened.set_viewport_size(PHONE)
    for change in ("", UNFOLD):
        opened.evaluate(change)
        assert opened.evaluate(TOO_WIDE) == {"over": 0, "which": []}
    sizes = "[...document.querySelectorAll('p, td, th')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(opened.evaluate(sizes)) >= 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_light_and_dark(opened: Any, scheme: str) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.evaluate(UNFOLD)
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


@pytest.mark.parametrize(("size", "most"), [(DESKTOP, 9000), (PHONE, 16000)], ids=["desktop", "phone"])
def test_many_models_do_not_make_a_long_page(browser: Any, reports: dict[str, Path], size: Any, most: int) -> None:
    """The demo's eight models once took 26,000 px, and 51,000 on a phone: what one model says is folded."""
    page = browser.new_page(viewport=size)
    heights = {}
    for name in ("1", "8", "20"):
        page.goto(reports[name].as_uri())
        heights[name] = page.evaluate("document.documentElement.scrollHeight")
    page.close()
    assert max(heights.values()) < most, heights


def test_a_colour_means_one_thing(reports: dict[str, Path]) -> None:
    """Bars are as training, unlike training or neither; models are told apart by their names."""
    tones = {
        name: set(re.findall(r'class="bar t-([\w-]+)"', path.read_text("utf-8"))) for name, path in reports.items()
    }
    assert set().union(*tones.values()) == {"usual", "unusual", "plain"}
    assert tones["8"] <= {"usual", "unusual", "plain"}
    style = reports["8"].read_text("utf-8").split("</style>")[0]
    assert set(re.findall(r"\.t-([\w-]+) \{", style)) == {"usual", "unusual", "plain"}
