"""The grid: what is left out and why, known rows under their names, and a small run end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from foveate.bench.features import Looker, SplitFeatures, _batch
from foveate.bench.grid import Combination, Grid, combinations, run_grid
from foveate.bench.records import Record
from foveate.errors import FoveateError
from foveate.extract import create_backbone
from foveate.extract import FrozenModel

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


def test_hidden_pixels_do_not_matter() -> None:
    vit = FrozenModel.open(create_backbone("micro_vit"))
    images, gaze = torch.rand(2, 3, 64, 64), torch.zeros(2, 8, 8)
    gaze[:, :4, :4] = 1.0  # a quarter of the patches, the share that is kept
    changed = images.clone()
    changed[:, :, 32:, 32:] = 0.0
    for restrict, same in (("tokens", True), ("crop", True), ("late", False)):
        with torch.no_grad():
            vectors, maps, visible = _batch(vit, images, gaze, restrict)
            again = _batch(vit, changed, gaze, restrict)
        assert torch.allclose(maps, again[1], atol=1e-5) == same, restrict
        if restrict != "crop":
            assert torch.equal(visible, gaze > 0)
            assert not maps.permute(0, 2, 3, 1)[~visible].any()
    assert vectors.shape == (2, vit.backbone.dim)


def test_the_mean_is_over_what_is_visible() -> None:
    maps = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    visible = np.array([[[True, False], [False, True]]])
    assert SplitFeatures(np.zeros((1, 1)), maps * visible[:, None], visible).mean().tolist() == [[1.5, 5.5]]


def test_attention_needs_a_vit() -> None:
    with pytest.raises(FoveateError, match="none of the backbones is a ViT"):
        Looker(None)("attention", torch.rand(1, 3, 8, 8), None)


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


def test_the_best_row_is_chosen_on_val() -> None:
    def record(look: str, restrict: str, decide: str, score: float, value: float) -> Record:
        point = {"look": look, "restrict": restrict, "extract": "vit", "pool": "own", "decide": decide, "vit": True}
        return Record("grid", "d", "x", str(point), 0, point, score=score, metrics={"worst_group": value})

    rows = [
        record("everywhere", "nothing", "logistic", 0.5, 0.4),
        record("everywhere", "nothing", "dfr", 0.4, 0.9),  # better on test only
        record("attention", "tokens", "dfr", 0.8, 0.7),
        record("truth", "tokens", "dfr", 0.9, 1.0),  # a bound, not a row
    ]
    text = "\n".join(Grid(rows).summary())
    assert "linear probe): worst_group 40.0" in text
    assert "the unpublished row is 30.0 points better" in text
