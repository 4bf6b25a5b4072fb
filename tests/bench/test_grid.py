"""The grid: what is left out and why, named cells are the named systems, and a small run end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

import foveate as fv
from foveate.bench.grid import Combination, Grid, GridModel, combinations, run_grid
from foveate.bench.records import Record
from foveate.cli.main import app
from foveate.errors import FoveateError

BACKBONES = {"cnn": False, "vit": True}


def test_every_combination_is_valid_or_has_a_reason() -> None:
    found = list(combinations(BACKBONES, masks=True))
    assert len(found) == 4 * 4 * 2 * 4 * 3
    valid = [c for c, reason in found if reason is None]
    assert all((c.look == "everywhere") == (c.restrict == "nothing") for c in valid)
    assert all(c.vit for c in valid if c.restrict == "tokens")
    named = {c.known_as() for c in valid}
    assert {"linear probe", "DFR", "DAR", "A²-LR", "DFR + A²", "centre crop", "Glimpse"} <= named
    # the design's example of a row nobody has published
    one = Combination("attention", "tokens", "vit", "dar", "dfr", vit=True)
    assert one in valid
    assert not one.published
    assert all(reason for c, reason in combinations(BACKBONES, masks=False) if c.look == "truth")


@pytest.fixture(scope="module")
def bench() -> Any:
    return fv.data.critters(train=60, target=32, val=24, test=24, seed=1)


@pytest.fixture(scope="module")
def models(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, GridModel]:
    runs = tmp_path_factory.mktemp("runs")
    return {name: GridModel.open(name, bench, 1, 0, runs) for name in ("micro_resnet", "micro-vit")}


SYSTEMS: dict[str, Any] = {
    "linear probe": lambda m, look, how: fv.FullImage(m.frozen, **how),
    "DFR": lambda m, look, how: fv.DFR(m.base, **how) if m.base else fv.FullImage(m.frozen, head="dfr", **how),
    "DAR": lambda m, look, how: fv.DAR(m.base, **how),
    "AIM probe": lambda m, look, how: fv.AIMProbe(
        **({"base": m.base, "heads": 8} if m.base else {"backbone": m.name}), **how
    ),
    "centre crop": lambda m, look, how: fv.CentreCrop(m.frozen, crops=32, image_size=64, **how),
    "A²-LR": lambda m, look, how: fv.A2(look, m.frozen, crops=(32,), **how),
    "DFR + A²": lambda m, look, how: fv.A2(look, m.frozen, crops=(32,), head="dfr", **how),
    "Glimpse": lambda m, look, how: fv.Glimpse(look, m.frozen, keep=0.25, **how),
}


@pytest.mark.parametrize("backbone", ["micro_resnet", "micro-vit"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_named_cell_is_the_named_system_bit_for_bit(
    name: str, backbone: str, bench: Any, models: dict[str, GridModel], tmp_path: Path
) -> None:
    model, looker = models[backbone], models["micro-vit"].frozen
    cells = [c for c, bad in combinations({backbone: model.vit}, True) if bad is None and c.known_as() == name]
    if not cells:
        pytest.skip(f"{name} is not for this kind of network")
    (cell,) = cells
    how = {"store": str(tmp_path), "seed": 4, "progress": False}
    logits = []
    for system in (cell.build(model, looker, how), SYSTEMS[name](model, looker, how)):
        if system.post_hoc:
            system.fit(bench.target, val=bench.val)
        else:
            system.fit(bench.train, None if name == "AIM probe" else bench.target, bench.val)
        logits.append(system.predict_logits(bench.test))
    assert np.array_equal(*logits)


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (("centre", "crop", "own", "logistic"), "centre crop"),
        (("attention", "crop", "own", "dfr"), "DFR + A²"),
        (("attention", "tokens", "own", "logistic"), "Glimpse"),
        (("everywhere", "nothing", "own", "logistic"), "linear probe"),
    ],
)
def test_the_same_parts_in_a_pipeline_are_the_named_system(
    cell: tuple[str, ...], name: str, bench: Any, models: dict[str, GridModel], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What the grid composes for cells without a name would be the named system where there is one."""
    model, looker = models["micro-vit"], models["micro-vit"].frozen
    look, restrict, pool, decide = cell
    one = Combination(look, restrict, "micro-vit", pool, decide, vit=True)
    how = {"store": str(tmp_path), "seed": 4, "progress": False}
    named = SYSTEMS[name](model, looker, how).fit(bench.train, bench.target, bench.val)
    monkeypatch.setattr(Combination, "_named", lambda *args: None)
    composed = one.build(model, looker, how)
    assert isinstance(composed, fv.Pipeline)
    composed.fit(bench.train, bench.target, bench.val)
    assert np.array_equal(composed.predict_logits(bench.test), named.predict_logits(bench.test))


@pytest.mark.parametrize(("restrict", "same"), [("tokens", True), ("late", False)])
def test_hidden_pixels_do_not_matter(
    restrict: str, same: bool, bench: Any, models: dict[str, GridModel], tmp_path: Path
) -> None:
    """With the look held at the true mask, pixels that were not let through cannot move an early restriction."""
    one = Combination("truth", restrict, "micro-vit", "mean", "logistic", vit=True)
    system: Any = one.build(models["micro-vit"], None, {"store": str(tmp_path), "seed": 0, "progress": False})
    parts = system.fit(bench.train).parts_
    seen = torch.cat([bench.test[0].image[None].float() / 255, bench.test[0].mask[None, None].float()], 1)
    kept = parts.restrict(seen, parts.look(seen), parts.extract.shape, (0,)).mask
    hidden = F.interpolate(kept.float(), (64, 64))[0, 0] == 0
    changed = seen.clone()
    changed[0, :3, hidden] = 0.0
    with torch.no_grad():
        assert torch.equal(system._features(seen, (0,)), system._features(changed, (0,))) == same


def test_attention_needs_a_vit(tmp_path: Path) -> None:
    found = run_grid(
        "critters:train=20,target=16,val=16,test=16,size=32", backbones=["micro_resnet"], epochs=1, runs=tmp_path,
        only=["look=attention", "pool=own"], say=lambda line: None,
    )  # fmt: skip
    assert not found.records
    assert any("none of the backbones is a ViT" in reason for reason in found.skipped.values())


def test_a_small_grid_runs_and_resumes(tmp_path: Path) -> None:
    told: list[str] = []
    options = {
        "data": "critters:train=40,target=16,val=16,test=40", "backbones": ["micro-vit"], "runs": tmp_path,
        "only": ["look=everywhere", "look=attention", "restrict=nothing", "restrict=tokens", "pool=own", "pool=mean"],
    }  # fmt: skip
    found = run_grid(**options, say=told.append)  # type: ignore[arg-type]
    assert len(found.records) == len(told) == 2 * 2 * 2
    assert found.skipped
    again = run_grid(**options, say=told.append)  # type: ignore[arg-type]
    assert len(told) == 8
    assert again.mean("worst_group") == found.mean("worst_group")
    path = found.save(tmp_path / "grid.png")
    assert path.stat().st_size > 5000
    assert (tmp_path / "grid.csv").read_text().count("\n") == 9
    with pytest.raises(FoveateError, match="--only takes part=value"):
        run_grid(data="critters", only=["look=up"])


def record(look: str, restrict: str, decide: str, score: float, value: float) -> Record:
    point = {"look": look, "restrict": restrict, "extract": "vit", "pool": "own", "decide": decide, "vit": True}
    return Record("grid", "d", "x", str(point), 0, point, score=score, metrics={"worst_group": value})


ROWS = [
    record("everywhere", "nothing", "logistic", 0.5, 0.4),
    record("everywhere", "nothing", "dfr", 0.4, 0.9),  # better on test only
    record("attention", "tokens", "dfr", 0.8, 0.7),
    record("truth", "tokens", "dfr", 0.9, 1.0),  # a bound, not a row
]


def test_the_best_row_is_chosen_on_val() -> None:
    text = "\n".join(Grid(ROWS).summary())
    assert "linear probe): worst_group 40.0" in text
    assert "the unpublished row is 30.0 points better" in text


def test_the_grid_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(data: str, say: Any, **options: Any) -> Grid:
        say("a line for people")
        return Grid(ROWS, {"one": "a reason", "two": "another", "three": "a reason"})

    monkeypatch.setattr("foveate.bench.grid.run_grid", ran)
    words = ["bench", "grid", "critters", "--json", "--out", str(tmp_path / "grid.png"), "--runs", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [(row["look"], row["name"], row["val"], row["test"]) for row in told["combinations"]] == [
        ("everywhere", "linear probe", 0.5, 0.4), ("everywhere", "DFR", 0.4, 0.9), ("attention", None, 0.8, 0.7),
        ("truth", None, 0.9, 1.0),
    ]  # fmt: skip
    assert {label: row["name"] for label, row in told["best"].items()} == {
        "published": "linear probe", "unpublished": None,
    }  # fmt: skip
    assert told["skipped"] == {"a reason": 2, "another": 1}
    assert "a line for people" in done.stderr
    assert (tmp_path / "grid.png").is_file()
