"""A² with an adapter: it learns to look at what decides, and says what labels it used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.errors import DataError, FoveateError
from foveate.look import AttentionAdapter, candidate_grid, choose_crops, train_adapter
from foveate.look.adapter_training import AdapterSettings


def toy(n: int, strength: float, seed: int) -> dict[str, torch.Tensor]:
    """16 patches: a bright one that goes with the class (strength), a marked one that is the class, and noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    shortcut = torch.where(torch.rand(n, generator=generator) < strength, labels, 1 - labels)
    places = torch.stack([torch.randperm(16, generator=generator)[:2] for _ in range(n)])
    tokens = 0.1 * torch.randn(n, 16, 4, generator=generator)
    attention = 0.01 * torch.rand(n, 16, generator=generator)
    embeddings = 0.1 * torch.randn(n, 16, 3, generator=generator)
    row = torch.arange(n)
    tokens[row, places[:, 0], 0] += 1.0
    tokens[row, places[:, 1], 1] += 1.0
    attention[row, places[:, 0]] += 0.5
    embeddings[row, places[:, 0], 0] += 2.0 * shortcut - 1
    embeddings[row, places[:, 1], 1] += 2.0 * labels - 1
    return {"tokens": tokens, "attention": attention.view(n, 4, 4), "embeddings": embeddings, "labels": labels,
            "places": places}  # fmt: skip


def looks_at(adapter: AttentionAdapter, data: dict[str, torch.Tensor], place: int, boxes: torch.Tensor) -> float:
    with torch.no_grad():
        chosen = choose_crops(adapter(data["tokens"], data["attention"]), boxes, image_size=8)[:, 0]
    at = (chosen[:, 1] // 2) * 4 + chosen[:, 0] // 2
    return float((at == data["places"][:, place]).float().mean())


def test_training_moves_attention_from_the_shortcut_to_the_label() -> None:
    data, boxes = toy(400, strength=0.9, seed=0), candidate_grid(8, [(2, 4)])
    torch.manual_seed(0)
    adapter = AttentionAdapter(4)
    assert looks_at(adapter, data, 0, boxes) > 0.95, "default attention is on the shortcut"
    found = train_adapter(
        adapter,
        lambda i: (data["tokens"][i], data["attention"][i], data["embeddings"][i]),
        data["labels"],
        boxes,
        image_size=8,
        settings=AdapterSettings(steps=100, batch=64, samples=50),
    )
    assert looks_at(adapter, toy(200, 0.5, seed=1), 1, boxes) > 0.9
    assert np.mean(found.loss[-10:]) < 0.5 * np.mean(found.loss[:10])


def test_training_is_the_same_every_time_and_weights_count() -> None:
    data, boxes = toy(60, 0.9, 0), candidate_grid(8, [(2, 4)])

    def run(weights: torch.Tensor | None) -> list[float]:
        torch.manual_seed(0)
        read = lambda i: (data["tokens"][i], data["attention"][i], data["embeddings"][i])  # noqa: E731
        settings = AdapterSettings(steps=3, batch=20, samples=20)
        return train_adapter(
            AttentionAdapter(4), read, data["labels"], boxes, image_size=8, weights=weights, settings=settings
        ).loss

    assert run(None) == run(None)
    assert run(None) == pytest.approx(run(torch.ones(60)))
    assert run(None) != run(1.0 + 9.0 * data["labels"])


@pytest.fixture(scope="module")
def data() -> Benchmark:
    return fv.data.cue_critters(train=60, target=16, val=16, test=24)


@pytest.fixture(scope="module")
def vit() -> fv.extract.Backbone:
    torch.manual_seed(0)
    return fv.extract.create_backbone("micro_vit")


SHORT: dict[str, Any] = {
    "grids": [(16, 3), (32, 1)],
    "adapter": {"steps": 5, "samples": 20, "batch": 16},
    "progress": False,
}


@pytest.fixture(scope="module")
def fitted(data: Benchmark, vit: fv.extract.Backbone, tmp_path_factory: pytest.TempPathFactory) -> fv.A2Adapter:
    return fv.A2Adapter(vit, vit, store=tmp_path_factory.mktemp("store"), **SHORT).fit(data.train)


def test_without_steps_it_is_default_attention(data: Benchmark, vit: fv.extract.Backbone, tmp_path: Path) -> None:
    options = {**SHORT, "adapter": {"steps": 0}}
    system = fv.A2Adapter(vit, vit, store=tmp_path, **options).fit(data.train)
    plain = fv.A2(vit, vit, crops=(16,), store=tmp_path, progress=False).fit(data.train)
    pictures = [data.test[i].image for i in range(6)]
    torch.testing.assert_close(system.look(pictures).map, plain.look(pictures).map)
    greedy = fv.A2Adapter(vit, vit, store=tmp_path, **{**options, "crops": (16,)}).fit(data.train)
    assert torch.equal(greedy.look(pictures).boxes, plain.look(pictures).boxes)  # type: ignore[arg-type]
    assert np.array_equal(greedy.predict_logits(data.test), plain.predict_logits(data.test))


def test_crops_are_candidates_and_predictions_come_from_them(fitted: fv.A2Adapter, data: Benchmark) -> None:
    pictures = [data.test[i].image for i in range(8)]
    gaze = fitted.look(pictures)
    offered = {tuple(b) for b in candidate_grid(64, [(16, 3), (32, 1)]).tolist()}
    assert gaze.boxes is not None
    assert {tuple(b) for b in gaze.boxes[:, 0].tolist()} <= offered
    assert float(gaze.map.min()) >= 0
    assert "default" in gaze.scores
    from_images = fitted.predict_logits(pictures)
    np.testing.assert_allclose(from_images, fitted.predict_logits(data.test)[:8], rtol=1e-4, atol=1e-4)


def test_save_and_load_bit_for_bit(fitted: fv.A2Adapter, data: Benchmark, tmp_path: Path) -> None:
    again = fv.load(fitted.save(tmp_path / "saved"))
    pictures = [data.test[i].image for i in range(8)]
    assert np.array_equal(again.predict_logits(pictures), fitted.predict_logits(pictures))
    assert torch.equal(again.look(pictures).map, fitted.look(pictures).map)
    assert again.adapter_history_.loss == fitted.adapter_history_.loss  # type: ignore[attr-defined]
    assert again.supervision() == fitted.supervision() == "train: labels"


@pytest.fixture
def counted(vit: fv.extract.Backbone, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    real = fv.extract.Backbone.forward
    monkeypatch.setattr(fv.extract.Backbone, "forward", lambda self, x: (seen.append(len(x)), real(self, x))[1])
    return seen


def test_candidates_are_embedded_once(
    data: Benchmark, vit: fv.extract.Backbone, counted: list[int], tmp_path: Path
) -> None:
    fv.A2Adapter(vit, vit, store=tmp_path, **SHORT).fit(data.train)
    assert sum(counted) == 60 * 10 + 60, "every candidate, then every chosen crop"
    counted.clear()
    fv.A2Adapter(vit, vit, store=tmp_path, **{**SHORT, "adapter": {"steps": 2, "samples": 5}}).fit(data.train)
    assert sum(counted) <= 60, "only the crops that another adapter chooses"


def test_supervision_is_told(data: Benchmark, vit: fv.extract.Backbone, tmp_path: Path) -> None:
    grouped = fv.A2Adapter(vit, vit, weigh="groups", store=tmp_path, **SHORT).fit(data.train)
    assert grouped.supervision() == "train: labels, groups"
    dfr = fv.A2Adapter(vit, vit, head="dfr", refits=2, store=tmp_path, **SHORT).fit(data.train, target=data.target)
    assert "train: labels (adapter); target: labels, groups" in dfr.supervision()
    unlabelled = fv.data.GroupedDataset(data.train.images, data.train.labels, data.train.class_names)
    with pytest.raises(DataError, match="groups"):
        fv.A2Adapter(vit, vit, weigh="groups", store=tmp_path, **SHORT).fit(unlabelled)


def test_bad_settings(data: Benchmark, vit: fv.extract.Backbone) -> None:
    with pytest.raises(FoveateError, match="no setting 'stepps'"):
        fv.A2Adapter(vit, vit, adapter={"stepps": 3}).fit(data.train)
    with pytest.raises(FoveateError, match="unknown weigh"):
        fv.A2Adapter(vit, vit, weigh="pixels").fit(data.train)  # type: ignore[arg-type]
    with pytest.raises(FoveateError, match="11 crops cannot be chosen from 10"):
        fv.A2Adapter(vit, vit, crops=11, **SHORT).fit(data.train)
    with pytest.raises(FoveateError, match="takes in the whole image"):
        fv.A2Adapter(vit, vit, grids=[(80, 2)]).fit(data.train)
    with pytest.raises(FoveateError, match="at least 1"):
        fv.A2Adapter(vit, vit, crops=0, **SHORT).fit(data.train)
