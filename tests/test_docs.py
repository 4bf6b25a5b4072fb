"""The documentation is true: its code runs, its links lead somewhere, every public name has an entry."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import foveate as fv
from foveate.errors import DataError

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
        code = compile(block, str(page.relative_to(ROOT)), "exec")
        if page.parent.name == "datasets":  # they are not here: the code must come as far as saying so
            monkeypatch.setenv("HOME", str(tmp_path))
            with pytest.raises(DataError):
                exec(code, {})
        else:
            exec(code, {})


def photos(folder: Path, each: int = 12) -> Path:
    """A folder as a new user has one: ``split/class/file``, drawn animals instead of photographs."""
    from PIL import Image

    data = fv.data.critters(train=4 * each, target=0, val=0, test=2 * each)
    for split in ("train", "test"):
        for i in range(len(data[split])):
            sample = data[split][i]
            place = folder / split / data.train.class_names[sample.label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(place / f"{i}.png")
    return folder


NETWORK = """
import torch

network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 8, 8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2)
)
"""


def test_the_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's ten lines with a network and photos of one's own, at a size that fits a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    photos(tmp_path / "photos")
    (tmp_path / "my_project.py").write_text(NETWORK)
    (block,) = blocks(ROOT / "README.md")
    small = block.replace('["cat", "dog"], image_size=224', '["cat", "duck"], image_size=64')
    small = small.replace("fv.A2()", 'fv.A2("micro-vit", "micro-vit", crops=(32,), progress=False)')
    assert small.count("micro-vit") == 2
    assert "image_size=64" in small
    exec(compile(small, "README.md", "exec"), {})
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.gate
def test_the_way_of_own_photos(tmp_path: Path) -> None:
    """The tutorial's commands, as they stand there: four to a verdict, two more to another model."""
    page = (ROOT / "docs" / "tutorials" / "own-photos.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", page, flags=re.M | re.S) for line in block.splitlines()]
    assert [line.split()[1] for line in lines] == ["data", "fit", "eval", "audit", "fit", "audit"]
    photos(tmp_path / "photos", each=24)
    small = {
        "--backbone resnet18": "--backbone micro_resnet --epochs 1",
        "--system A2": "--system A2 --set attention=micro-vit --set embedder=micro-vit --set crops=[32]",
    }
    for line in lines:
        for usual, tiny in small.items():
            line = line.replace(usual, tiny)
        code = "from foveate.cli import main; main()"
        command = [sys.executable, "-c", code, *line.split()[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, (line, done.stdout[-800:], done.stderr[-800:])
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "models" / "a2" / "system.json").exists()


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


def test_no_page_stands_twice_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = re.findall(r"([\w./-]+\.md)\s*$", nav, flags=re.M)
    assert len(pages) > 40
    assert sorted({page for page in pages if pages.count(page) > 1}) == []


@pytest.mark.gate
def test_the_site_builds_and_asks_for_nothing(tmp_path: Path) -> None:
    """Strictly: a dead link or a missing reference ends the build. No page loads anything from another host."""
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)], cwd=ROOT, check=True)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?https?:|<link[^>]*\shref=\"?https?:(?!//[^>]*canonical)"
    )
    for page in pages:
        assert not loads.search(page.read_text(encoding="utf-8")), page.relative_to(tmp_path)


def yaml_blocks(page: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", [p for p in PAGES if yaml_blocks(p)], ids=lambda p: str(p.relative_to(ROOT / "docs")))
def test_yaml_is_understood(page: Path) -> None:
    """Studies pass the bench's own check, a reader's own systems apart; anything else is YAML at least."""
    import yaml

    for text in yaml_blocks(page):
        found = yaml.safe_load(text)
        if "methods" in found:
            assert fv.bench.parse_spec(re.sub("system: (MySystem|Keyhole)", "system: ERM", text), page.name).methods


def test_commands_on_the_pages_exist() -> None:
    """Every ``foveate …`` line in a block names a command that is there, and options that it has."""
    from docs.make import commands

    known = {name: {o for p in c.params for o in [*p.opts, *p.secondary_opts]} for name, c in commands.commands()}
    for page in [ROOT / "README.md", *PAGES]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.M | re.S):
            if kind not in ("", "sh", "bash", "text"):
                continue
            for line in re.findall(r"^\$?\s*(foveate .*)$", block, flags=re.M):
                words = line.split("#")[0].split()
                name = max((n for n in known if " ".join(words).startswith(f"{n} ") or " ".join(words) == n), key=len)
                assert name != "foveate" or words[1].startswith("-"), f"{page.name}: {line}"
                options = {word.split("=")[0] for word in words if word.startswith("--")}
                assert options <= known[name] | {"--help", "--debug"}, f"{page.name}: {line}"


def test_pictures_are_drawn_by_the_code_that_is_here() -> None:
    """``python -m examples NAME`` (and ``python -m examples.poster``) draws what this finds stale."""
    from examples import gallery

    there = {name: gallery.PICTURES / f"{name}.png" for name in gallery.names()}
    assert len(there) >= 10
    stale = [name for name, path in there.items() if gallery.drawn_by(path) != gallery.stamp("shared", name)]
    assert stale == []
    posters = [gallery.PICTURES / f"poster-{skin}.png" for skin in ("light", "dark")]
    assert {gallery.drawn_by(path) for path in posters} == {gallery.stamp("shared", "poster")}
    assert max(path.stat().st_size for path in [*there.values(), *posters]) < gallery.LARGEST


def test_the_readme_s_table_of_methods_is_that_of_the_results() -> None:
    """``python -m examples.methods_table`` writes it again."""
    from examples import methods_table

    assert methods_table.MARK.findall((ROOT / "README.md").read_text(encoding="utf-8")) == [methods_table.table()]
    assert methods_table.table().count("[") >= 10


def test_the_readme_table_is_that_of_the_demo() -> None:
    """``python -m examples.demo_table`` writes it, and what is said of the cure, again."""
    from examples import demo_table

    from foveate.cli.demo import SYSTEMS

    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {name: mark.findall(page) for name, mark in demo_table.MARKS.items()} == {
        name: [text] for name, text in demo_table.texts().items()
    }
    assert {name for names in demo_table.QUESTIONS.values() for name in names} == set(SYSTEMS)
    assert set(demo_table.rows()) == {*SYSTEMS, demo_table.CURE}


def test_the_readme_takes_over_what_the_demo_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import demo_table

    (tmp_path / "README.md").write_text("a\n<!-- demo -->\n<!-- /demo -->\nb\n<!-- cure -->\nold\n<!-- /cure -->\n")
    (tmp_path / "demo.csv").write_text(demo_table.FIGURES.read_text(encoding="utf-8"))
    figures = {name: dict.fromkeys(demo_table.COLUMNS, 0.25) for name in demo_table.rows()}
    figures["cure"]["worst_group"] = 0.777
    told = {"seed": 0, "strength": 0.95, "test": figures}
    (tmp_path / "figures.json").write_text(json.dumps(told))
    monkeypatch.setattr(demo_table, "ROOT", tmp_path)
    monkeypatch.setattr(demo_table, "FIGURES", tmp_path / "demo.csv")
    monkeypatch.setattr(sys, "argv", ["demo_table", str(tmp_path)])
    demo_table.main()
    page = (tmp_path / "README.md").read_text()
    assert "worst group went from 25.0 to 77.7 in this run, its average from 25.0 to 25.0" in " ".join(page.split())
    assert page.count("| 25.0 | 25.0 | 25.0 |") == 8
    assert "old" not in page
    (tmp_path / "figures.json").write_text(json.dumps({**told, "seed": 1}))
    with pytest.raises(SystemExit, match="seed 0"):
        demo_table.main()


@pytest.mark.gate
def test_examples_of_the_gallery_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import gallery

    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    for name in [*gallery.names(), "poster"]:
        figure = importlib.import_module(f"examples.{name}").draw(small=True)
        assert gallery.save(figure, name, out=tmp_path).stat().st_size > 2000, name


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_run(path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in shown if out["output_type"] == "error"]
    assert any("text/html" in out.get("data", {}) for out in shown)
    assert any("image/png" in out.get("data", {}) for out in shown)


def test_saved_outputs_belong_to_the_notebooks() -> None:
    """A notebook is shown with the outputs it was saved with: every code cell was run, in order, without an error."""
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
        assert not [out for cell in cells for out in cell["outputs"] if out["output_type"] == "error"]


QUOTES = (
    "weights or images were not had", "one verdict a model", "What was chosen by", "so pretrained does not survive",
    "It calls nobody", "a folder an entry", "names them rightly", "with that of an image it takes for another class",
)  # fmt: skip


def test_no_sentence_that_was_struck_comes_back() -> None:
    places = [ROOT / "README.md", *PAGES, *(ROOT / "benchmarks").rglob("*.md")]
    places += [p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".html", ".md")]
    for path in places:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert not [quote for quote in QUOTES if quote in text], path
