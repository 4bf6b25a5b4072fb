"""iFAM end to end: it learns, cannot see what it did not select, and its interventions are saved with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import foveate as fv
from foveate.assemble.parts_network import Intervention, PartsNetwork
from foveate.data.benchmark import Benchmark
from foveate.decide import PartLossWeights
from foveate.errors import FoveateError, ModelError
from foveate.restrict import TokenThresholds

VIT = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 4}
FAST = {"model_args": VIT, "progress": False, "lr": 1e-3, "parts": 3}


@pytest.fixture(scope="module")
def ifam(data: Benchmark) -> fv.IFAM:
    few = data.train.subset(range(200))
    # so short a training learns the shortcut at best, which a balanced validation set would throw away
    return fv.IFAM("micro_vit", epochs=4, batch_size=32, **FAST).fit(few, val=few)


@pytest.fixture(scope="module")
def some(data: Benchmark) -> list[torch.Tensor]:
    return [data.test[i].image for i in range(6)]


def network(**options: object) -> PartsNetwork:
    torch.manual_seed(0)
    make = {"image_size": (32, 32), **VIT}
    selector, predictor = (fv.extract.create_backbone("micro_vit", **make) for _ in range(2))  # type: ignore[arg-type]
    return PartsNetwork(selector, 2, parts=3, predictor=predictor, **options)  # type: ignore[arg-type]


def spread(net: PartsNetwork, x: torch.Tensor) -> PartsNetwork:
    net.start_prototypes([x])
    return net


# -- the whole system ---------------------------------------------------------------------


def test_it_trains_and_says_what_it_saw(ifam: fv.IFAM, data: Benchmark, some: list[torch.Tensor]) -> None:
    assert np.mean(ifam.history_.losses[-3:]) < np.mean(ifam.history_.losses[:3])
    assert fv.evaluate(ifam, data.train.subset(range(200))).average > 0.6
    assert ifam.supervision() == "train: labels; selection: labels (average)"
    gaze = ifam.look(some)
    assert gaze.map.shape == (6, 8, 8)
    assert gaze.parts.shape == (6, 4, 8, 8)
    torch.testing.assert_close(gaze.parts.sum(1), torch.ones(6, 8, 8))
    torch.testing.assert_close(gaze.map, 1 - gaze.parts[:, 3])
    torch.testing.assert_close(ifam.part_maps(some), gaze.parts)
    inputs, mask = ifam.stage_inputs(some)
    assert torch.equal(mask.view(6, 8, 8), gaze.mask)
    np.testing.assert_allclose(ifam.logits_with_mask(inputs, mask).detach(), ifam.predict_logits(some), atol=1e-5)


def test_pixels_outside_the_mask_do_not_reach_the_logits(ifam: fv.IFAM, some: list[torch.Tensor]) -> None:
    inputs, mask = ifam.stage_inputs(some)
    assert 0 < mask.float().mean() < 1
    outside = ~mask.view(6, 1, 8, 8).repeat_interleave(4, 2).repeat_interleave(4, 3)
    changed = torch.where(outside, 50 * torch.randn_like(inputs), inputs)
    assert torch.equal(ifam.logits_with_mask(changed, mask), ifam.logits_with_mask(inputs, mask))
    assert torch.equal(ifam.logits_with_mask(changed, mask, True), ifam.logits_with_mask(inputs, mask, True))
    asked = inputs.clone().requires_grad_()
    ifam.logits_with_mask(asked, mask).sum().backward()
    assert asked.grad is not None
    assert bool((asked.grad[outside.expand_as(inputs)] == 0).all())
    assert bool((asked.grad[~outside.expand_as(inputs)] != 0).any())


def test_pruned_predictions_are_the_masked_ones(ifam: fv.IFAM, data: Benchmark) -> None:
    pruned = ifam.predict_logits(data.test)
    ifam.prune = False
    dense = ifam.predict_logits(data.test)
    ifam.prune = True
    np.testing.assert_allclose(pruned, dense, atol=1e-5)
    np.testing.assert_allclose(ifam.predict_logits(data.test, batch_size=7), pruned, atol=1e-5)


def test_an_empty_mask_predicts_the_same_for_every_image(ifam: fv.IFAM, data: Benchmark) -> None:
    logits = ifam.with_parts_removed([0, 1, 2]).predict_logits(data.test)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits, np.broadcast_to(logits[:1], logits.shape), atol=1e-6)


def test_interventions_are_saved_with_the_model(ifam: fv.IFAM, data: Benchmark, tmp_path: Path) -> None:
    plain = ifam.predict_logits(data.test)
    used = int(np.bincount(ifam.look([data.test[i].image for i in range(40)]).parts.argmax(1).flatten())[:3].argmax())
    changed = ifam.with_parts_removed([used])
    assert ifam.dropped_parts_ is None, "the model itself stays as it was"
    assert (ifam.predict_logits(data.test) == plain).all()
    changed.calibrate(data.train.subset(range(50)), q=0.9)
    assert changed.token_thresholds_ is not None
    logits = changed.predict_logits(data.test)
    assert np.abs(logits - plain).max() > 0
    folder = changed.save(tmp_path / "changed")
    again = fv.load(folder)
    assert isinstance(again, fv.IFAM)
    assert again.dropped_parts_ == (used,)
    assert again.token_thresholds_ == changed.token_thresholds_
    assert (again.predict_logits(data.test) == logits).all()
    twice = again.save(tmp_path / "again")
    for name in ("system.json", "weights.safetensors"):
        assert (folder / name).read_bytes() == (twice / name).read_bytes()
    assert (again.with_parts_removed([]).with_thresholds(None).predict_logits(data.test) == plain).all()


def test_calibration_keeps_the_asked_share(ifam: fv.IFAM, data: Benchmark) -> None:
    train = data.train.subset(range(60))
    images = [train[i].image for i in range(60)]
    before = ifam.look(images).mask.float().sum()
    everything = ifam.with_parts_removed([]).calibrate(train, q=1.0)
    assert everything.look(images).mask.float().sum() == before
    some = ifam.with_parts_removed([]).calibrate(train, q=0.8)
    kept = some.look(images).mask.float().sum() / before
    assert 0.75 < kept < 0.85
    dotted = fv.IFAM("micro_vit", epochs=0, released=True, **FAST).fit(train).calibrate(train, q=0.9)
    assert dotted.token_thresholds_.measure == "dot"
    assert np.isfinite(dotted.predict_logits(train)).all()


def test_the_same_seed_gives_the_same_model(data: Benchmark) -> None:
    few = data.train.subset(range(64))
    a, b, c = (fv.IFAM("micro_vit", epochs=1, seed=seed, **FAST).fit(few) for seed in (3, 3, 4))
    states = [m.network_.state_dict() for m in (a, b, c)]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert not torch.equal(states[0]["discovery.prototypes"], states[2]["discovery.prototypes"])


def test_a_larger_predictor_with_other_patches(data: Benchmark, tmp_path: Path) -> None:
    few = data.train.subset(range(32))
    larger = {**VIT, "embed_dim": 36, "depth": 3, "patch_size": 8}
    model = fv.IFAM("micro_vit", predictor="micro_vit", predictor_args=larger, epochs=1, **FAST).fit(few)
    _, mask = model.stage_inputs([few[0].image])
    assert mask.shape == (1, 16)
    assert (fv.load(model.save(tmp_path / "m")).predict_logits(few) == model.predict_logits(few)).all()


@pytest.mark.parametrize(
    "options",
    [{"mask": "soft"}, {"mask": "boolean"}, {"second_stage": False}, {"freeze_predictor": True}, {"shaping": False},
     {"stage1_classify": False}, {"parts": 1}, {"released": True}, {"ema": 0.9},
     pytest.param({"precision": "bf16-mixed"}, marks=pytest.mark.bf16),
     {"tune": "none", "start": "random", "gumbel": False}],
    ids=lambda o: ",".join(o),
)  # fmt: skip
def test_every_ablation_trains(data: Benchmark, options: dict) -> None:
    few = data.train.subset(range(32))
    model = fv.IFAM("micro_vit", epochs=1, **{**FAST, **options}).fit(few)
    assert np.isfinite(model.predict_logits(few)).all()
    assert np.isfinite(model.history_.losses).all()


# -- the network --------------------------------------------------------------------------


def test_the_gradient_of_stage_two_reaches_stage_one_only_straight_through() -> None:
    x, labels = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 0, 1])
    only_second = PartLossWeights(0, 0, 0, 0, 0, 0, 0)
    for mask, reaches in (("straight-through", True), ("soft", True), ("boolean", False)):
        net = spread(network(mask=mask, temperature=50.0, tune="all"), x).train()
        net.loss(x, labels, only_second).backward()
        grad = net.discovery.prototypes.grad
        assert (grad is not None and bool((grad != 0).any())) == reaches, mask
        assert net.stage2.head[1].weight.grad is not None


def test_what_tune_trains_of_stage_one() -> None:
    trained = {}
    for tune in ("none", "tokens", "last-blocks", "all"):
        vit = fv.extract.create_backbone("micro_vit", image_size=(32, 32), **{**VIT, "depth": 4})  # type: ignore[arg-type]
        net = PartsNetwork(vit, classes=2, parts=2, tune=tune)
        trained[tune] = {n for n, p in net.selector.net.named_parameters() if p.requires_grad}
    assert not trained["none"]
    assert trained["tokens"] == {"cls_token", "pos_embed"}
    more = trained["last-blocks"] - trained["tokens"]
    assert {n.split(".")[1] for n in more if n.startswith("blocks.")} == {"2", "3"}
    assert {n for n in more if not n.startswith("blocks.")} == {"norm.weight", "norm.bias"}
    assert trained["all"] > trained["last-blocks"] > trained["tokens"]


def test_masks_of_the_same_maps_agree_in_value() -> None:
    x = torch.randn(4, 3, 32, 32)
    net = spread(network(), x).eval()
    expected = net(x)
    net.mask = "boolean"
    torch.testing.assert_close(net(x), expected)
    torch.testing.assert_close(net(x, prune=True), expected, atol=1e-5, rtol=0)


def test_parameter_groups_follow_the_papers() -> None:
    net = network(prototype_rate=1e3, head_rate=1e4)
    groups = net.parameter_groups(0.05)
    of = {id(p): g for g in groups for p in g["params"]}
    rates = {name: of[id(p)]["lr_scale"] for name, p in net.named_parameters() if id(p) in of}
    decay = {name: of[id(p)]["weight_decay"] for name, p in net.named_parameters() if id(p) in of}
    assert {n for n in rates if n.startswith("selector.")} == {"selector.net.cls_token", "selector.net.pos_embed"}
    assert rates["selector.net.cls_token"] == rates["stage2.vit.blocks.0.mlp.fc1.weight"] == 1
    assert rates["discovery.prototypes"] == 1e3
    assert rates["discovery.modulation.weight"] == rates["discovery.classifier.weight"] == 1e4
    assert rates["stage2.head.0.weight"] == rates["stage2.head.1.weight"] == 1e4
    decayed = {n for n, d in decay.items() if d}
    assert "stage2.vit.blocks.0.mlp.fc1.weight" in decayed
    assert not any(
        k in n for n in decayed for k in ("prototypes", "modulation", "cls_token", "pos_embed", "bias", "norm")
    )
    frozen = network(freeze_predictor=True)
    trained = {n for n, p in frozen.named_parameters() if p.requires_grad and n.startswith("stage2.")}
    assert trained == {"stage2.head.0.weight", "stage2.head.0.bias", "stage2.head.1.weight"}


def test_prototypes_start_on_tokens_and_use_every_part() -> None:
    x = torch.randn(8, 3, 32, 32)
    x[:, :, 8:24, 8:24] += 4.0
    net = spread(network(), x)
    maps = net.eval().discover(x).maps
    assert bool((maps.argmax(1).flatten().bincount(minlength=4) > 0).all())
    first = net.discovery.prototypes.clone()
    net.start_prototypes([x[:4], x[4:]])
    torch.testing.assert_close(net.discovery.prototypes, first)


def test_no_epochs_leave_the_parts_where_they_start() -> None:
    """A row without training tells what the start gives; the start is that of every system with as many parts."""
    data = fv.data.critters(train=40, target=0, val=16, test=16, size=32)
    images = torch.stack([data.test[i].image for i in range(16)])
    same: dict[str, Any] = {"parts": 3, "image_size": 64, "progress": False, "lr": 1e-3, "tune": "tokens"}
    start = fv.PDiscoFormer("micro-vit", epochs=0, **same).fit(data.train, val=data.val)
    two_stages = fv.IFAM("micro-vit", epochs=0, **same).fit(data.train)
    assert torch.equal(start.part_maps(images), two_stages.part_maps(images))
    trained = fv.PDiscoFormer("micro-vit", epochs=1, **same).fit(data.train)
    assert not torch.allclose(start.part_maps(images), trained.part_maps(images))
    assert 0 < fv.systems.part_quality(start, data.test).miou < 1


def test_removed_parts_change_nothing_when_unused() -> None:
    x = torch.randn(4, 3, 32, 32)
    net = spread(network(), x).eval()
    with torch.no_grad():
        net.discovery.prototypes[1] = 1e3  # far from every token
        assert torch.equal(net(x, Intervention(parts=(1,))), net(x))
        assert not torch.equal(net(x, Intervention(parts=(0, 2))), net(x))


@pytest.mark.parametrize("measure", ["centre", "distance", "dot"])
def test_token_removal_reads_the_measure_it_was_calibrated_on(ifam: fv.IFAM, data: Benchmark, measure: str) -> None:
    model = ifam.with_parts_removed([])
    model.token_measure = measure  # type: ignore[assignment]
    few = data.train.subset(range(200))
    model.calibrate(few, q=0.8)
    assert model.token_thresholds_ is not None
    assert model.token_thresholds_.measure == measure
    images = torch.stack([few[i].image for i in range(200)])
    kept = model.look(images).mask.float().sum() / ifam.look(images).mask.float().sum()  # type: ignore[union-attr]
    assert float(kept) == pytest.approx(0.8, abs=0.03)


def test_centres_are_found_by_fitting(ifam: fv.IFAM, data: Benchmark) -> None:
    """Brute force: every training token by hand."""
    net = ifam.network_.cpu().eval()
    with torch.no_grad():
        features = net.selector.maps(ifam.inputs(torch.stack([data.train[i].image for i in range(200)])))
    part = net.discovery(features).assignments
    tokens = features.movedim(1, -1)
    for k in range(4):
        own = tokens[part == k]
        expected = own.mean(0) if len(own) else net.discovery.prototypes[k]
        torch.testing.assert_close(net.discovery.centres[k], expected, atol=1e-4, rtol=1e-4)


def test_a_model_saved_before_there_were_centres_measures_from_its_prototypes(ifam: fv.IFAM, tmp_path: Path) -> None:
    ifam.save(tmp_path / "model")
    weights = tmp_path / "model" / "weights.safetensors"
    kept = {k: v for k, v in load_file(str(weights)).items() if k != "discovery.centres"}
    save_file(kept, str(weights))
    found = fv.load(tmp_path / "model")
    assert isinstance(found, fv.IFAM)
    assert torch.equal(found.network_.discovery.centres, ifam.network_.discovery.prototypes)


# -- bad input ----------------------------------------------------------------------------


def test_errors_are_sentences(ifam: fv.IFAM, data: Benchmark) -> None:
    few = data.train.subset(range(16))
    with pytest.raises(ModelError, match=r"'micro_resnet' is a CNN. Use a ViT"):
        fv.IFAM("micro_resnet", epochs=1).fit(few)
    with pytest.raises(ModelError, match=r"is not a plain ViT|is a CNN"):
        fv.IFAM("micro_vit", predictor="micro_resnet", epochs=1, model_args=VIT).fit(few)
    with pytest.raises(ModelError, match=r"65 parts cannot be told apart on a map of 8x8 patches"):
        fv.IFAM("micro_vit", epochs=1, **{**FAST, "parts": 65}).fit(few)
    with pytest.raises(ModelError, match=r"30x30 px, which the patch size 4x4.*does not divide.*image_size="):
        fv.IFAM("micro_vit", image_size=30, epochs=1, **FAST).fit(few)
    with pytest.raises(ModelError, match=r"there is no part 3: the model has 3 parts, numbered 0 to 2"):
        ifam.with_parts_removed([3])
    with pytest.raises(ModelError, match="calibrated for 2 parts and the model has 3"):
        ifam.with_thresholds(TokenThresholds((1.0, 2.0), q=0.9))
    with pytest.raises(ModelError, match="unknown mask 'hard'"):
        fv.IFAM(mask="hard").check()
    with pytest.raises(ModelError, match=r"no loss 'entropi'. Did you mean 'entropy'"):
        fv.IFAM(loss_weights={"entropi": 1.0}).check()
    with pytest.raises(FoveateError, match="backbone_scale"):
        fv.IFAM(backbone_scale=0.1).check()
    with pytest.raises(ModelError, match="sees images through a mask"):
        fv.DFR(ifam).fit(data.target)
    with pytest.raises(ModelError, match="no single backbone"):
        _ = ifam.network_.backbone
    with pytest.raises(ModelError, match="has not been fitted"):
        fv.IFAM().stage_inputs([few[0].image])


def test_noise_at_evaluation_is_drawn_once_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """As released: stage 1 and stage 2 each have a Gumbel sample of their own; interventions keep the first."""
    from foveate.assemble.parts_network import Intervention, PartsNetwork
    from foveate.extract import create_backbone

    args = {"patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 3}
    one, two = (create_backbone("micro_vit", image_size=(32, 32), **args) for _ in range(2))
    network = PartsNetwork(one, 2, parts=2, predictor=two, mask="boolean", noise_at_eval=True).eval()
    drawn: list[int] = []
    real = network.discovery.sample
    monkeypatch.setattr(network.discovery, "sample", lambda d: (drawn.append(1), real(d))[1])
    with torch.no_grad():
        network(torch.rand(2, 3, 32, 32))
        assert len(drawn) == 2
        network(torch.rand(2, 3, 32, 32), Intervention((0,)))
        assert len(drawn) == 3
        network.discovery.noise_at_eval = False
        network(torch.rand(2, 3, 32, 32))
        assert len(drawn) == 4
