"""``foveate list``: every kind, for people and for programs, without loading what it lists."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from foveate.cli import main as entry
from foveate.registries import KINDS


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["foveate", "list", *words])
    with pytest.raises(SystemExit) as stopped:
        entry()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_listed(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, kind, "--json")
    assert code == 0
    assert {row["name"]: row["summary"] for row in json.loads(out)} == KINDS[kind].summaries()
    code, out, _ = call(monkeypatch, capsys, kind)
    assert code == 0
    assert all(name in out for name in KINDS[kind])


def test_without_a_kind_the_kinds_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, "--json")
    assert (code, json.loads(out)) == (0, {kind: len(registry) for kind, registry in KINDS.items()})
    _, out, _ = call(monkeypatch, capsys)
    assert all(kind in out for kind in KINDS)


def test_an_unknown_kind_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(monkeypatch, capsys, "pool")
    assert code == 2
    assert "Did you mean 'pools'?" in err


@pytest.mark.parametrize("kind", ["systems", "datasets"])
def test_listing_loads_nothing_heavy(kind: str) -> None:
    code = (
        f"import sys; sys.argv = ['foveate', 'list', '{kind}', '--json']\n"
        "import foveate.cli\n"
        "try:\n    foveate.cli.main()\nexcept SystemExit:\n    pass\n"
        "heavy = ('torch', 'numpy', 'pandas', 'timm', 'sklearn', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert len(json.loads(done.stdout)) > 20
