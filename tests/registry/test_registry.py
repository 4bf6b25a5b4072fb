"""Things by name: loaded when asked for, listed once, added by other packages without breaking anything."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest

from foveate.errors import DataError, FoveateError
from foveate.registries import KINDS, POOLS, SYSTEMS
from foveate.registry import BrokenEntryPoint, Registry


@pytest.fixture
def shapes() -> Registry[Any]:
    return Registry("shape", "shapes")


def test_a_thing_is_found_whatever_the_case(shapes: Registry[Any]) -> None:
    shapes.add("Counter", Counter)
    assert shapes.get("Counter") is shapes.get("counter") is shapes.get("COUNTER") is Counter
    assert "counter" in shapes
    assert "other" not in shapes
    assert 3 not in shapes


def test_names_are_sorted_and_counted(shapes: Registry[Any]) -> None:
    for name in ("c", "a", "b"):
        shapes.add(name, Counter)
    assert shapes.names() == list(shapes) == ["a", "b", "c"]
    assert len(shapes) == 3


def test_an_unknown_name_gets_a_suggestion_and_the_list(shapes: Registry[Any]) -> None:
    shapes.add("square", Counter)
    shapes.add("circle", OrderedDict)
    with pytest.raises(FoveateError, match=r"unknown shape 'sqare'\. Did you mean 'square'\? Known: circle, square\."):
        shapes.get("sqare")


def test_a_registry_may_have_its_own_error_and_hint() -> None:
    shapes: Registry[Any] = Registry("shape", "shapes", error=DataError, hint="Draw one yourself.")
    with pytest.raises(DataError, match=r"Known: none\. Draw one yourself\.$"):
        shapes.get("x")


def test_an_address_is_imported_when_the_thing_is_asked_for(
    shapes: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazily_listed.py").write_text("class Holder:\n    thing = object()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shapes.add("held", "lazily_listed:Holder.thing", "a thing inside a class")
    assert shapes.names() == ["held"]
    assert shapes.summaries() == {"held": "a thing inside a class"}
    assert shapes.name_of(object()) is None
    assert "lazily_listed" not in sys.modules
    thing = shapes.get("held")
    assert thing is sys.modules["lazily_listed"].Holder.thing
    assert shapes.name_of(thing) == "held"


def test_a_thing_has_its_name_before_the_registry_loaded_it(shapes: Registry[Any]) -> None:
    shapes.add("counter", "collections:Counter")
    assert shapes.name_of(Counter) == "counter"


def test_an_address_that_is_none_is_refused(shapes: Registry[Any]) -> None:
    with pytest.raises(FoveateError, match=r"'package.module:attribute'"):
        shapes.add("x", "collections.Counter")


@pytest.mark.parametrize("address", ["no_such_module_here:x", "collections:NoSuch"])
def test_an_address_that_leads_nowhere_says_so(shapes: Registry[Any], address: str) -> None:
    shapes.add("x", address)
    with pytest.raises(FoveateError, match=f"shape 'x' cannot be loaded from {address}"):
        shapes.get("x")


def test_a_taken_name_is_refused_and_both_are_named(shapes: Registry[Any]) -> None:
    shapes.add("Round", Counter)
    with pytest.raises(FoveateError, match=r"'Round' already, collections:Counter; collections:OrderedDict needs"):
        shapes.add("round", OrderedDict)
    with pytest.raises(FoveateError, match="collections:OrderedDict"):
        shapes.add("round", "collections:OrderedDict")
    assert shapes.get("round") is Counter


def test_two_nameless_functions_are_two_things(shapes: Registry[Any]) -> None:
    shapes.add("x", lambda: 1)
    with pytest.raises(FoveateError, match="already"):
        shapes.add("x", lambda: 2)


def test_the_same_again_is_no_mistake(shapes: Registry[Any]) -> None:
    shapes.add("counter", "collections:Counter", "counts")
    shapes.add("counter", Counter)
    shapes.add("counter", "collections:Counter")
    assert shapes.get("counter") is Counter
    assert shapes.summaries() == {"counter": "counts"}


def test_a_class_may_list_itself_while_its_module_runs(
    shapes: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "listing_itself"
    package.mkdir()
    (package / "__init__.py").write_text("from listing_itself.inside import Thing\n")
    (package / "inside.py").write_text(
        "import builtins\nclass Thing:\n    '''A thing.'''\nbuiltins.listing_shapes.add('Thing', Thing)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.listing_shapes", shapes, raising=False)
    shapes.add("Thing", "listing_itself:Thing")  # the package shows what the module inside holds
    assert shapes.get("thing") is sys.modules["listing_itself.inside"].Thing
    assert shapes.summaries() == {"Thing": "A thing."}


def test_what_is_removed_is_gone(shapes: Registry[Any]) -> None:
    shapes.add("x", Counter)
    shapes.remove("X")
    assert not shapes.names()
    with pytest.raises(FoveateError, match="unknown shape 'x'"):
        shapes.remove("x")


# -- entry points ---------------------------------------------------------------------------


def _install(folder: Path, package: str, points: str) -> None:
    """What pip leaves of a package: its metadata."""
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)


def test_entry_points_are_read_once_and_not_imported(
    shapes: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, "more-shapes", "[foveate.shapes]\nstar = more_shapes_module:Star\n")
    (tmp_path / "more_shapes_module.py").write_text("class Star: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    reads = []
    real = importlib.metadata.entry_points
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **how: reads.append(how) or real(**how))
    assert shapes.summaries() == {"star": "from more-shapes 1.2"}
    assert "more_shapes_module" not in sys.modules
    assert shapes.get("star").__name__ == "Star"
    assert list(shapes.things()) == ["star"]
    assert reads == [{"group": "foveate.shapes"}]


def test_a_broken_entry_point_is_a_warning_that_names_its_package(
    shapes: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(
        tmp_path,
        "broken-shapes",
        "[foveate.shapes]\nodd = not an address\nround = elsewhere:Round\nburst = broken_shapes_module:Burst\n",
    )
    (tmp_path / "broken_shapes_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shapes.add("round", Counter)
    with pytest.warns(BrokenEntryPoint) as seen:
        assert shapes.get("round") is Counter
    said = [str(w.message) for w in seen]
    assert len(said) == 2
    assert all("broken-shapes" in line for line in said)
    assert "not an address" in said[0]
    assert "collections:Counter" in said[1]
    assert "elsewhere:Round" in said[1]
    with pytest.warns(BrokenEntryPoint, match="'burst' of the package broken-shapes .* ZeroDivisionError"):
        assert list(shapes.things()) == ["round"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert list(shapes.things()) == ["round"]
    with pytest.raises(FoveateError, match=r"'burst' cannot be loaded .*broken-shapes.*ZeroDivisionError"):
        shapes.get("burst")


# -- the lists --------------------------------------------------------------------------------


def test_there_is_one_registry_a_column() -> None:
    assert list(KINDS) == [
        "looks", "restrictions", "extractors", "pools", "decisions", "systems", "datasets", "metrics",
    ]  # fmt: skip
    assert all(registry.group == f"foveate.{plural}" for plural, registry in KINDS.items())


@pytest.mark.parametrize("plural", KINDS)
def test_every_line_resolves_and_says_what_it_is(plural: str) -> None:
    registry = KINDS[plural]
    for name, thing in registry.things().items():
        assert registry.name_of(thing) == name
    for name, summary in registry.summaries().items():
        assert summary, name
        assert "\n" not in summary
        assert len(summary) <= 100, name


def test_systems_holds_the_listed_systems_and_nothing_else() -> None:
    from foveate import systems

    found = set()
    for file in pkgutil.iter_modules(systems.__path__):
        module = importlib.import_module(f"foveate.systems.{file.name}")
        for name, kind in vars(module).items():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, systems.System):
                found.add(name)
    assert len(found) > 20
    assert found == set(SYSTEMS) - {"Pipeline"}  # which is any combination, and stands with the machinery
    assert all("needs" in vars(SYSTEMS.get(name)) for name in found), "every named system says what labels it consumes"


def test_every_pool_is_listed() -> None:
    from foveate import pool

    building_block = {"CrossAttention", "Pool"}
    assert {kind.__name__ for kind in POOLS.things().values()} == set(pool.__all__) - building_block


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from foveate.registries import KINDS; [r.summaries() for r in KINDS.values()]\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'timm', 'sklearn') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
