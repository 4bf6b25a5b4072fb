"""Command lines of the pages about studies, data, verifying and the page, as they stand there, at a test's size."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.cli.conftest import Call
from tests.cli.documented import ROOT, block, shrunk, walk

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.sources import SOURCES

NETWORK = {"width": 8, "layers": [1, 1, 1], "stem_stride": 2}
VIT = {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 4}
IN_THIS_PROCESS = {"bench run": "bench run --workers 0"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def animals() -> Benchmark:
    return fv.data.critters(size=32, train=120, target=0, val=48, test=24)


def write_table(data: Benchmark, name: str) -> None:
    """``data`` as a table here, its images in a folder beside."""
    fv.data.write_csv(data, "images")
    with Path("images/benchmark.csv").open() as file:
        rows = [row | {k: f"images/{row[k]}" for k in ("path", "mask") if row.get(k)} for row in csv.DictReader(file)]
    write_rows(Path(name), rows)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# -- verify, app, data --------------------------------------------------------------------


def test_the_lines_on_verifying(call: Call, animals: Benchmark) -> None:
    write_table(animals, "my-data.csv")
    small: dict[str, Any] = {"model_args": VIT, "progress": False}
    fv.IFAM("micro_vit", parts=4, epochs=2, **small).fit(animals.train, val=animals.val).save("runs/ifam")
    fv.LateMask("micro_vit", epochs=1, **small).fit(animals.train).save("runs/late")
    fv.ERM("micro_resnet", epochs=1, progress=False, model_args=NETWORK).fit(animals.train).save("runs/erm")
    ran = walk("docs/verify.md", call, {})
    assert [step.words[0] for step in ran] == ["verify", "intervene", "intervene"]
    verified, dropped, chosen = (" ".join(step.out.split()) for step in ran)
    assert "ifam: the patches its mask hides do not reach the logits" in verified
    assert "late: the patches its mask hides change the logits" in verified
    assert "erm: the pixels outside the true masks change the logits" in verified
    assert "parts removed: 3 (of 4)" in dropped
    assert "foreground mIoU" in dropped
    assert fv.load("runs/ifam-without-3").dropped_parts_ == (3,)  # type: ignore[attr-defined]
    assert "worst_group on val" in chosen
    assert "without part 0:" in chosen
    assert "selection: group labels (average, parts removed by worst_group)" in chosen


def test_the_lines_on_the_page(call: Call, animals: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but serving, which does not end by itself."""
    pytest.importorskip("gradio", reason="the page needs the extra 'app'")
    from foveate.app.page import Page

    fv.data.write_csv(animals, "DATA")
    for name in ("MODEL", "MODEL2"):
        fv.ERM("micro_resnet", epochs=1, progress=False, model_args=NETWORK).fit(animals.train).save(name)
    shown: list[tuple[list[str], dict[str, Any]]] = []

    def launch(page: Page, **options: Any) -> None:
        shown.append((list(page.session.models), options))
        page.close()

    monkeypatch.setattr(Page, "launch", launch)
    ran = walk("docs/app.md", call, {})
    assert [step.words for step in ran] == [["app", "MODEL", "DATA"], ["app", "MODEL", "MODEL2", "DATA"]]
    assert [models for models, _ in shown] == [["MODEL"], ["MODEL", "MODEL2"]]
    assert all((o["host"], o["share"], o["browser"]) == ("127.0.0.1", False, False) for _, o in shown)


def write_cut_outs(data: Benchmark, folder: Path, each: int = 40) -> None:
    """Objects with masks and scenes, described by two tables, as the page on data wants them."""
    for name in ("foregrounds", "masks", "backgrounds"):
        (folder / name).mkdir(parents=True)
    objects, scenes = [], []
    for i in range(2 * each):
        sample, split = data.train[i], "test" if i >= each else "train"
        Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(folder / "foregrounds" / f"{i}.jpg")
        Image.fromarray((sample.mask.numpy() > 0).astype("uint8") * 255).save(folder / "masks" / f"{i}.png")
        objects.append({"name": i, "species": data.train.class_names[sample.label], "split": split})
        kind = ("forest", "sea")[i % 2]
        colour = ((20, 100 + i, 20), (20, 60 + i, 200))[i % 2]
        Image.new("RGB", (64, 48), colour).save(folder / "backgrounds" / f"{i}.jpg")
        scenes.append({"name": i, "scene": kind, "split": split})
    write_rows(folder / "foregrounds.csv", objects)
    write_rows(folder / "backgrounds.csv", scenes)


DOWNLOADS = {
    f"foveate data prepare {name}": "fetches files that are compared with known sums: nothing small passes for them"
    for name in ("dominoes", "cmnist")
}


def test_the_lines_on_data(call: Call) -> None:
    data = fv.data.critters(size=32, train=400, target=0, val=0, test=24, strength=0.9)
    write_table(data, "mine.csv")
    write_cut_outs(data, Path("PETS"))
    base = ("--backbone", "micro_resnet", "--epochs", "1", "--out", "erm")
    assert call("fit", "mine.csv", "--val-share", "0.2", *base)[0] == 0
    codes = {"foveate data check mine.csv --strict": 1}  # drawn animals are in their habitat, which is a warning
    ran = walk("docs/data.md", call, {"--target-size 200": "--target-size 8"}, left_out=DOWNLOADS, codes=codes)
    assert [step.words[:2] for step in ran] == [["data", "check"]] * 3 + [["fit", "mine.csv"], ["data", "compose"]]
    plain, as_json, strict, fitted, composed = (step.out for step in ran)
    assert "shortcut" in plain
    assert "shortcut" in strict
    assert {problem["kind"] for problem in json.loads(as_json)["problems"]} >= {"shortcut"}
    assert "saved DFR" in fitted
    assert "wrote composites" in composed
    made = fv.data.from_csv("composites/benchmark.csv")
    assert made.train[0].image.shape == (3, 224, 224)
    assert made.train[0].mask is not None
    assert made.train.attribute_names == ["forest", "sea"]


# -- studies ------------------------------------------------------------------------------


@pytest.fixture
def _bench() -> None:
    pytest.importorskip("optuna", reason="sweeps need the extra [bench]")


def figures_of(text: str) -> list[str]:
    """Methods that have a row with figures in a table, in its order."""
    return re.findall(r"^\| ([^|]+) \| \**\d", text, flags=re.M)


SMALL_STUDY = {
    "train: 4000, target: 200, val: 600": "train: 64, target: 16, val: 16, test: 16, size: 32",
    "epochs: 5": "epochs: 1",
    "{backbone: micro_resnet}": "{backbone: micro_resnet, model_args: {layers: [1, 1], width: 8, stem_stride: 2}}",
    "seeds: [0, 1, 2]": "seeds: [0, 1]",
    "trials: 20": "trials: 2",
    "copies: 4": "copies: 1, epochs: 1",
}


@pytest.mark.gate
@pytest.mark.usefixtures("_bench")
def test_the_lines_on_the_bench(call: Call) -> None:
    Path("study.yaml").write_text(shrunk(block("docs/bench.md", "yaml", "name: critters-small"), SMALL_STUDY))
    Path("benchmarks/specs").mkdir(parents=True)
    shutil.copy("study.yaml", "benchmarks/specs/critters-small.yaml")
    Path("benchmarks/records").mkdir()
    Path("benchmarks/records/critters-small.csv").symlink_to(Path("records.csv").absolute())
    ran = walk("docs/bench.md", call, IN_THIS_PROCESS)
    assert [step.words[1] for step in ran] == ["run", "status", "table", "plot", "run", "add", "figures", "page"]
    first, status, table, _, part, added, figures, _ = (step.out for step in ran)
    assert figures_of(first) == ["base", "DFR", "DAR", "GroupDRO"]
    assert figures_of(part) == ["base", "DAR"]
    assert "11 of 11 trials done" in status  # on two seeds: base, DFR, DAR twice; GroupDRO twice, and what it chose
    assert "seed" not in part.split("|")[0]  # nothing is run again
    assert len(fv.bench.records.read_csv("records.csv")) == 11
    assert added.strip() == "0 added, 11 already there, 0 of another version"  # they were made here
    assert table.startswith("\\begin{tabular}")
    assert "\\mathbf{" in table
    assert Path("plot.png").stat().st_size > 5000
    drawn = [f"critters-small-critters-{what}.png" for what in ("cep", "gradcam", "queries")]
    assert [Path(line).name for line in figures.split() if line.endswith(".png")] == drawn
    page = Path("docs/results.md").read_text()
    assert figures_of(page) == ["base", "DFR", "DAR", "GroupDRO"]
    assert all(f"(figures/{name})" in page for name in drawn)


KEYHOLE = {
    "train: 2000, target: 200, val: 600, test: 1000": "train: 48, target: 16, val: 16, test: 16",
    "epochs: 8": "epochs: 1",
    "seeds: [0, 1, 2]": "seeds: [0]",
    "first_epochs: 2": "first_epochs: 1",
    "DFR: {system: DFR}": "DFR: {system: DFR, settings: {refits: 1}}",
    "DAR: {system: DAR}": "DAR: {system: DAR, settings: {epochs: 1}}",
}


@pytest.mark.gate
@pytest.mark.usefixtures("_bench", "_listed_for_now")
def test_the_lines_on_a_new_method(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/tutorials/compare.md"
    (listed,) = re.findall(r"`(SYSTEMS\.add\(.*?\))`", (ROOT / page).read_text(encoding="utf-8"))
    the_class, _, _ = block(page, "python", "class Keyhole").partition("\n\ndata = ")
    Path("keyhole.py").write_text(f"{the_class}\n\n{listed}\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("study.yaml").write_text(shrunk(block(page, "yaml", "name: keyhole"), KEYHOLE))
    ran = walk(page, call, IN_THIS_PROCESS)
    assert [step.words[1] for step in ran] == ["run", "table", "plot"]
    methods = ["base", "ERM", "JTT", "GroupDRO", "Reweight", "Subsample", "DFR", "DAR", "full image", "A2", "Glimpse"]
    assert figures_of(ran[0].out) == figures_of(ran[1].out) == [*methods, "Keyhole"]
    assert {row.method for row in fv.bench.records.read_csv("records.csv")} == {*methods, "Keyhole"}
    assert Path("plot.png").stat().st_size > 5000


# -- Waterbirds ---------------------------------------------------------------------------

BIRDS = {"train": (20, 6, 6, 20), "val": (8, 8, 8, 8), "test": (4, 4, 4, 4)}
"""Images of each group in the small archive; they stand for the published counts."""
GROUPS = ("landbird/land", "landbird/water", "waterbird/land", "waterbird/water")
SMALL_BIRDS = {
    "--backbone resnet18 --set pretrained=true": "--backbone micro_resnet --epochs 1",
    "--system DAR": "--system DAR --epochs 1",
    "--system A2": "--system A2 --set attention=micro-vit --set embedder=micro-vit --set crops=[20]",
    "--target-size 400": "--target-size 8",
    **IN_THIS_PROCESS,
}
SMALL_BIRDS_STUDY = {
    "{backbone: resnet18}": "{backbone: micro_resnet}",
    "pretrained: true": "pretrained: false",
    "epochs: 20": "epochs: 1",
    "first_epochs: 5": "first_epochs: 1",
    "seeds: [0, 1, 2]": "seeds: [0, 1]",
    "crops: [64]": "attention: micro-vit, embedder: micro-vit, crops: [20]",
}


def write_archive(folder: Path) -> None:
    """Drawn animals packed as the publisher packs the birds: ``metadata.csv`` beside a folder for each species."""
    drawn = fv.data.critters(size=32, train=128, target=0, val=0, test=0, strength=0.5).train
    left = [list((drawn.groups == g).nonzero()[0]) for g in range(4)]
    inside = Path("made/waterbird_complete95_forest2water2")
    rows: list[dict[str, Any]] = []
    for split, groups in enumerate(BIRDS.values()):
        for g, n in enumerate(groups):
            for _ in range(n):
                species = ("103.Sayornis", "066.Western_Gull")[g // 2]
                file = f"{species}/{species[4:]}_{len(rows):04d}.jpg"
                (inside / species).mkdir(parents=True, exist_ok=True)
                Image.fromarray(drawn.images.read(left[g].pop())).save(inside / file, quality=95)
                rows.append(
                    {"img_id": len(rows) + 1, "img_filename": file, "y": g // 2, "split": split, "place": g % 2}
                )
    write_rows(inside / "metadata.csv", rows)
    folder.mkdir()
    with tarfile.open(folder / f"{inside.name}.tar.gz", "w:gz") as tar:
        tar.add(inside, inside.name)


@pytest.mark.gate
@pytest.mark.usefixtures("_bench")
def test_the_lines_on_waterbirds(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is downloaded by hand: here a small one lies in ``~/data``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write_archive(tmp_path / "data")
    for split, counts in BIRDS.items():
        monkeypatch.setitem(SOURCES["waterbirds"].expected, split, dict(zip(GROUPS, counts, strict=True)))
    page = "docs/tutorials/waterbirds.md"
    Path("waterbirds.yaml").write_text(shrunk(block(page, "yaml", "name: waterbirds"), SMALL_BIRDS_STUDY))
    ran = walk(page, call, SMALL_BIRDS)
    did = [step.words[0] if step.words[0] in ("fit", "eval") else " ".join(step.words[:2]) for step in ran]
    assert did == ["data prepare", "data check", "fit", "fit", "fit", "fit", "eval", "bench run", "bench table"]
    assert all(f"{split:<7} {sum(n):>7} images" in ran[0].out for split, n in BIRDS.items())
    assert "waterbirds: 100 images (train 52, val 32, test 16)" in ran[1].out
    assert "error" not in ran[1].out
    for step, system in zip(ran[2:6], ("ERM", "DFR", "DAR", "A2"), strict=True):
        assert f"saved {system} to models/{system.lower()}" in step.out
        assert step.out.count(" 6 ") >= 4  # all are judged on the same: 8 of a group, of which 2 went to the target
    compared = ran[6].out.partition("Test accuracy, %")[2]
    assert re.findall(r"^(\w+) +\d", compared, flags=re.M) == ["erm", "dfr", "dar", "a2"]
    assert "labels used, and by which:" in compared
    methods = ["ERM", "Reweight", "GroupDRO", "JTT", "A2"]
    assert figures_of(ran[7].out) == figures_of(ran[8].out) == methods
    assert {row.method for row in fv.bench.records.read_csv("waterbirds.csv")} == set(methods)
