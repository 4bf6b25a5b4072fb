"""Pseudo-groups: read across folds, written for every split, and good for the commands that the report prints."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import foveate as fv
from foveate.cli.main import app
from foveate.data.benchmark import Benchmark
from foveate.data.tables import write_csv
from foveate.report.discovery.probes import Reader
from foveate.report.discovery.pseudo import cross_fitted


def test_an_image_never_teaches_the_probe_that_reads_it() -> None:
    """Answers that follow a cue but for a tenth: the cue comes back, not the answers."""
    rng = np.random.default_rng(3)
    scene = rng.integers(0, 2, 160)
    values = np.concatenate([scene[:, None] + rng.normal(0, 0.2, (160, 10)), rng.normal(size=(160, 150))], 1)
    answers = np.where(rng.random(160) < 0.1, 1 - scene, scene)
    read = cross_fitted(values, answers, 2)
    odd = answers != scene
    assert odd.sum() >= 8
    assert (read == scene).mean() > 0.95
    assert (read == answers)[odd].mean() < 0.2
    assert (Reader.fit(values, answers, 2)(values) == answers)[odd].mean() > 0.8  # what it was before


def test_images_without_an_answer_are_read_too() -> None:
    scene = np.arange(60) % 2
    answers = np.where(np.arange(60) < 3, -2, scene)
    assert (cross_fitted(scene[:, None] + np.zeros((60, 1)), answers, 2) == scene).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Benchmark, erm: fv.ERM) -> Path:
    """Image files without attributes in four splits, and a model of a 95 % biased training set."""
    place = tmp_path_factory.mktemp("groups")
    with_truth = write_csv(data, place / "files")
    rows = list(csv.DictReader(with_truth.open()))
    rows = [row for at, row in enumerate(rows) if row["split"] != "train" or at < 100]
    with open(place / "photos.csv", "w", newline="") as file:
        out = csv.DictWriter(file, ["path", "label", "split", "mask"])
        out.writeheader()
        out.writerows({**{k: row[k] for k in ("label", "split")}, "path": f"files/{row['path']}",
                       "mask": f"files/{row['mask']}"} for row in rows)  # fmt: skip
    erm.save(place / "erm")
    return place


def test_the_printed_commands_run_from_audit_to_better_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    photos = fv.data.from_csv("photos.csv")

    def run(command: str) -> str:
        words = shlex.split(command.replace("MODEL", "erm").replace("DATA", "photos.csv"))
        assert words[0] == "foveate"
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, done.output
        return done.stdout

    make = "foveate audit MODEL DATA --groups-out groups.csv"
    told = json.loads(run(f"{make} --out audit.html --examples 0 --json"))
    steps = {step["step"]: step["command"] for step in told["advice"]}
    assert steps["make groups"] == make
    with open("groups.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["split"] for row in rows} == {"train", "target", "val", "test"}
    assert len(rows) == sum(map(len, photos.splits.values()))
    bench = Path("files/benchmark.csv")
    truth = {Path(r["path"]).name + r["split"]: r["attribute"] for r in csv.DictReader(bench.open())}
    habitats = [truth[Path(row["path"]).name + row["split"]] for row in rows]
    said = [row["attribute"] for row in rows]
    first = {(a, h) for a, h in zip(said, habitats, strict=True)}
    agree = max(
        np.mean([table.get(a) == h for a, h in zip(said, habitats, strict=True)])
        for table in ({a: h, b: g} for a, h in first for b, g in first if a != b and h != g)
    )
    assert agree > 0.85
    model = fv.load("erm")
    run(steps["DAR"])
    told = run("foveate eval mended --data groups.csv")
    before = fv.evaluate(model, fv.data.from_csv("groups.csv").test).worst_group
    after = fv.evaluate(fv.load("mended"), fv.data.from_csv("groups.csv").test).worst_group
    assert "worst" in told
    assert before is not None
    assert after is not None
    assert after > before
