"""Whatever goes wrong ends in one sentence with a number; strangers' names do not reach the terminal unwritten."""

from __future__ import annotations

import csv
import errno
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import foveate as fv
from foveate.cli import main as entry
from foveate.cli import screen
from foveate.cli.main import INTERNAL, app, tell
from foveate.data.typed import MAX_SEED
from foveate.errors import DataError, FoveateError, visible

CLI = Path(screen.__file__).parent
TINY = "critters:size=32,train=16,target=16,val=16,test=16"
START = "import sys; from foveate.cli import main; sys.argv = ['foveate', *sys.argv[1:]]; main()"


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["foveate", *words])
    with pytest.raises(SystemExit) as stopped:
        entry()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


# -- one place ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("no such column."), 2, r"^error F200: no such column\.\n$"),
        (FoveateError("x"), 2, r"^error F100: x\n$"),
        (OSError(errno.ENOSPC, "No space left", "a.txt"), 2, r"error F410: a\.txt: the disk is full"),
        (OSError(errno.ENAMETOOLONG, "long", "x" * 300), 2, "the name is too long"),
        (MemoryError(), 2, "F420: there is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "F420"),
        (sqlite3.OperationalError("database or disk is full"), 2, "F430: the database of records .* disk is full"),
        (KeyboardInterrupt(), 130, "^stopped\n$"),
        (
            KeyError("x"),
            INTERNAL,
            r"error F9[0-9a-f]{4}: something went wrong inside foveate \(KeyError: 'x'\)(.|\n)*--debug",
        ),
    ],
)
def test_every_exception_has_a_sentence(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("foveate.systems.list_systems", fails)
    found, out, err = call(monkeypatch, capsys, "systems")
    assert found == code
    assert re.search(said, err), err
    assert "Traceback" not in out + err
    if code != 130:
        _, _, shown = call(monkeypatch, capsys, "systems", "--debug")
        assert "Traceback (most recent call last)" in shown
        assert call(monkeypatch, capsys, "--debug", "systems")[0] == code


def test_behind_a_library_the_database_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    outer = RuntimeError("storage")
    outer.__cause__ = sqlite3.OperationalError("disk I/O error")
    assert tell(outer) == 2
    assert "disk I/O error" in capsys.readouterr().err


# -- each of these had a traceback ------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors") / "data"
    fv.data.write_csv(fv.data.critters(size=32, train=16, target=16, val=16, test=16), folder)
    return folder


FIT = ("--backbone", "micro_resnet", "--epochs", "1", "--set", "progress=False")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seed", "-1"), "seed"),
        (("--set", "seed=-1"), "seed=-1"),
        (("--set", "image_size=0"), "image size"),
        (("--set", "image_size=abc"), "image_size as"),
        (("--lr", "1e300"), "lr=1e\\+300"),
        (("--set", "lr=nan"), "lr='nan'"),
        (("--set", "checkpoint={d}/empty.pt"), "not a readable checkpoint"),
        (("--out", "{d}/" + "x" * 300), "name is too long"),
    ],
)
def test_settings_of_a_fit(
    words: tuple[str, ...], said: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "empty.pt").touch()
    given = [word.format(d=tmp_path) for word in words]
    out = [] if "--out" in given else ["--out", str(tmp_path / "model")]
    code, _, err = call(monkeypatch, capsys, "fit", str(data), *out, *FIT, *given)
    assert code == 2, err
    assert re.search(said, " ".join(err.split())), err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("yaml", ["a: &a [*a]", "name: &a {b: *a}", "[" * 3000, "? [1]\n: 2", "d: 2001-99-99"])
def test_a_yaml_that_contains_itself(
    yaml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.yaml").write_text(yaml)
    code, _, err = call(
        monkeypatch, capsys, "bench", "status", str(tmp_path / "spec.yaml"), "--runs", str(tmp_path / "r")
    )
    assert code == 2
    assert "spec.yaml" in err


def test_an_alias_bomb_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10)]
    (tmp_path / "spec.yaml").write_text("\n".join(rows))
    began = time.perf_counter()
    assert call(monkeypatch, capsys, "bench", "status", str(tmp_path / "spec.yaml"))[0] == 2
    assert time.perf_counter() - began < 20


def test_a_large_seed_is_refused_wherever_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["data", "check", f"critters:seed={MAX_SEED + 1}"], ["demo", "--seed", str(MAX_SEED + 1)]):
        assert call(monkeypatch, capsys, *words)[0] == 2


# -- the screen -----------------------------------------------------------------------------


def test_commands_print_through_the_screen() -> None:
    """One place makes names of strangers visible, so nothing may go round it."""
    allowed = {"screen.py", "main.py"}
    for path in CLI.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name not in allowed:
            assert not re.search(r"typer\.s?echo|(?<![.\w])print\(|sys\.stdout|Console\(", text), path.name


def test_escapes_are_shown_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for label in ("cat\x1b[2J", "[/bold]dog\x9b31m"):
        for split in ("train", "test"):
            place = tmp_path / "pets" / split / label
            place.mkdir(parents=True)
            for name in ("\x1b]0;owned\x07.png", "\u202egnp.png"):
                Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(place / name)
    os.rename(tmp_path / "pets/test/cat\x1b[2J", os.fsencode(tmp_path / "pets/test") + b"/cat\x1b[2J")
    for words in (["data", "check"], ["data", "check", "--json"], ["eval", "nowhere\x1b[2J", "--data"]):
        _, out, err = call(monkeypatch, capsys, *words, str(tmp_path / "pets"))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err)
        assert "\\u001b[2J" in out + err


def test_bytes_that_are_no_utf8_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(monkeypatch, capsys, "data", "check", "caf\udce9/")
    assert code == 2
    assert "caf\\udce9" in err
    assert visible("tab\tand\nline") == "tab\tand\nline"


def test_predictions_as_csv_are_harmless_and_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for label in ("=cmd|x", "dog"):
        place = tmp_path / "pets" / "test" / label
        place.mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(place / "-1.png")
    monkeypatch.chdir(tmp_path)
    view = fv.data.Preprocess((8, 8))
    model = fv.wrap(lambda x: x.mean((2, 3))[:, :2], ["=cmd|x", "dog"], preprocess=view)
    monkeypatch.setattr("foveate.assemble.saving.load", lambda path: model)
    assert call(monkeypatch, capsys, "predict", "any", "pets", "--out", "p.csv")[0] == 0
    rows = list(csv.reader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()))
    assert {row[1] for row in rows[1:]} == {"'=cmd|x", "dog"}
    assert not any(cell.startswith("=") for row in rows for cell in row)


# -- Ctrl-C ---------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.0, 0.4, 1.0, 2.0, 4.0])
def test_ctrl_c_is_one_line_and_130(after: float, tmp_path: Path) -> None:
    """At any moment from the first import of ours on: while modules are read, while it works, while it saves."""
    script = tmp_path / "foveate"
    script.write_text("import sys\nprint('!', flush=True)\nfrom foveate.cli import main\nmain()\n")
    words = [
        "fit",
        TINY,
        "-o",
        str(tmp_path / "m"),
        "--backbone",
        "micro_resnet",
        "--epochs",
        "2000",
        "--set",
        "progress=False",
    ]
    process = subprocess.Popen(
        [sys.executable, str(script), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.read(2)
    time.sleep(max(after, 0.15))  # what is before our first line is Python's own
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    *said, last = err.splitlines()
    assert (process.returncode, last) == (130, "stopped"), (out, err)
    # A fast machine has begun to train by then and has said what the network starts from; nothing else may stand there.
    assert said in ([], ["micro_resnet starts from random weights. Trained ones need fewer images."]), err
    assert [p.name for p in tmp_path.iterdir()] == ["foveate"]


def test_an_interrupt_that_a_library_swallows_still_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wraps(*given: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt as error:
            raise ImportError("failed to import multiarray") from error

    monkeypatch.setattr("foveate.systems.list_systems", wraps)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert call(monkeypatch, capsys, "systems") == (130, "", "stopped\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_parser_is_the_apps_own() -> None:
    assert app.info.name == "foveate"
