"""The findings as types: levels and cues of small audits, the form of the JSON, and a cue that is new."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.report import Audit
from foveate.report.advice import Step
from foveate.report.discovery.cues import BY_KEY, CUES, EXCHANGED, Cue
from foveate.report.discovery.cues.cue import by_image
from foveate.report.findings import Findings
from foveate.report.levels import Agreement, Evidence, Level
from foveate.report.sentences.verdict import _OF_CASE
from foveate.report.verdict import Case

SIDE, N = 32, 200


def images(*, attributes: bool, strength: float, seed: int = 0) -> GroupedDataset:
    """A red or blue square (the class) on a green or purple scene that goes with it as often as ``strength``."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % 2
    scene = np.where(rng.random(N) < strength, labels, 1 - labels)
    pixels = np.zeros((N, SIDE, SIDE, 3), np.float64)
    pixels[:] = np.where(scene[:, None, None, None], [60, 150, 60], [140, 60, 140])
    masks = np.zeros((N, SIDE, SIDE), np.uint8)
    for i in range(N):
        y, x = rng.integers(8, 15, 2)
        pixels[i, y : y + 9, x : x + 9] = [230, 40, 40] if labels[i] else [40, 40, 230]
        masks[i, y : y + 9, x : x + 9] = 255
    pixels = np.clip(pixels + rng.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8)
    more: dict[str, Any] = {"attributes": scene, "attribute_names": ["purple", "green"]} if attributes else {}
    return GroupedDataset(
        ArrayImages(pixels, "toy"), labels, ["blue", "red"], masks=ArrayImages(masks), name="toy", **more
    )


def model(score: Any) -> fv.Wrapped:
    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    return fv.wrap(lambda x: torch.stack([-score(x), score(x)], 1), ["blue", "red"], preprocess=view)


def reads_scene(x: Tensor) -> Tensor:  # away from corners and border, which have experiments of their own
    around = x[:, :, 2:7, 8:-8].mean((2, 3))
    return 8 * (around[:, 1] - 0.5 * around[:, 0] - 0.5 * around[:, 2])


def reads_object(x: Tensor) -> Tensor:
    return 60 * ((x[:, 0] - x[:, 2]).clamp(min=0.3) - 0.3).mean((1, 2)) - 0.8


@pytest.fixture(scope="module")
def audits() -> dict[str, Audit]:
    models = {"scene": model(reads_scene), "object": model(reads_object)}
    given = images(attributes=True, strength=0.5)
    return {
        "with": fv.audit(models, given, attribute="scenery", train_counts=[[95, 5], [5, 95]], examples=1),
        "without": fv.audit(models, images(attributes=False, strength=0.95), examples=1),
    }


def test_levels_and_cues_of_a_small_audit(audits: dict[str, Audit]) -> None:
    """What a verdict is, is in its fields; these may only change on purpose."""
    scene, other = (audits["with"].verdicts[name] for name in ("scene", "object"))
    assert (scene.level, scene.evidence, scene.agreement) == (Level.FOUND, Evidence.TRAINING, Agreement.AGREE)
    assert (scene.case, [s.cue for s in scene.accused]) == (Case.GROUPS_LEAD, [BY_KEY["background"]])
    assert scene.levels == {"groups": Level.FOUND, "experiments": Level.FOUND}
    assert (other.level, other.agreement, other.case, other.accused) == (Level.NONE, Agreement.AGREE, Case.NOTHING, [])
    scene, other = (audits["without"].verdicts[name] for name in ("scene", "object"))
    assert (scene.level, scene.evidence, scene.case) == (Level.FOUND, Evidence.EXPERIMENT, Case.EXPERIMENTS_ALONE)
    assert [s.key for s in scene.accused] == ["background"]
    assert scene.levels == {"groups": Level.UNTESTED, "experiments": Level.FOUND}
    assert (other.level, other.accused, other.guessing) == (Level.NONE, [], False)
    for audit in audits.values():
        by_key = {s.key: s for s in audit.discoveries["scene"].judgement.suspects}
        assert by_key["colour"].explained_by == BY_KEY["background"]
        apart = {s.level for s in by_key.values() if s.key != "background" and s.explained_by is None}
        assert apart <= {Level.NONE, Level.UNCLEAR, Level.UNTESTED}


def test_advice_follows_the_verdict(audits: dict[str, Audit]) -> None:
    steps = [advice.step for advice in audits["with"].findings.advice]
    assert steps == [Step.CURE, Step.DAR, Step.A2, Step.IFAM, Step.A2_ZERO_SHOT, Step.AUDIT_AGAIN]
    assert [advice.step for advice in audits["without"].findings.advice[:2]] == [Step.CURE, Step.MAKE_GROUPS]
    assert audits["without"].findings.advice[0].command == "foveate cure MODEL DATA --out cured"


ROOT = {
    "schema_version", "title", "foveate", "date", "attribute", "dataset", "training", "models", "verdict",
    "examples_by", "examples", "unreadable", "notes", "advice", "warnings",
}  # fmt: skip
MODEL = {
    "name", "needs", "average", "adjusted_average", "worst_group", "worst_class", "majority", "minority",
    "ifam_worst_group", "n", "skipped", "unanswered", "unanswered_by_class", "unanswered_images", "groups", "classes",
    "empty_groups", "worst", "confusion", "verdict", "gaze", "discovery",
}  # fmt: skip
VERDICT = {
    "level", "headline", "sentences", "evidence", "sides", "gap", "measured", "agreement", "levels", "compared", "cues",
    "guessing", "plain", "numbers", "smallest_gap",
}  # fmt: skip
DISCOVERY = {
    "level", "shortcuts", "suspects", "objects", "mask_tests", "errors", "attribute", "slices", "turned", "held",
}  # fmt: skip
SUSPECT = {"key", "name", "level", "explained_by", "holds", "pull", "label", "answers", "smallest_found"}
PULL = {"cue", "n", "value", "low", "high", "p", "same", "other", "adjusted", "planned", "generous"}


def test_the_json_keeps_its_keys_and_says_its_version(audits: dict[str, Audit], tmp_path: Path) -> None:
    """A key that goes away or means something else needs a new version."""
    read = json.loads(audits["with"].save(tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert read["schema_version"] == 2
    assert set(read) == ROOT
    entry = read["models"][0]
    assert set(entry) >= MODEL
    assert set(entry["verdict"]) == VERDICT
    assert set(entry["verdict"]["sides"][0]) == {"name", "correct", "n", "accuracy", "low", "high"}
    assert set(entry["verdict"]["gap"]) == {"value", "low", "high"}
    assert set(entry["discovery"]) == DISCOVERY
    tested = [s for s in entry["discovery"]["suspects"] if s["pull"] is not None]
    assert all(set(s) == SUSPECT and set(s["pull"]) == PULL for s in tested)
    assert [s["pull"]["cue"] for s in tested] == [s["key"] for s in tested]
    assert (entry["verdict"]["level"], entry["verdict"]["cues"]) == ("found", ["background"])
    assert set(read["examples"][0]) == {"index", "where", "label", "attribute", "answers"}
    assert set(read["examples"][0]["answers"][0]) == {"model", "prediction", "probability", "right", "kind"}


def test_findings_come_back_from_their_json(audits: dict[str, Audit]) -> None:
    for audit in audits.values():
        assert Findings.model_validate_json(json.dumps(audit.to_dict())) == audit.findings
    told = Findings.model_json_schema()
    assert set(told["required"]) == ROOT - {"schema_version"}
    assert told["$defs"]["Level"]["enum"] == [level.value for level in Level]


def test_every_case_has_its_words() -> None:
    assert set(_OF_CASE) == set(Case)


def test_cues_are_told_apart_and_lie_inside_one_another() -> None:
    assert len(BY_KEY) == len(CUES)
    order = [cue.key for cue in EXCHANGED]
    for cue in EXCHANGED:
        if cue.part_of is not None:
            assert order.index(cue.key) < order.index(cue.part_of), "a part is tested before its whole"
        assert cue.aspect is None or cue.part_of is not None


def test_a_new_cue_is_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read, exchanged, named, written and advised on, with nothing but the cue itself."""

    def middle_line(height: int, width: int) -> Tensor:
        region = torch.zeros(height, width, dtype=torch.bool)
        region[2:5, width // 2 - 5 : width // 2 + 5] = True
        return region

    stripe = Cue(
        "stripe", "the stripe above the object", by_image(lambda small: [float(small[0, :, 6:15, 34:62].mean())]),
        lambda x, mask, donor, donor_mask: torch.where(middle_line(*x.shape[-2:]), donor, x), region=middle_line,
        part_of="background",
    )  # fmt: skip
    for module, name, value in (
        ("inquiry", "EXCHANGED", (stripe, *EXCHANGED)), ("discover", "EXCHANGED", (stripe, *EXCHANGED)),
        ("observations", "CUES", (stripe, *CUES)),
    ):  # fmt: skip
        monkeypatch.setattr(importlib.import_module(f"foveate.report.discovery.{module}"), name, value)
    plain = images(attributes=False, strength=0.5)
    pixels = np.stack([plain.images.read(i) for i in range(N)])
    marked = np.random.default_rng(1).random(N) < 0.5
    pixels[marked, 2:5, SIDE // 2 - 5 : SIDE // 2 + 5] = 255
    data = GroupedDataset(ArrayImages(pixels), plain.labels, plain.class_names, masks=plain.masks, name="striped")

    def reads_stripe(x: Tensor) -> Tensor:
        return 20 * (x[:, :, 2:5, SIDE // 2 - 5 : SIDE // 2 + 5].mean((1, 2, 3)) - 0.7)

    audit = fv.audit({"M": model(reads_stripe)}, data, examples=0)
    assert audit.verdict.startswith("M leans on the stripe above the object: ")
    (entry,) = audit.to_dict()["models"]
    assert entry["verdict"]["headline"] == "Leans on the stripe above the object"
    assert entry["verdict"]["cues"] == ["stripe"]
    assert "the stripe above the object" in audit.html()
    assert (audit.pseudo_groups().attributes == marked).mean() > 0.97
