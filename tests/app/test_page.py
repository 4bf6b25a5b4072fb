"""The page in a real browser: what is clicked changes what is shown, and what is bad is turned away."""

from __future__ import annotations

import io
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from PIL import Image

import foveate as fv
from foveate.app.state import Session
from foveate.app.views import Change
from foveate.data.benchmark import Benchmark

pytest.importorskip("gradio", reason="the page needs the extra 'app'")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

WAIT = 60_000  # a bound for busy machines; a quiet one needs a second or two


class Served:
    """A page being served, and the folder of the model behind it."""

    def __init__(self, page: Any, address: str, folder: Path):
        self.page, self.address, self.folder = page, address, folder


@pytest.fixture(scope="module")
def served(saved_models: Path, critters: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from foveate.app.page import Page

    folder = shutil.copytree(saved_models / "ifam", tmp_path_factory.mktemp("app") / "ifam")
    models = {"ifam": fv.load(folder), "erm": fv.load(saved_models / "erm")}
    page = Page(Session(models, critters, folders={"ifam": folder}))
    yield Served(page, page.launch(block=False), folder)
    page.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Any]:
    """Opens an address in a new tab; the test fails when a console has an error, or a page calls anyone else.

    Going elsewhere in an old tab cuts off what it is waiting for, which the console reports: hence a new one.
    """
    tabs: list[Any] = []
    errors: list[str] = []
    elsewhere: list[str] = []
    own = ("http://127.0.0.1:", "data:", "blob:", "about:")

    def opened(address: str) -> Any:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        tabs.append(page)
        page.set_default_timeout(WAIT)
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(own) else elsewhere.append(r.url))
        page.goto(address)
        page.wait_for_selector(".fv-prediction")
        return page

    yield opened
    found = list(errors)
    for page in tabs:
        page.close()
    assert found == []
    assert elsewhere == [], "the page must not call anyone else"


@pytest.fixture
def tab(open_tab: Any, served: Served) -> Any:
    return open_tab(served.address)


def expect(locator: Any) -> Any:
    return sync_api.expect(locator)


def find(tab: Any, row: int) -> None:
    tab.locator("#find textarea, #find input").first.fill(str(row))
    tab.keyboard.press("Enter")
    expect(tab.locator("#detail .fv-title")).to_contain_text(f"[{row}]", timeout=WAIT)


def prediction(tab: Any) -> Any:
    return tab.locator('#detail .fv-prediction[data-model="ifam"]')


def test_toggling_a_part_changes_the_prediction_and_survives_a_restart(
    tab: Any, open_tab: Any, served: Served, critters: Benchmark, toggled: int
) -> None:
    session = served.page.session
    find(tab, toggled)
    image, names = session.image("val", toggled), session.class_names
    before = session.show("ifam", image).prediction
    expect(prediction(tab)).to_have_text(before)
    tab.locator("#parts label").nth(0).click()
    (after,) = [name for name in names if name != before]
    expect(prediction(tab)).to_have_text(after, timeout=WAIT)
    worst = session.report("ifam", change=Change((0,))).worst_group
    expect(tab.locator('[data-figure="worst-group"]')).to_have_text(f"{100 * worst:.1f} %", timeout=WAIT)
    tab.locator("#save").click()
    if session.lost("ifam", Change((0,))) is not None:  # then the page asks first
        tab.locator("#sure").click()
    expect(tab.locator("#message .fv-good")).to_contain_text("without part 0", timeout=WAIT)

    again = open_tab(served.address)  # the same server, opened again
    expect(again.locator("#parts input").nth(0)).not_to_be_checked(timeout=WAIT)
    restarted = fv.load(served.folder)  # a restart reads what was written
    assert restarted.dropped_parts_ == (0,)
    from foveate.app.page import Page

    page = Page(Session({"ifam": restarted}, critters, folders={"ifam": served.folder}))
    try:
        fresh = open_tab(page.launch(block=False))
        expect(fresh.locator("#parts input").nth(0)).not_to_be_checked(timeout=WAIT)
        expect(fresh.locator("#parts input").nth(1)).to_be_checked()
        find(fresh, toggled)
        expect(prediction(fresh)).to_have_text(after, timeout=WAIT)
        fresh.close()
    finally:
        page.close()


def test_browsing_by_group_and_error(tab: Any, served: Served) -> None:
    session = served.page.session
    tab.locator("#which label", has_text="errors").click()
    count = len(session.rows("ifam", "val", which="errors", changes={m: session.saved(m) for m in session.models}))
    expect(tab.get_by_text(re.compile(rf"^1–\d+ of {count}$"))).to_be_visible(timeout=WAIT)
    tab.locator("#gallery button.thumbnail-lg, #gallery .thumbnail-item").first.click()
    expect(tab.locator("#detail .fv-row").first.locator(".fv-wrong")).to_be_visible(timeout=WAIT)


def test_a_click_before_the_page_has_loaded_is_kept(
    open_tab: Any, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved by now comes late; what was asked for meanwhile must not be undone by it."""
    session = served.page.session
    now = {"ifam": Change((0, 1)), "erm": Change()}

    def late(model: str) -> Change:
        time.sleep(1.5)
        return now[model]

    monkeypatch.setattr(session, "saved", late)
    tab = open_tab(served.address)
    tab.locator("#which label", has_text="errors").click()
    expect(tab.locator("#parts input").nth(1)).not_to_be_checked(timeout=WAIT)
    count = len(session.rows("ifam", "val", which="errors", changes=now))
    assert 0 < count < len(session.rows("ifam", "val"))
    place = tab.get_by_text(re.compile(rf"^1–\d+ of {count}$"))
    expect(place).to_be_visible(timeout=WAIT)
    tab.wait_for_timeout(500)
    expect(place).to_be_visible()


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def test_bad_uploads_are_turned_away(tab: Any, served: Served) -> None:
    field = tab.locator("input[type=file]").first
    told = tab.locator("#message .fv-bad")
    field.set_input_files({"name": "notes.png", "mimeType": "image/png", "buffer": b"dear diary"})
    expect(told).to_contain_text("not an image of a known format", timeout=WAIT)
    field.set_input_files({"name": "huge.png", "mimeType": "image/png", "buffer": png(10_000, 10_000)})
    expect(told).to_contain_text("100 megapixels", timeout=WAIT)
    tab.locator("#find textarea, #find input").first.fill("../../etc/passwd")
    tab.keyboard.press("Enter")
    expect(told).to_contain_text("no image called '../../etc/passwd'", timeout=WAIT)
    field.set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": png(40, 30)})
    expect(tab.locator("#detail .fv-title")).to_contain_text("mine.png", timeout=WAIT)


@pytest.mark.parametrize(
    "path", ["gradio_api/file=/etc/passwd", "gradio_api/file=../../etc/passwd", "gradio_api/file={model}/system.json"]
)
def test_no_path_reaches_the_disk(served: Served, path: str) -> None:
    base, _, token = served.address.partition("?token=")
    cookie = f"foveate-{urlsplit(base).port}={token}"
    assert urlopen(Request(base, headers={"Cookie": cookie}), timeout=20).status == 200
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(base + path.format(model=served.folder), headers={"Cookie": cookie}), timeout=20)
    assert refused.value.code in (403, 404)


def test_only_what_was_uploaded_is_read(served: Served, tmp_path: Path) -> None:
    """Neither read nor removed: a file elsewhere, named by a forged request."""
    mine = tmp_path / "mine.png"
    mine.write_bytes(png(4, 4))
    for path in (str(mine), "../../etc/passwd"):
        told = served.page._told(served.page.on_upload)(path, {})
        assert list(told) == [served.page.message]
        assert "not uploaded here" in told[served.page.message]
    assert mine.exists()


def test_it_serves_this_machine_alone(served: Served) -> None:
    assert served.address.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_and_nothing_is_wider_than_a_phone(browser: Any, served: Served, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.set_default_timeout(WAIT)
    page.goto(served.address)
    page.wait_for_selector(".fv-prediction")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    contrast = (Path(__file__).parents[1] / "report" / "contrast.js").read_text(encoding="utf-8")
    found = page.evaluate(contrast)
    page.close()
    assert len(found) > 40
    assert [entry for entry in found if entry[0] < 4.5] == []


@pytest.mark.gate  # a canvas in software rendering takes minutes on two cores
def test_painting_asks_the_model(tab: Any) -> None:
    tab.get_by_role("tab", name="Paint a mask").click()
    tab.locator("#ask").click()
    expect(tab.locator("#message .fv-bad")).to_contain_text("nothing is painted", timeout=WAIT)
    canvas = tab.locator("#editor canvas").first
    expect(canvas).to_be_visible(timeout=WAIT)
    tab.wait_for_timeout(700)  # the editor draws its background after it is there
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 70, y + 50, steps=8)
    tab.mouse.up()
    tab.wait_for_timeout(500)
    tab.locator("#ask").click()
    expect(tab.locator("#answer .fv-prediction").first).to_be_visible(timeout=WAIT)
    expect(tab.locator("#answer")).to_contain_text("cannot see the rest")
    expect(tab.locator("#answer")).to_contain_text("mean colour")


def test_the_audit_tab_gives_a_verdict_and_offers_a_cure_where_it_is_needed(
    tab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foveate.app import actions
    from foveate.app.curing import BackgroundJob
    from foveate.report import Level

    class Said:
        verdict = "erm leans on <b>the background</b>."

        def __init__(self, level: Level):
            self.verdicts = {name: type("V", (), {"level": level}) for name in ("ifam", "erm")}

    found = [Said(Level.NONE), Said(Level.FOUND)]
    monkeypatch.setattr(actions, "audit_job", lambda *a: BackgroundJob(lambda say: found.pop(0)))
    monkeypatch.setattr(actions, "cure_job", lambda *a: BackgroundJob(lambda say: say("[9:59 left] trying DFR")))
    monkeypatch.setattr(actions, "shown_cure", lambda *a: '<div class="fv-cure" data-outcome="cured">after</div>')
    tab.get_by_role("tab", name="Audit and cure").click()
    tab.locator("#audit").click()
    expect(tab.locator('#verdict [data-level="none"]')).to_be_visible(timeout=WAIT)
    expect(tab.locator("#cure")).to_be_hidden()
    tab.locator("#audit").click()
    expect(tab.locator('#verdict [data-level="found"]')).to_be_visible(timeout=WAIT)
    expect(tab.locator("#verdict")).to_contain_text("<b>the background</b>")
    tab.locator("#cure").click()
    expect(tab.locator('#cured [data-outcome="cured"]')).to_have_text("after", timeout=WAIT)
