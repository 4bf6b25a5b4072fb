"""Every Python block in the README and in docs/ runs, in order, one namespace a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    for block in blocks(page):
        exec(compile(block, str(page.relative_to(ROOT)), "exec"), {})


def test_the_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's ten lines at a size that fits a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    (block,) = blocks(ROOT / "README.md")
    small = block.replace("strength=0.95", "strength=0.95, size=32, train=200, target=80, val=80, test=80")
    small = small.replace("epochs=8", "epochs=1, progress=False").replace(
        "fv.DAR(erm)", "fv.DAR(erm, epochs=2, progress=False)"
    )
    assert small.count("progress=False") == 2
    exec(compile(small, "README.md", "exec"), {})
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *PAGES]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links {link}"
