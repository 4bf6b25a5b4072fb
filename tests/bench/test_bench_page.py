"""The results page: from specs and exported records alone, always the same, and never stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate.bench.page import find_specs, open_study, results_page
from foveate.bench.records import Record, write_csv
from foveate.bench.spec import read_spec
from foveate.cli.bench import bench_app
from foveate.errors import FoveateError

pytest.importorskip("yaml", reason="specs need the extra [bench]")

ROOT = Path(__file__).parents[2]
SPEC = """
name: small
about: two ways to read drawn animals.
datasets:
  first: {name: critters, options: {train: 40, size: 32}}
  second: {name: critters, select: average}
seeds: [0, 1]
select: worst_group
methods:
  full: {system: FullImage, settings: {embedder: micro-vit}}
  crop: {system: CentreCrop, settings: {embedder: micro-vit}, datasets: [first]}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two specs, records of one of them, pictures and notes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "small.yaml").write_text(SPEC, encoding="utf-8")
    other = SPEC.replace("name: small", "name: small-first").replace("about: two", "about: other")
    (tmp_path / "specs" / "other.yaml").write_text(other, encoding="utf-8")
    spec = read_spec(tmp_path / "specs" / "small.yaml")
    rows = [
        Record(
            "small", spec.digest(dataset, method), dataset, method, seed, {}, state=state, score=0.5,
            metrics={"worst_group": value}, supervision="train: labels", command=f"run {dataset}", commit=f"c{seed}",
        )
        for dataset, method, seed, state, value in [
            ("first", "full", 0, "done", 0.2), ("first", "full", 1, "done", 0.4), ("first", "crop", 0, "done", 0.9),
            ("second", "full", 1, "failed", 0.0),
        ]
    ]  # fmt: skip
    write_csv(tmp_path / "records" / "small.csv", rows)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    for name in ("small-first-gradcam", "small-first-cep", "small-first-first-cep", "unrelated"):
        (tmp_path / "docs" / "figures" / f"{name}.png").write_bytes(b"")
    (tmp_path / "notes.md").write_text("## Notes\n\nMind the gap.\n", encoding="utf-8")
    return tmp_path


def test_by_hand(place: Path) -> None:
    text = results_page([Path("specs")], Path("records"), Path("docs/results.md"), Path("notes.md"))
    shown, _, study = text.partition("## small\n\n")
    assert "## small-first\n\nother ways to read drawn animals. [Spec](../specs/other.yaml)." in shown
    assert shown.endswith("*not run*\n\n")  # without records, whatever pictures there are
    assert study == (
        "two ways to read drawn animals. [Spec](../specs/small.yaml).\n\n"
        "### first\n\n`critters`: train 40, size 32; selected on worst group\n\n"
        "| method | worst group | seeds | labels used |\n| --- | --- | --- | --- |\n"
        "| full | 30.0 ± 14.1 | 2 | train: labels |\n| crop | **90.0** | 1 | train: labels |\n\n"
        "*not run: crop (seed 1)*\n\n"
        "![CEP of the units of each level, by method](figures/small-first-cep.png)\n\n"
        "![Grad-CAM of each method on test images of minority groups](figures/small-first-gradcam.png)\n\n"
        "### second\n\n`critters`; selected on average\n\n*not run: full (seed 0); failed: full (seed 1)*\n\n"
        "```sh\nrun first  # c0, c1\nrun second  # c1\n```\n\n"
        "## Notes\n\nMind the gap.\n"
    )  # fmt: skip


def test_the_command(place: Path) -> None:
    (place / "records" / "notes.md").write_text("## Beside\n", encoding="utf-8")
    done = CliRunner().invoke(bench_app, ["page", "specs", "--records", "records"], catch_exceptions=False)
    assert done.output == "wrote docs/results.md\n"
    written = Path("docs/results.md").read_text(encoding="utf-8")
    assert written == results_page([Path("specs")], Path("records"), Path("docs/results.md"))
    assert written.endswith("\n\n## Beside\n")


def test_records_of_an_earlier_spec_are_marked(place: Path) -> None:
    path = place / "specs" / "small.yaml"
    path.write_text(SPEC.replace("train: 40", "train: 48"), encoding="utf-8")
    study = open_study(path, place / "records")
    assert (len(study.records), study.older) == (4, 3)
    text = results_page([path], place / "records", place / "docs" / "results.md")
    assert "3 of 4 records carry the digest of an earlier state of the spec" in text
    # once there is one of the present state, the old ones are gone
    fresh = Record(
        "small", study.spec.digest("first", "full"), "first", "full", 0, {}, score=1.0, metrics={"average": 1.0}
    )
    write_csv(place / "records" / "small.csv", [*study.records, fresh])
    again = open_study(path, place / "records")
    assert (len(again.records), again.older) == (3, 1)
    assert [r for r in again.records if r.method == "full" and r.dataset == "first"] == [fresh]


def test_mistakes(place: Path) -> None:
    out = Path("docs/results.md")
    Path("specs/twin.yaml").write_text(SPEC, encoding="utf-8")
    with pytest.raises(FoveateError, match=r"both have the name 'small'"):
        results_page([Path("specs")], Path("records"), out)
    with pytest.raises(FoveateError, match="no spec file"):
        find_specs([Path("docs")])
    with pytest.raises(FoveateError, match="cannot read the notes"):
        results_page([Path("specs/small.yaml")], Path("records"), out, Path("none.md"))


def test_the_page_is_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    out = Path("docs/results.md")
    page = results_page([Path("benchmarks/specs")], Path("benchmarks/records"), out)
    command = "foveate bench page benchmarks/specs"
    assert page == out.read_text(encoding="utf-8"), f"{out} is stale; run: {command}"
