"""The model card says what was measured, what was used, and what is not known."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import foveate as fv
from foveate.cli import app
from foveate.data.benchmark import Benchmark
from foveate.export import model_card
from foveate.export.card import _cell


@pytest.fixture(scope="module")
def data() -> Benchmark:
    return fv.data.critters(train=40, target=16, val=16, test=100, size=32)


@pytest.fixture(scope="module")
def erm(data: Benchmark) -> fv.ERM:
    return fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)


def test_the_groups_are_those_of_the_report(erm: fv.ERM, data: Benchmark) -> None:
    card = model_card(erm, data.test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = fv.evaluate(erm, data.test)
    for row in report.groups:
        assert f"| {row.name} | {row.n} | {100 * row.accuracy:.1f} % |" in card
    assert f"worst group {100 * report.worst_group:.1f} % ({report.worst.name})" in card
    assert "Labels consumed, step by step: train: labels." in card
    assert "None: the model predicts as it was trained" in card
    assert ("points below the average" in card) == (report.average - report.worst_group > 0.1)


def test_without_data_nothing_is_claimed(erm: fv.ERM) -> None:
    card = model_card(erm)
    assert "Not measured" in card
    assert "95 % interval" not in card


def test_without_attributes(erm: fv.ERM, data: Benchmark) -> None:
    plain = fv.data.GroupedDataset(data.test.images, data.test.labels, data.test.class_names, name="plain")
    card = model_card(erm, plain)
    assert "| class | images | accuracy |" in card
    assert "a shortcut cannot show here" in card


def test_names_cannot_break_the_table() -> None:
    assert _cell("a|b<i>*") == "a\\|b\\<i>\\*"


def test_commands(erm: fv.ERM, data: Benchmark, tmp_path: Path) -> None:
    erm.save(tmp_path / "erm")
    run = CliRunner()
    done = run.invoke(app, ["export", str(tmp_path / "erm"), str(tmp_path / "out"), "--format", "torch-export"])
    assert done.exit_code == 0, done.output
    assert "largest logit difference" in done.output
    source = "critters:train=8,target=8,val=8,test=40,size=32"
    done = run.invoke(app, ["card", str(tmp_path / "erm"), source, "--out", str(tmp_path / "card.md")])
    assert done.exit_code == 0, done.output
    assert "## Accuracy by group" in (tmp_path / "card.md").read_text()
