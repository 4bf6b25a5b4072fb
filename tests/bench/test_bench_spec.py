"""Specs: every mistake is named with its line and field, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveate.bench.spec import parse_spec, read_spec
from foveate.bench.trial import Bench, Cell, cells
from foveate.errors import FoveateError

pytest.importorskip("yaml", reason="specs need the extra [bench]")

GOOD = """\
name: tiny
datasets:
  critters: {options: {train: 40}, core: masks}
  plain: {name: critters, training: {epochs: 2}}
network: {backbone: micro_resnet}
training: {epochs: 1, lr: 1e-3}
seeds: [0, 1]
select: worst_group
methods:
  base: {system: ERM}
  GroupDRO:
    system: GroupDRO
    grid:
      lr: [0.001, 0.01]
      batch_size: [8, 16]
  DFR: {system: DFR, grid: {refits: [1, 2]}}
  drawn: {system: ERM, search: tpe, trials: 5, space: {lr: {low: 1e-4, high: 1e-2, log: true}}}
"""


def test_a_good_spec() -> None:
    spec = parse_spec(GOOD)
    assert list(spec.sets()) == ["critters", "plain"]
    assert spec.sets()["plain"].name == "critters"
    assert spec.training_of("plain") == {"epochs": 2, "lr": 0.001}
    assert spec.methods["GroupDRO"].points()[1] == {"lr": 0.001, "batch_size": 16}
    assert spec.methods["GroupDRO"].searches_once
    assert not spec.methods["DFR"].searches_once


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "says"),
    [
        ("name: tiny", "name: Tiny One", 1, "name", "pattern"),
        ("name: tiny\n", "nmae: tiny\n", 1, "nmae", "Did you mean 'name'"),
        ("train: 40", "trian: 40", 3, "datasets.critters.options.trian", "Did you mean 'train'"),
        ("name: critters", "name: criters", 4, "datasets.plain.name", "Did you mean 'critters'"),
        ("lr: 1e-3", "lr: -1", 6, "training", "greater than 0"),
        ("[0, 1]", "[0, zero]", 7, "seeds.1", "integer"),
        ("[0, 1]", "[3, 3]", 7, "seeds.1", "second time"),
        ("{epochs: 2}}", "{epochs: 2}, seeds: [1, 1]}", 4, "datasets.plain.seeds.1", "second time"),
        ("{epochs: 2}}", "{epochs: 2}, select: avrage}", 4, "datasets.plain.select", "Did you mean 'average'"),
        ("worst_group", "worst_groop", 8, "select", "Did you mean 'worst_group'"),
        ("  base: {system: ERM}\n", "", 15, "methods.DFR", "starts from the method 'base'"),
        ("system: GroupDRO", "system: GropDRO", 12, "methods.GroupDRO.system", "Did you mean 'GroupDRO'"),
        ("[0.001, 0.01]", "\n      - 0.001\n      - x", 16, "methods.GroupDRO.grid.lr.1", "lr='x'"),
        ("batch_size: [8, 16]", "batch_sise: [8]", 15, "methods.GroupDRO.grid.batch_sise", "Did you mean"),
        ("batch_size: [8, 16]", "batch_size: []", 15, "methods.GroupDRO.grid.batch_size", "empty"),
        ("batch_size: [8, 16]", "seed: [8, 16]", 15, "methods.GroupDRO.grid.seed", "leave it out"),
        ("search: tpe, trials: 5", "search: tpe", 17, "methods.drawn.search", "give 'trials'"),
        ("search: tpe, trials: 5, ", "", 17, "methods.drawn.space", "grid search has neither"),
        ("high: 1e-2", "high: 1e-5", 17, "methods.drawn.space.lr", "low < high"),
        ("log: true", "log: true, step: 0.001", 17, "methods.drawn.space.lr", "has no step"),
        ("network: {backbone: micro_resnet}\n", "", 9, "methods.base", "trains a network"),
        ("refits: [1, 2]}}", "refits: [1, 2]}, datasets: [plian]}", 16, "methods.DFR.datasets.0", "mean 'plain'"),
        ("base: {system: ERM}", "base: {system: ERM, datasets: [plain]}", 16, "methods.DFR.datasets", "critters"),
    ],
)
def test_mistakes_are_named(old: str, new: str, line: int, field: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(FoveateError) as caught:
        parse_spec(GOOD.replace(old, new, 1), "my.yaml")
    text = str(caught.value)
    assert text.startswith(f"my.yaml, line {line}, {field}: "), text
    assert says in text


def test_what_is_not_yaml_and_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FoveateError, match=r"my.yaml, line 2: this is not YAML"):
        parse_spec("name: x\nmethods: {a: b", "my.yaml")
    with pytest.raises(FoveateError, match=r"line 2: 'name' is here a second time"):
        parse_spec("name: x\nname: y\n")
    with pytest.raises(FoveateError, match="cannot read"):
        read_spec(tmp_path / "none.yaml")
    with pytest.raises(FoveateError, match="could not determine a constructor"):
        parse_spec("name: !!python/object/apply:os.getcwd []")


def test_the_digest_covers_what_decides_and_nothing_else() -> None:
    spec = parse_spec(GOOD)
    more = parse_spec(GOOD.replace("seeds: [0, 1]", "seeds: [0, 1, 2]").replace("[1, 2]", "[1, 2, 3]"))
    for method in spec.methods:
        assert spec.digest("critters", method) == more.digest("critters", method)
    other = parse_spec(GOOD.replace("train: 40", "train: 48"))
    assert spec.digest("critters", "DFR") != other.digest("critters", "DFR")
    assert spec.digest("plain", "DFR") == other.digest("plain", "DFR")
    base = parse_spec(GOOD.replace("base: {system: ERM}", "base: {system: ERM, settings: {weight_decay: 0.1}}"))
    assert spec.digest("plain", "DFR") != base.digest("plain", "DFR")
    assert spec.digest("plain", "GroupDRO") == base.digest("plain", "GroupDRO")
    last = parse_spec(GOOD.replace("base: {system: ERM}", "base: {system: ERM, last: true}"))
    assert spec.digest("plain", "DFR") != last.digest("plain", "DFR")


def test_the_specs_of_the_repository_are_good() -> None:
    folder = Path(__file__).parents[2] / "benchmarks" / "specs"
    for path in folder.rglob("*.yaml"):
        assert read_spec(path).methods


def test_another_setting_or_another_folder_of_own_images_is_another_trial() -> None:
    methods = "methods:\n  full: {system: FullImage, settings: {embed_size: 64}}\n"
    text = "name: x\ndatasets:\n  mine: {name: own, root: A}\n" + methods
    one = parse_spec(text)
    assert one.digest("mine", "full") == parse_spec(text).digest("mine", "full")
    assert one.digest("mine", "full") != parse_spec(text.replace("64", "112")).digest("mine", "full")
    assert one.digest("mine", "full") != parse_spec(text.replace("root: A", "root: B")).digest("mine", "full")


def test_a_method_may_run_on_some_datasets_and_the_network_may_say_what_size_it_sees(tmp_path: Path) -> None:
    text = GOOD.replace("system: GroupDRO\n", "system: GroupDRO\n    datasets: [plain]\n")
    text = text.replace("{backbone: micro_resnet}", "{backbone: micro_resnet, image_size: 48}")
    spec = parse_spec(text + "  probe: {system: FullImage, settings: {embed_size: 32}}\n")
    found = {(cell.dataset, cell.method) for cell in cells(spec)}
    assert ("plain", "GroupDRO") in found
    assert ("critters", "GroupDRO") not in found
    assert ("critters", "DFR") in found
    few = parse_spec(GOOD.replace("{epochs: 2}}", "{epochs: 2}, seeds: [7]}"))
    assert {cell.seed for cell in cells(few) if cell.dataset == "plain"} == {7}
    assert [cell.seed for cell in cells(few) if (cell.dataset, cell.method) == ("critters", "DFR")] == [0, 1]
    assert few.digest("plain", "DFR") == parse_spec(GOOD).digest("plain", "DFR")
    by = parse_spec(GOOD.replace("{epochs: 2}}", "{epochs: 2}, select: average}"))
    assert (by.select_of("plain"), by.select_of("critters")) == ("average", "worst_group")
    assert by.digest("plain", "DFR") != few.digest("plain", "DFR")
    assert Bench(by, tmp_path).build(Cell("plain", "base", 0), {}).get_params()["select"] == "average"
    bench = Bench(spec, tmp_path)
    assert bench.build(Cell("plain", "base", 0), {}).get_params()["image_size"] == 48
    probe = bench.build(Cell("plain", "probe", 0), {}).get_params()
    assert (probe["embedder"], probe["embed_size"]) == ("micro_resnet", 32)
    assert spec.digest("plain", "GroupDRO") != parse_spec(GOOD).digest("plain", "GroupDRO")  # another size
    again = parse_spec(GOOD.replace("system: GroupDRO\n", "system: GroupDRO\n    datasets: [plain]\n"))
    assert again.digest("plain", "GroupDRO") == parse_spec(GOOD).digest("plain", "GroupDRO")


def test_a_part_of_a_spec_keeps_its_digests_and_the_base_it_needs() -> None:
    spec = parse_spec(GOOD)
    part = spec.part(["DFR"], ["plain"])
    assert {(cell.dataset, cell.method) for cell in cells(part)} == {("plain", "base"), ("plain", "DFR")}
    assert part.digest("plain", "DFR") == spec.digest("plain", "DFR")
    assert list(spec.part(["GroupDRO"]).methods) == ["GroupDRO"]
    assert spec.part() == spec
    with pytest.raises(FoveateError, match=r"no 'DRF'\. Did you mean 'DFR'"):
        spec.part(["DRF"])
    with pytest.raises(FoveateError, match=r"no 'plian'\. Did you mean 'plain'"):
        spec.part(datasets=["plian"])
