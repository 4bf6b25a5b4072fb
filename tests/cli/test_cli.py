"""The command line as a user types it: what works, and a sentence with exit code 2 for what does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate as fv
from foveate.cli import main as entry
from foveate.cli.data import data_app
from foveate.cli.inputs import labels_of
from foveate.cli.main import app
from foveate.errors import DataError
from foveate.registries import DATASETS

TRAIN = ["--backbone", "micro_resnet", "--epochs", "1", "--set", "progress=False",
         "--set", "model_args={'width': 8, 'layers': [1, 1, 1], 'stem_stride': 2}"]  # fmt: skip


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run ``foveate words`` in this process, errors handled as on the command line."""
    monkeypatch.setattr(sys, "argv", ["foveate", *words])
    with pytest.raises(SystemExit) as stopped:
        entry()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Critters exported as files, and a model fitted on them by the command line."""
    root = tmp_path_factory.mktemp("cli")
    made = fv.data.critters(size=32, train=60, target=16, val=24, test=40)
    fv.data.write_csv(made, root / "data")
    result = CliRunner().invoke(app, ["fit", str(root / "data"), "--out", str(root / "erm"), *TRAIN])
    assert result.exit_code == 0, result.output
    assert "saved ERM" in result.output
    return root


def test_eval_predict_look_audit(folder: Path) -> None:
    run = CliRunner().invoke
    data, model = str(folder / "data"), str(folder / "erm")
    shown = run(app, ["eval", model, "--data", data])
    assert shown.exit_code == 0
    assert "worst group" in shown.output
    assert f"labels used: {fv.load(model).supervision()}" in " ".join(shown.output.split())
    figures = json.loads(run(app, ["eval", model, "--data", data, "--json"]).output)
    assert figures["erm"]["n"] == 40
    one = run(app, ["eval", model, "--data", data, "--metric", "worst_group"]).output
    assert one.strip() == f"erm worst_group {100 * figures['erm']['worst_group']:.1f}"
    assert run(app, ["predict", model, data, "--out", str(folder / "p.csv")]).exit_code == 0
    lines = (folder / "p.csv").read_text().splitlines()
    assert lines[0] == "image,label,prediction,probability"
    assert len(lines) == 41
    picture = next((folder / "data").rglob("*.png"))
    assert run(app, ["look", model, str(picture), "--out", str(folder / "look.png")]).exit_code == 0
    assert Image.open(folder / "look.png").width >= 224
    audited = run(app, ["audit", model, "--data", data, "--out", str(folder / "audit.html")])
    assert audited.exit_code == 0, audited.output
    assert "<html" in (folder / "audit.html").read_text()


def test_data_are_the_last_argument_or_an_option_everywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model, html = str(folder / "data"), str(folder / "erm"), str(folder / "habit.html")
    for verb, more in (("eval", ["--json"]), ("card", []), ("predict", []), ("audit", ["--no-discover", "-o", html])):
        found = [
            call(monkeypatch, capsys, verb, model, *way, *more) for way in ([data], ["--data", data], ["-d", data])
        ]
        assert [code for code, _, _ in found] == [0, 0, 0], found[0][2]
        assert found[0][1] == found[1][1] == found[2][1]
    assert call(monkeypatch, capsys, "card", model, data, "--data", data)[0] == 2
    code, _, err = call(monkeypatch, capsys, "eval", model, model)
    assert (code, "models and then the data" in err) == (2, True)


def test_fit_on_a_base(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FOVEATE_CACHE", str(folder / "cache"))
    words = [
        "fit",
        str(folder / "data"),
        "--system",
        "dar",
        "--base",
        str(folder / "erm"),
        "--out",
        str(folder / "dar"),
    ]
    code, out, err = call(monkeypatch, capsys, *words, "--epochs", "2", "--set", "heads=4")
    assert code == 0, err
    assert "saved DAR" in out
    assert fv.load(folder / "dar").heads == 4
    words[-1] = str(folder / "spurious")
    code, out, err = call(monkeypatch, capsys, *words, "--epochs", "2", "--set", "heads=4", "--set", "learn=attribute")
    assert code == 0, err  # val is labelled by class, and this model names habitats
    assert "validation" not in out
    assert not set(fv.load(folder / "spurious").class_names_) & set(fv.load(folder / "erm").class_names_)


def test_models_of_the_same_name_are_kept_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("0", "1"):
        shutil.copytree(folder / "erm", folder / "runs" / run / "erm")
    monkeypatch.chdir(folder)
    models = ["runs/0/erm", "runs/1/erm"]
    shown = CliRunner().invoke(app, ["eval", *models, "--data", "data", "--json"])
    assert list(json.loads(shown.output)) == models
    assert labels_of([Path(m) for m in [*models, "spurious", "."]]) == [*models, "spurious", "."]
    audited = CliRunner().invoke(app, ["audit", *models, "--data", "data", "--out", "two.html", "--json"])
    assert [entry["name"] for entry in json.loads(audited.output)["models"]] == models


def test_audit_can_skip_what_cannot_be_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "data", tmp_path / "data")
    broken = fv.data.from_path(tmp_path / "data").test.where(0)
    Path(broken).write_bytes(b"not a picture")
    words = ["audit", str(folder / "erm"), "--data", str(tmp_path / "data"), "--json"]
    words += ["--out", str(tmp_path / "audit.html")]
    code, _, err = call(monkeypatch, capsys, *words)
    assert code == 2
    assert Path(broken).name in err
    code, out, err = call(monkeypatch, capsys, *words, "--on-bad", "skip")
    assert code == 0, err
    assert json.loads(out)["dataset"]["read"] == 39


def test_splits_made_on_the_command_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOVEATE_CACHE", str(folder / "cache"))
    balanced = fv.data.critters(size=32, strength=0.5, train=80, target=0, val=0, test=0)
    data = str(fv.data.write_csv(balanced, tmp_path / "data"))
    words = ["fit", data, "--system", "dfr", "--base", str(folder / "erm"), "--out", str(tmp_path / "dfr")]
    code, _, err = call(monkeypatch, capsys, *words)
    assert (code, "--target-size N" in err) == (2, True)
    code, _, err = call(monkeypatch, capsys, *words, "--target-size", "16")
    assert (code, "--val-share F" in err) == (2, True)
    code, out, err = call(monkeypatch, capsys, *words, "--val-share", "0.5", "--target-size", "16")
    assert code == 0, err
    # of 20 a group 10 are held out, and 4 of them moved to target
    assert re.findall(r"^\w+/\w+ +(\d+) ", out, re.MULTILINE) == ["6"] * 4
    code, _, err = call(
        monkeypatch, capsys, *words[:1], str(folder / "data"), *words[2:], "--target-size", "16", "--force"
    )
    assert (code, "has a 'target' split already" in err) == (2, True)


def test_root_is_where_a_csv_files_paths_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "elsewhere.csv"
    shutil.copy(folder / "data" / "benchmark.csv", table)
    words = ["eval", str(folder / "erm"), "--data", str(table), "--json"]
    assert call(monkeypatch, capsys, *words)[0] == 2
    code, out, err = call(monkeypatch, capsys, *words, "--root", str(folder / "data"))
    assert code == 0, err
    assert json.loads(out)["erm"]["n"] == 40
    words[3] = str(folder / "data")
    code, _, err = call(monkeypatch, capsys, *words, "--root", str(tmp_path))
    assert (code, "--root goes with a CSV file" in err) == (2, True)


def test_check_of_a_named_dataset_looks_in_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def boxes(root: Path | None = None) -> fv.data.Benchmark:
        seen.append(root)
        return fv.data.critters(size=32, train=8, target=0, val=0, test=0)

    with DATASETS.temporarily("boxes", boxes):
        call(monkeypatch, capsys, "data", "check", "boxes", "--root", str(tmp_path), "--json")
    assert seen == [tmp_path]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_fit_looks_at_out_before_any_work(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "thesis"
    if kind == "folder":
        out.mkdir()
    kept = out / "chapter.tex" if kind == "folder" else out
    kept.write_text("years of work")
    # the dataset does not exist either: the folder is complained about first
    code, _, err = call(monkeypatch, capsys, "fit", "waterbirdz", "--out", str(out))
    assert code == 2
    assert "is there and is not a saved model; choose a new folder" in err
    assert kept.read_text() == "years of work"


def test_a_loaders_own_mistake_is_not_blamed_on_the_user() -> None:
    def faulty(size: int = 3) -> fv.data.Benchmark:
        raise TypeError("a slip in the code")

    with DATASETS.temporarily("faulty", faulty):
        with pytest.raises(TypeError, match="a slip"):
            fv.data.load("faulty")
        with pytest.raises(DataError, match="faulty cannot be made with size=4: a slip") as said:
            fv.data.load("faulty", size=4)
    assert isinstance(said.value.__cause__, TypeError)


def test_data_commands(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, capsys, "data", "check", str(folder / "data"))[0] == 0
    code, out, _ = call(monkeypatch, capsys, "data", "list")
    assert code == 0
    assert "dominoes" in out
    exported = folder / "exported"
    small = "critters:train=8,target=8,val=8,test=8,size=32"
    assert call(monkeypatch, capsys, "data", "export", small, str(exported))[0] == 0
    assert len(fv.data.from_path(exported).train) == 8
    next((folder / "exported").rglob("*.png")).write_bytes(b"not a picture")
    code, out, _ = call(monkeypatch, capsys, "data", "check", str(exported), "--json")
    assert code == 1
    assert json.loads(out)["counts"]["kinds"]["unreadable-image"] == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "waterbirdz", "--out", "x"], "unknown dataset 'waterbirdz'"),
        (["fit", "critters:strenght=1", "--out", "x"], "Did you mean 'strength'"),
        (["fit", "critters:size=abc", "--out", "x"], "critters cannot be made with size='abc'"),
        (["fit", "critters", "--system", "ERMM", "--out", "x"], "unknown system 'ERMM'"),
        (
            ["fit", "critters:train=8,target=8,val=8,test=8", "--backbone", "resnet81", "--out", "x"],
            "unknown model 'resnet81'",
        ),
        (["fit", "critters", "--set", "magic=1", "--out", "x"], "ERM has no setting 'magic'"),
        (["fit", "critters", "--select", "magic", "--out", "x"], "unknown metric 'magic'"),
        (["eval", "nowhere", "--data", "critters"], "does not hold a saved foveate system"),
        (["data", "check", "not/there"], "not/there"),
        (["data", "prepare", "dominos"], "Did you mean 'dominoes'"),
        (["fit", "not/there.csv", "--out", "x"], "not/there.csv"),
    ],
)
def test_mistakes_get_a_sentence_and_code_2(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(monkeypatch, capsys, *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err


def test_mistakes_in_a_csv(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        Image.fromarray(np.random.default_rng(len(name)).integers(0, 255, (8, 8, 3), np.uint8)).save(
            tmp_path / f"{name}.png"
        )
    cases = {
        "file,label\na.png,cat\n": "path",
        "path,label,split\na.png,cat,train\nb.png,dog,train\nc.png,eel,test\n": "eel",
        "path,label,split\na.png,cat,train\nb.png,dog,trian\n": "trian",
    }
    for text, sentence in cases.items():
        (tmp_path / "mine.csv").write_text(text)
        code, _, err = call(monkeypatch, capsys, "fit", str(tmp_path / "mine.csv"), "--out", str(tmp_path / "m"))
        assert code == 2, err
        assert sentence in err
    (tmp_path / "mine.csv").write_text("path,label,split\na.png,cat,train\nb.png,duck,train\nc.png,cat,test\n")
    words = ["eval", str(folder / "erm"), "--data", str(tmp_path / "mine.csv"), "--metric", "worst_group"]
    code, _, err = call(monkeypatch, capsys, *words)
    assert code == 2
    assert "needs groups" in err


def test_every_command_says_what_it_does() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert "Finds the shortcut an image classifier takes" in " ".join(shown.output.split())
    callbacks = [*app.registered_commands, *data_app.registered_commands, app.registered_callback]
    assert [c.callback.__name__ for c in callbacks if not (c.callback.__doc__ or "").strip()] == []


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    """A real full disk: a tiny file-size limit makes every write of the model fail."""
    out = folder / "limited"
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import foveate as fv; m = fv.load(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: m.save(sys.argv[2])\n"
        "except fv.FoveateError as e: print('said:', e); sys.exit(2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "erm"), str(out)], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Nothing half-written" in done.stdout
    assert not [p for p in folder.iterdir() if "limited" in p.name]
