"""The documentation is true: its code runs, its links lead somewhere, every public name has an entry."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import foveate as fv

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SITE_MODULES = sorted(p.stem for p in (ROOT / "docs" / "make").glob("*.py") if p.stem not in ("__init__", "hooks"))


@pytest.fixture(autouse=True)
def _docs_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT / "docs")))
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
    """Pages that are made when the site is built are checked there (``make docs`` is strict)."""
    from docs.make.hooks import generated

    made = {ROOT / "docs" / address for address in generated()}
    for page in [ROOT / "README.md", *PAGES]:
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            there = (page.parent / link).resolve()
            assert there.exists() or there in made, f"{page.name} links {link}"


def test_every_public_name_has_an_entry() -> None:
    from docs.make import api

    found = api.documented()
    names = {address.rpartition(".")[2] for address in found}
    assert [name for name in fv.__dir__() if not name.startswith("_") and name not in {*names, *fv._FOLDERS}] == []
    for folder in fv._FOLDERS:
        public = getattr(importlib.import_module(f"foveate.{folder}"), "__all__", [])
        assert [name for name in public if f"foveate.{folder}.{name}" not in found] == []
    assert {*fv._FOLDERS} <= {*api.folders(), "systems"}


def test_every_command_and_option_has_an_entry() -> None:
    from docs.make import commands

    page = commands.page()
    for name, command in commands.commands():
        assert f"## {name}\n" in page
        section = page.split(f"## {name}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help" and not parameter.hidden:
                assert all(f"`{word}`" in section for word in parameter.opts), (name, parameter.opts)


def test_every_system_has_a_page_a_strip_and_a_row() -> None:
    """With everything that is made for it: a new system fails here until its page is written."""
    from docs.make import hooks, strip

    pages = {}
    for page in (ROOT / "docs" / "methods").glob("*.md"):
        marks = hooks.MARK.findall(page.read_text(encoding="utf-8"))
        (name,) = {name for _, name in marks}
        pages[name] = {kind for kind, _ in marks}
        made = hooks.expanded(page.read_text(encoding="utf-8"))
        assert "<!--" not in made
        assert "<svg" in made
        assert "| setting |" in made
    systems = set(fv.systems.list_systems())
    assert systems - set(pages) == set(), "write docs/methods/NAME.md and add it to mkdocs.yml"
    assert systems == set(pages) == set(strip.STRIPS)
    assert all(kinds == set(hooks.MAKERS) for kinds in pages.values())
    overview = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| \[`(\w+)`\]\(methods/", overview, flags=re.M)) == systems


def test_equations_are_understood() -> None:
    """What the converter does not know stays LaTeX, with a backslash in front."""
    from docs.make import mathml

    for page in PAGES:
        for latex in re.findall(r"^\$\$\n(.*?)^\$\$", page.read_text(encoding="utf-8"), flags=re.M | re.S):
            made = mathml.replaced(f'<div class="arithmatex">\\[{latex}\\]</div>')
            assert made.startswith("<math"), page
            assert "\\" not in made, (page, latex)


@pytest.mark.parametrize("module", SITE_MODULES)
def test_examples_of_the_site_builder(module: str) -> None:
    found: Any = importlib.import_module(f"docs.make.{module}")
    failed, _ = doctest.testmod(found, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.gate
def test_the_site_builds_and_asks_for_nothing(tmp_path: Path) -> None:
    """Strictly: a dead link or a missing reference ends the build. No page loads anything from another host."""
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(tmp_path)], cwd=ROOT, check=True)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?https?:|<link[^>]*\shref=\"?https?:(?!//[^>]*canonical)"
    )
    for page in pages:
        assert not loads.search(page.read_text(encoding="utf-8")), page.relative_to(tmp_path)
