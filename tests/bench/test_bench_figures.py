"""The pictures of a study: drawn from the chosen trials' saved models, found by the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps need the extra [bench]")

import foveate as fv
from foveate.bench.figures import Drawer, minority_images
from foveate.bench.page import results_page
from foveate.bench.records import Record, Records, read_csv
from foveate.bench.spec import read_spec
from foveate.bench.trial import Bench, Cell, hash_file
from foveate.cli.bench import bench_app
from foveate.errors import FoveateError

SPEC = """
name: tiny
datasets:
  critters: {options: {train: 80, target: 16, val: 16, test: 16, size: 32}, core: masks}
network: {backbone: micro_resnet, model_args: {layers: [1, 1], width: 8, stem_stride: 2}}
training: {epochs: 1, batch_size: 16}
seeds: [3]
select: average
methods:
  base: {system: ERM}
  DFR: {system: DFR, settings: {refits: 1}}
  DAR: {system: DAR, settings: {epochs: 1}, grid: {lr: [1e-6, 3e-3]}}
  DAR on spurious: {system: DAR, settings: {epochs: 1, learn: attribute}}
  DAR 1 head: {system: DAR, settings: {epochs: 1, heads: 1}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec that was run."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.yaml").write_text(SPEC, encoding="utf-8")
    words = ["run", str(folder / "tiny.yaml"), "--workers", "0", "--runs", str(folder / "runs")]
    # in two goes: the export has the records of both
    for part in (["--method", "base"], ["--export", str(folder / "records" / "tiny.csv"), "--method", "DAR"], []):
        done = CliRunner().invoke(bench_app, [*words, *part], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    return folder


def drawer(place: Path, **more: Any) -> Drawer:
    spec = read_spec(place / "tiny.yaml")
    rows = Records(place / "runs" / "records.db").all("tiny")
    return Drawer(Bench(spec, place / "runs"), rows, **{"dataset": "critters", "seed": 3, "say": str, **more})


@pytest.mark.parametrize("where", ["", "tiny.yaml/below.csv"])
def test_an_export_that_cannot_be_written_is_told_before_anything_runs(where: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SPEC, encoding="utf-8")
    words = ["run", str(tmp_path / "tiny.yaml"), "--workers", "0", "--runs", str(tmp_path / "runs")]
    with pytest.raises(FoveateError, match=r"is a folder|cannot write"):
        CliRunner().invoke(bench_app, [*words, "--export", str(tmp_path / where)], catch_exceptions=False)
    assert not (tmp_path / "runs").exists()


def test_an_export_has_all_that_was_run(place: Path) -> None:
    rows = read_csv(place / "records" / "tiny.csv")
    assert [r.method for r in rows] == ["DAR", "DAR", "base"]


def test_the_command_draws_and_the_page_finds(place: Path) -> None:
    docs = place / "docs"
    words = ["figures", str(place / "tiny.yaml"), "--dataset", "critters", "--seed", "3", "--runs", str(place / "runs")]
    done = CliRunner().invoke(bench_app, [*words, "-o", str(docs / "figures")], catch_exceptions=False)
    drawn = sorted(p.name for p in (docs / "figures").iterdir())
    assert drawn == [f"tiny-critters-{what}.png" for what in ("ablation", "cep", "gradcam", "queries")]
    assert done.output.count("wrote ") == 4
    text = results_page([place / "tiny.yaml"], place / "records", docs / "results.md")
    places = [text.index(f"](figures/tiny-critters-{what}.png)") for what in ("cep", "gradcam", "queries", "ablation")]
    assert places == sorted(places)


def test_models_are_those_that_validation_chose(place: Path) -> None:
    found = drawer(place)
    models = found.models()
    assert list(models) == ["ERM", "DFR", "DAR", "DAR on spurious"]
    mine = [r for r in found.records if r.method == "DAR"]
    assert [r.point["lr"] for r in mine] == [1e-6, 3e-3]
    for best, other in (mine, mine[::-1]):
        best.score, other.score = 0.9, 0.1
        model = found.models()["DAR"]
        assert model.training.lr == best.point["lr"]
        assert hash_file(found.bench.folder(Cell(*best.cell), best.key) / "weights.safetensors") == best.weights
    # CEP in the picture is CEP in the records
    (erm,) = [r for r in found.records if r.method == "base"]
    assert found.entanglement(models["ERM"]).output.value == pytest.approx(erm.metrics["cep_output"], abs=1e-4)


def test_bars_have_every_seed_of_variants_with_the_same_task(place: Path) -> None:
    rows = [
        Record("tiny", "d", "critters", method, seed, {"lr": lr}, score=score, metrics={"average": value})
        for method, seed, lr, score, value in [
            ("DAR", 3, 1, 0.5, 0.7), ("DAR", 3, 2, 0.4, 0.9), ("DAR", 4, 1, 0.5, 0.6), ("DAR 1 head", 3, 1, 0.5, 0.5),
            ("DAR on spurious", 3, 1, 0.5, 0.1), ("DFR", 3, 1, 0.5, 0.2),
        ]
    ]  # fmt: skip
    found = Drawer(Bench(read_spec(place / "tiny.yaml"), place), rows, "critters", 3, str)
    assert found.variants() == {"DAR": pytest.approx([70.0, 60.0]), "DAR 1 head": pytest.approx([50.0])}
    assert list(found.draw()) == ["ablation"]


def test_minority_images_are_of_minority_groups() -> None:
    data = fv.data.critters(train=80, target=0, val=0, test=40, size=32)
    some = minority_images(data.train, data.test)
    assert len(some) == len(set(some)) == 4
    counts = data.train.group_counts
    few = np.flatnonzero(counts < counts.max() / 2)
    assert set(data.test.groups[some]) <= set(few)


def test_what_cannot_be_drawn_is_said(place: Path, tmp_path: Path) -> None:
    told: list[str] = []
    spec = read_spec(place / "tiny.yaml")
    empty = Drawer(Bench(spec, tmp_path), [], "critters", 3, told.append)
    with pytest.raises(FoveateError, match="nothing to draw for critters, seed 3"):
        empty.save(tmp_path)
    assert told[0] == "no saved model of critters/base/3: left out of the pictures"
    with pytest.raises(FoveateError, match="Did you mean 'critters'"):
        drawer(place, dataset="criters")
    with pytest.raises(FoveateError, match="not run with seed 5, but with 3"):
        drawer(place, seed=5)
    with pytest.raises(FoveateError, match="no method 'DARR' on critters"):
        drawer(place).models(["DARR"])
    assert set(drawer(place).draw(["DFR"])) == {"cep", "gradcam", "ablation"}
