"""What committed records and the pages made of them must hold: whole settings, real commands, no typed figures."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import foveate.systems as systems
from foveate.bench.quoted import FIGURE
from foveate.bench.records import Record, read_csv

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "records"
STUDIES = sorted(p for p in RECORDS.glob("*.csv") if p.stem not in ("reproduction", "grid"))
NOTES = RECORDS / "notes.md"
TRAINING = ("epochs", "batch_size", "lr", "weight_decay", "optimizer", "schedule")
"""What must be known of everything that learns by gradient."""
SETTINGS = {"0.2", "0.3", "0.95", "2e-5", "1e-4"}
"""Numbers in the notes that are settings (or, 0.2, a figure of a trial whose record is gone), and not results."""


@pytest.fixture(params=STUDIES, ids=lambda path: path.stem)
def rows(request: pytest.FixtureRequest) -> list[Record]:
    return [r for r in read_csv(request.param) if r.state == "done"]


def test_every_row_has_all_its_settings(rows: list[Record]) -> None:
    for row in rows:
        kind = systems.get_system(row.system)
        wanted = [
            n for n in kind.setting_names() if n not in ("base", "store", "progress", "training", "seed", "select")
        ]
        wanted = [n for n in wanted if n not in ("workers", "keep_best")]
        if kind.trains():
            wanted += TRAINING
        missing = [n for n in wanted if n not in row.settings]
        # settings that a system has got since are not settings of an older run
        assert not [n for n in missing if n in TRAINING], f"{row.cell}: no {missing}"
        assert len(missing) <= 2, f"{row.cell}: no {missing}"


def test_every_row_can_be_made_again(rows: list[Record]) -> None:
    for row in rows:
        assert re.match(r"foveate bench run benchmarks/specs/[\w-]+\.yaml\b", row.command), row.command
        assert re.fullmatch(r"[0-9a-f]{7,}", row.commit), f"{row.cell} was made with uncommitted changes: {row.commit}"
        assert row.seconds > 0
        spec = row.command.split()[3]
        assert (ROOT / spec).exists(), f"{row.cell}: {spec} is gone"


def test_rows_of_studies_under_the_protocol_keep_their_answers() -> None:
    for path in (p for p in STUDIES if p.stem.startswith("pets-")):
        for row in read_csv(path):
            assert row.answers or row.state != "done", f"{path.name}: {row.cell}"


def test_the_notes_type_no_figures() -> None:
    """A result in running text is filled in from the records; what is left are settings and counts."""
    text = FIGURE.sub("", NOTES.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    typed = [n for n in re.findall(r"(?<![\w.])[-+]?\d*\.\d+|\d+e-\d+", text) if n not in SETTINGS]
    assert not typed, f"figures that no record gives: {typed}"
    assert not re.findall(r"\d+ / \d+", text), "figures of seeds are {seeds STUDY/DATASET: METHOD}"


def test_pages_quote_results_and_type_none() -> None:
    """Where results are told outside the page that is made from records, they are told in words and with a link."""
    told = (ROOT / "docs" / "a2.md").read_text(encoding="utf-8").partition("## What was measured")[2]
    assert "results.md#pets-a2" in told
    told = re.sub(r"`[^`]*`|\]\([^)]*\)", "", told)
    assert not re.findall(r"\d*\.\d+|\d+ / \d+|\(\d+\)", told)


def test_retired_rows_are_named_so() -> None:
    """Rows of a command that is gone are retired, by their file's name and on the page."""
    for path in (ROOT / "benchmarks" / "results").glob("*.csv"):
        text = path.read_text(encoding="utf-8")
        modules = set(re.findall(r"python -m (benchmarks\.\w+)", text))
        gone = [m for m in modules if not (ROOT / f"{m.replace('.', '/')}.py").exists()]
        assert path.stem.startswith("retired-") == bool(gone), f"{path.name}: {gone}"
    assert "retired-*.csv" in NOTES.read_text(encoding="utf-8")


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def test_protocols_are_older_than_their_records() -> None:
    """What a study asks was committed before the first of its records was made, by the history itself."""
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the whole history is not here")
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    studies = [path for path in STUDIES if f"\n## {path.stem}\n" in page]
    assert len(studies) >= 6
    for path in studies:
        written = _git(
            "log", "--reverse", "--format=%h", f"-S## {path.stem}\n", "--", "docs/protocol.md"
        ).stdout.split()
        assert written, f"{path.stem} has no protocol in the history"
        for commit in {record.commit for record in read_csv(path)}:
            older = _git("merge-base", "--is-ancestor", written[0], commit)
            assert older.returncode == 0, f"{path.stem}: {commit} does not come after {written[0]} {older.stderr}"
