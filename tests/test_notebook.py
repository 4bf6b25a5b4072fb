"""Results show themselves: short in a terminal, as a table or picture in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import foveate as fv
from foveate import notebook
from foveate.engine import Progress

VOID = {"img", "br", "progress"}


class Balanced(HTMLParser):
    """Tags that open and close as they should, and the text between them."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    data = fv.data.critters(train=60, target=16, val=16, test=80, size=32)
    erm = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    report = fv.evaluate(erm, data.test)
    audit = fv.audit({"<b>ERM": erm}, data.test, attribute="habitat", examples=1)
    gaze = erm.look([data.test[i].image for i in range(3)])
    return {"data": data, "erm": erm, "report": report, "audit": audit, "gaze": gaze}


@pytest.mark.parametrize("name", ["data", "erm", "report", "audit", "gaze"])
def test_it_is_short_and_has_a_page(shown: dict[str, Any], name: str) -> None:
    thing = shown[name]
    assert len(repr(thing)) < 300
    assert "\n" not in repr(thing)
    Balanced(thing._repr_html_())


def test_the_audit_says_its_verdict(shown: dict[str, Any]) -> None:
    page = Balanced(shown["audit"]._repr_html_())
    assert shown["audit"].findings.models[0].verdict.plain in page.words
    assert "<b>ERM" in page.words, "a name is text, never a tag"
    assert repr(shown["audit"]).startswith("Audit(<b>ERM: ")


def test_the_report_shows_every_group(shown: dict[str, Any]) -> None:
    page = Balanced(shown["report"]._repr_html_())
    assert all(row.name in page.words for row in shown["report"].groups)
    figure = shown["report"].plot()
    assert len(figure.axes[0].patches) == len(shown["report"].groups)


def test_the_benchmark_counts_its_groups(shown: dict[str, Any]) -> None:
    page = Balanced(shown["data"]._repr_html_())
    assert all(name in page.words for name in shown["data"].train.group_names)
    assert str(int(shown["data"].train.group_counts.max())) in page.words


def test_plots_are_figures(shown: dict[str, Any], tmp_path: Path) -> None:
    images = torch.stack([shown["data"].test[i].image for i in range(3)])
    figures = {
        "gaze": shown["gaze"].plot(images, ["a"]),
        "data": shown["data"].plot(each=2),
        "audit": shown["audit"].plot(),
    }
    for name, figure in figures.items():
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_a_system_that_learned_nothing_says_so() -> None:
    assert "not fitted" in Balanced(fv.DAR()._repr_html_()).words


def test_only_names_of_foveate_are_listed() -> None:
    assert not {"Any", "importlib", "annotations", "_FOLDERS"} & set(dir(fv))
    assert {"ERM", "audit", "data", "__version__"} <= set(dir(fv))


def test_a_bar_in_a_notebook_is_one_place_that_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(notebook, "here", lambda: True)
    monkeypatch.setattr(
        notebook.PageBar, "_write", lambda self, line: (written.append(line), setattr(self, "_place", 1))
    )
    with Progress("training", total=4) as bar:
        for _ in range(4):
            bar.advance(1, loss=0.5)
    assert "100 %" in written[-2]
    assert "loss 0.500" in written[-2]
    assert written[-1] == ""
    assert len(written) <= 4, "not one line a step"
    silent: list[str] = []
    monkeypatch.setattr(notebook.PageBar, "_write", lambda self, line: silent.append(line))
    with Progress("training", total=2, shown=False) as bar:
        bar.advance(2)
    assert silent == []
