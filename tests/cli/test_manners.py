"""The manners of the command line: quick to start, fits 80 columns, shows examples, completes, knows its machine."""

from __future__ import annotations

import ast
import inspect
import json
import os
import resource
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tests.cli.conftest import Call

import foveate as fv
from foveate.assets.catalogue import kept_facts
from foveate.cli import caching, doctor
from foveate.cli.examples import EXAMPLES
from foveate.cli.inputs import comparison_table
from foveate.cli.main import app
from foveate.cli.screen import console
from foveate.data.registry import facts
from foveate.engine import bf16_problem
from foveate.measure import group_report

START = "import sys; sys.argv[0] = 'foveate'; from foveate.cli import main; main()"
HEAVY = ("torch", "numpy", "pandas", "PIL", "timm", "sklearn", "matplotlib")


# -- quick ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "seconds"), [(["--help"], 0.5), (["data", "list"], 0.5), (["--version"], 0.3), (None, 0.3)]
)
def test_it_starts_at_once(words: list[str] | None, seconds: float) -> None:
    """CPU seconds of the whole process, the best of three, and nothing heavy was imported."""
    code = "import foveate" if words is None else START
    loaded = f"; import atexit, sys; atexit.register(lambda: print([m for m in {HEAVY} if m in sys.modules]))"
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", f"{loaded[2:]}; {code}", *(words or [])], capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < seconds


def test_the_version_comes_from_one_place(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    assert call("--version")[:2] == (0, f"{fv.__version__}\n")
    done = subprocess.run([sys.executable, "-c", START, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{fv.__version__}\n"
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in text
    assert f'version = "{fv.__version__}"' not in text


def test_what_the_list_of_datasets_reads_is_what_their_modules_say() -> None:
    assert kept_facts() == facts(), "run: python -m foveate.data.facts"


# -- tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("data", "list"), ("assets",), ("list", "systems"), ("systems",)])
def test_tables_fit_eighty_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setattr(console, "_width", 80)
    code, out, _ = call(*words)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    names = [row["name"] for row in json.loads(call(*words, "--json")[1])]
    lines = out.splitlines()
    starts = [next(i for i, line in enumerate(lines) if line.split(" ")[0] == name) for name in names]
    assert max(np.diff(sorted(starts)), default=1) <= 4  # lines a row


def test_a_wide_screen_shows_licences(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setattr(console, "_width", 80)
    assert "licence" not in call("data", "list")[1].splitlines()[0]
    monkeypatch.setattr(console, "_width", 200)
    assert "licence" in call("data", "list")[1].splitlines()[0]


def test_the_comparison_of_many_models_fits_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_width", 80)
    report = group_report([0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], train_counts=np.array([9, 1, 1, 9]))
    long = "train: labels; target: labels, attribute-balanced; select: groups (worst_group on val)"
    used = {name: long for name in ("ERM", "JTT", "GroupDRO")} | {"A2": "train: labels"}
    console.print(comparison_table(dict.fromkeys(used, report), used))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert [line.split()[0] for line in out.splitlines()[3:7]] == list(used)  # one line a model
    assert "train: labels: A2" in out
    assert "ERM, JTT, GroupDRO" in " ".join(out.split())


# -- help -----------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))
        if not hasattr(command, "commands"):
            found[" ".join(words)] = command

    walk(typer.main.get_command(app), ())
    return found


WITHOUT_A_TABLE = {
    "app", "bench features", "bench figures", "bench page", "bench plot", "bench speed", "card", "data compose",
    "data export", "export", "look",
}  # fmt: skip
"""Commands that write files or serve, and print a line about it: a new one that prints figures needs ``--json``."""
TABLES = {"plain_table", "group_table", "comparison_table", "table", "Table"}


def test_every_command_that_prints_a_table_prints_it_for_programs() -> None:
    plain = {verb: c for verb, c in commands().items() if not any("--json" in p.opts for p in c.params)}
    assert set(plain) == WITHOUT_A_TABLE
    for verb, command in plain.items():
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(command.callback))))
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {one.id for one in calls if isinstance(one, ast.Name)}
        assert not called & TABLES, verb


def test_every_command_has_examples_that_parse() -> None:
    found = commands()
    assert set(found) <= set(EXAMPLES), "a new command needs a line in cli/examples.py"
    for verb, lines in EXAMPLES.items():
        assert lines
        for line in lines if verb in found else ():
            head, *words = shlex.split(line)
            assert head == "foveate"
            assert words[: len(verb.split())] == verb.split() or verb == "cache show"
            if words == ["cache"]:
                continue
            context = found[verb].make_context(verb, words[len(verb.split()) :])
            context.close()


def test_help_ends_with_the_examples(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    for words in (["fit"], ["data", "export"], ["bench", "run"]):
        _, out, _ = call(*words, "--help")
        assert all(line in " ".join(out.split()) for line in EXAMPLES[" ".join(words)])


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("foveate da", {"data"}),
        ("foveate fit crit", {"critters", "critters-cue"}),
        ("foveate fit x --system DF", {"DFR"}),
    ],
)
def test_the_shell_completes(typed: str, offered: set[str]) -> None:
    words = typed.split()
    environment = {
        **os.environ, "_FOVEATE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment)
    assert set(done.stdout.split()) == offered, done.stderr


# -- the machine ----------------------------------------------------------------------------


@pytest.fixture
def _own_trial() -> Iterator[None]:
    """What a test said of bf16 is forgotten after it."""
    yield
    bf16_problem.cache_clear()


@pytest.mark.usefixtures("_own_trial")
def test_the_doctor_says_how_this_machine_is(monkeypatch: pytest.MonkeyPatch, call: Call, tmp_path: Path) -> None:
    monkeypatch.setenv("FOVEATE_BF16", "unusable")
    bf16_problem.cache_clear()
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    code, out, _ = call("doctor", "--json")
    told = json.loads(out)
    found = {row["name"]: row for row in told["findings"]}
    assert (code, told["healthy"]) == (0, True)
    assert found["foveate"]["told"].startswith(fv.__version__)
    assert found["torch"]["health"] == "ok"
    assert "ONEDNN_MAX_CPU_ISA" in found["bf16"]["fix"]
    assert found["mobilenet-v2"]["fix"] == "foveate assets mobilenet-v2"
    assert str(tmp_path / "cache") in found["features"]["told"]
    assert {"threads", "GPU", "clip", "assets", "FOVEATE_CACHE"} <= set(found)
    code, out, _ = call("doctor")
    assert code == 0
    assert "→ foveate assets mnist" in out
    assert max(map(len, out.splitlines())) <= 80 or console.width > 80


def test_the_doctor_knows_the_extras_of_this_installation() -> None:
    found = doctor.extra_packages()
    assert "gradio" in found["app"]
    assert "onnxruntime" in found["onnx"]
    assert not {"dev", "all", "docs"} & set(found)
    assert all("foveate" not in packages for packages in found.values())


@pytest.mark.usefixtures("_own_trial")
def test_the_doctor_finds_what_is_broken(monkeypatch: pytest.MonkeyPatch, call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOVEATE_BF16", "perhaps")
    bf16_problem.cache_clear()
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(doctor, "CORE", (*doctor.CORE, "no-such-package"))
    code, out, _ = call("doctor", "--json")
    broken = {row["name"]: row["fix"] for row in json.loads(out)["findings"] if row["health"] == "broken"}
    assert code == 1
    assert set(broken) == {"no-such-package", "bf16", "features"}
    assert "FOVEATE_CACHE" in broken["features"]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A feature store with one entry, and a fetched asset that is not one of ours."""
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "features"))
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path / "data"))
    data = fv.data.critters(size=32, train=8, target=0, val=0, test=0)
    fv.extract.FeatureStore().features(
        fv.extract.create_backbone("micro_resnet"), data.train, fv.data.Preprocess((32, 32))
    )
    (tmp_path / "data" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "mine" / "thesis.tex").write_text("years of work")
    return tmp_path


def test_the_cache_is_shown_and_pruned(kept: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    (features, _) = json.loads(call("cache", "show", "--json")[1])
    assert features["entries"] == 1
    assert features["bytes"] >= 8 * 128 * 4
    assert "features" in call("cache")[1]
    code, out, _ = call("cache", "prune", "--older-than", "1", "--assets")
    assert (code, "nothing there was unused" in out) == (0, True)
    code, _, err = call("cache", "prune", "--older-than", "0")
    assert (code, "--yes" in err) == (2, True)  # nobody to ask
    monkeypatch.setattr("foveate.cli.screen.can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *words, **options: False)
    assert "nothing was deleted" in call("cache", "prune", "--older-than", "0")[1]
    assert len(fv.extract.FeatureStore().entries()) == 1
    code, out, _ = call("cache", "prune", "--older-than", "0", "--assets", "--yes", "--json")
    assert (code, len(json.loads(out)["deleted"])) == (0, 1)
    assert fv.extract.FeatureStore().entries() == []
    assert (kept / "data" / "mine" / "thesis.tex").read_text() == "years of work"


def test_fetched_assets_are_pruned_only_when_asked(kept: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    folder = kept / "data" / "u2netp"
    folder.mkdir()
    (folder / "weights.onnx").write_bytes(b"x" * 10)
    row = next(row for row in fv.assets.status() if row.name == "u2netp")
    monkeypatch.setattr(fv.assets, "status", lambda root=None: [replace(row, ready=True, folder=folder, size=10)])
    assert {entry.name for entry in caching._prunable(False)} <= {e.name for e in caching._prunable(True)}
    call("cache", "prune", "--older-than", "0", "--yes")
    assert folder.is_dir()
    call("cache", "prune", "--older-than", "0", "--yes", "--assets")
    assert [p.name for p in (kept / "data").iterdir()] == ["mine"]
