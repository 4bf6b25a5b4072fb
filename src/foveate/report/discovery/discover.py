"""Shortcut discovery without attributes: masks, experiments, probes, slices and pseudo-groups, for any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, UnreadableImage
from foveate.measure import CEPAccumulator, donor_permutation, fill_object, swap
from foveate.report.discovery.cues.exchanges import CUES, Place, sparing
from foveate.report.discovery.experiments import Pull, Sheet, exchange, measure_pull
from foveate.report.discovery.judgement import HINT, Judgement, judge
from foveate.report.discovery.objects import Objects, find_objects
from foveate.report.discovery.observations import GIVEN, Observations, observe
from foveate.report.discovery.probes import Probe, Reader, probe_all
from foveate.report.discovery.slices import Slice, find_slices
from foveate.systems import System
from foveate.systems.system import decided

OBSERVED = 1000
"""Most images whose properties are probed, drawn at random; a probe of more would hardly be surer."""
EXPERIMENTED = 240
"""Most images the experiments exchange properties between: a pull is then known to about 6 of 100, and the cost
does not grow with the dataset."""
TOGETHER = 16
"""Images read at full size at a time."""
PASSES = 2 * len(CUES) + 6
"""Predictions an image of the experiments costs: two a property, and the mask tests."""

Tick = Callable[[int], None]


@dataclass
class Groundwork:
    """What is the same for all models: where the objects are, the images' properties, what tells the label.

    ``attribute_probes`` say which properties tell the given attribute; empty without one.
    """

    dataset: GroupedDataset
    objects: Objects
    seen: Observations
    label_probes: list[Probe]
    seed: int = 0
    attribute_probes: list[Probe] = field(default_factory=list)

    @property
    def names(self) -> dict[str, str]:
        return {**self.seen.names, **{cue.key: cue.name for cue in CUES}}


def prepare(
    dataset: GroupedDataset,
    readable: NDArray[np.bool_],
    *,
    objects: str | None = None,
    images: int = OBSERVED,
    attribute: str = "attribute",
    seed: int = 0,
    tick: Tick | None = None,
) -> Groundwork:
    """Look at the images once, for all models: up to ``images`` of them, drawn at random.

    ``attribute`` is what to call the dataset's attribute in a sentence.
    """
    there = np.flatnonzero(readable)
    chosen = np.sort(np.random.default_rng([seed, 1]).permutation(there)[:images])
    found = find_objects(dataset, objects)
    seen = observe(dataset, chosen, found, attribute=attribute, tick=tick)
    probes = probe_all(seen.features, dataset.labels[seen.positions], "label", seed=seed)
    of_attribute: list[Probe] = []
    if dataset.attributes is not None:
        properties = {key: values for key, values in seen.features.items() if key != GIVEN}
        of_attribute = probe_all(properties, dataset.attributes[seen.positions], "attribute", seed=seed)
    return Groundwork(dataset, found, seen, probes, seed, of_attribute)


@dataclass
class Discovery:
    """What was found about one model.

    Attributes:
        judgement: the verdict with its evidence.
        masks: accuracy on objects alone and backgrounds alone, CEP, and the swap test, or None.
        error_probes: which properties tell where the model errs.
        slices: bunches of similar images it gets wrong.
        turned: examples of the strongest experiment: ``(image, donor, edited, answer)``, pixels ``uint8 [3, H, W]``.
    """

    judgement: Judgement
    masks: dict[str, Any] | None
    error_probes: list[Probe]
    slices: list[Slice]
    base: Groundwork
    predictions: NDArray[np.int64]
    class_names: list[str]
    turned: list[tuple[Tensor, Tensor, Tensor, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Everything but pixels, ready for JSON."""
        seen = self.base.seen
        return {
            **self.judgement.to_dict(),
            "objects": self.base.objects.source,
            "mask_tests": self.masks,
            "errors": [probe.to_dict() for probe in self.error_probes],
            "attribute": [probe.to_dict() for probe in self.base.attribute_probes],
            "slices": [
                {
                    **s.to_dict(),
                    "name": self.class_names[s.label],
                    "mistaken_for": self._mistaken_for(s),
                    "unlike": unlike_the_rest(seen, s, self.base.dataset.labels[seen.positions]),
                    "positions": [int(seen.positions[i]) for i in s.members],
                }
                for s in self.slices
            ],
        }

    def _mistaken_for(self, s: Slice) -> str | None:
        answers = self.predictions[self.base.seen.positions[list(s.members)]]
        wrong = answers[answers != s.label]
        return self.class_names[int(np.bincount(wrong).argmax())] if len(wrong) else None

    def pseudo_groups(self, dataset: GroupedDataset | None = None) -> GroupedDataset:
        """``dataset`` (by default the audited one) with attributes made from what was found.

        The attribute of an image is the class that the strongest shortcut speaks for in it, read by a probe of the
        model's own answers; so no group label is needed, and group metrics and group-aware systems can be used.
        Without a shortcut but with error slices, the audited images that were looked at come back with their slice.
        """
        target = self.base.dataset if dataset is None else dataset
        leading = [s for s in self.judgement.shortcuts if s.key in self.base.seen.features]
        if leading:
            key, seen = leading[0].key, self.base.seen
            reader = Reader.fit(seen.features[key], self.predictions[seen.positions], len(self.class_names))
            objects = find_objects(target, self.base.objects.source)
            found = seen if target is self.base.dataset and len(seen.positions) == len(target) else None
            found = found or observe(target, np.arange(len(target)), objects)
            word = leading[0].name.removeprefix("the ")
            names = [f"{word} like {name}" for name in self.class_names]
            return _with_attributes(target.subset(found.positions), reader(found.features[key]), names)
        if self.slices and dataset is None:
            values = np.zeros(len(self.base.seen.positions), dtype=np.int64)
            for number, s in enumerate(self.slices, start=1):
                values[list(s.members)] = number
            names = ["rest", *(f"slice {i + 1}" for i in range(len(self.slices)))]
            return _with_attributes(target.subset(self.base.seen.positions), values, names)
        raise DataError("the audit found no shortcut to make groups from; there is nothing to balance.")


def _with_attributes(dataset: GroupedDataset, values: NDArray[np.int64], names: Sequence[str]) -> GroupedDataset:
    return GroupedDataset(
        dataset.images, dataset.labels, dataset.class_names, attributes=values, attribute_names=names,
        masks=dataset.masks, boxes=dataset.boxes, keypoints=dataset.keypoints, keypoint_names=dataset.keypoint_names,
        extras=dataset.extras, name=dataset.name,
    )  # fmt: skip


def discover(
    system: System,
    base: Groundwork,
    probabilities: NDArray[np.float64],
    class_names: Sequence[str],
    *,
    name: str | None = None,
    images: int = EXPERIMENTED,
    seed: int = 0,
    tick: Tick | None = None,
) -> Discovery:
    """Look for shortcuts of ``system`` without knowing any attribute.

    Args:
        system: a fitted or wrapped model.
        base: from :func:`prepare`.
        probabilities: of the model on the whole dataset, ``[N, K]``, NaN rows where unreadable.
        class_names: of the K columns.
        images: how many images the experiments use.
    """
    names = list(class_names)
    name = name or type(system).__name__
    known = [names.index(c) for c in system.class_names_]
    place = np.asarray(known)
    say = tick or (lambda n: None)

    def logits(batch: Tensor) -> NDArray[np.float32]:
        say(len(batch))
        return system.predict_logits(batch)

    def predict(batch: Tensor) -> NDArray[np.int64]:
        return place[logits(batch).argmax(1)]

    predictions = decided(probabilities)
    sheet = make_sheet(system, base, probabilities, images, seed)
    pulls: list[Pull] = []
    spared: list[Place] = []
    for cue in CUES:
        found = measure_pull(sheet, sparing(cue, spared), predict, seed=seed)
        if found is not None:
            pulls.append(found)
            if cue.place is not None and found.p < 0.01 and found.value >= HINT:
                spared.append(cue.place)
    labels, seen = base.dataset.labels[base.seen.positions], base.seen
    answers = predictions[seen.positions]
    right = (answers == labels).astype(np.int64)
    answer_probes = probe_all(seen.features, answers, "answers", within=labels, seed=seed)
    error_probes = probe_all(seen.features, right, "errors", seed=seed) if (1 - right).sum() >= 5 else []
    verdict = judge(
        name, pulls, base.label_probes, answer_probes, base.names, objects=base.objects.words, sure=base.objects.sure
    )
    slices = find_slices(embeddings_of(system, base, say), labels, answers, seed=seed)
    return Discovery(
        verdict, mask_tests(sheet, logits, place, base, seed), error_probes, slices, base, predictions, names,
        _turned(sheet, verdict, names, spared),
    )  # fmt: skip


def make_sheet(system: System, base: Groundwork, probabilities: NDArray[np.float64], images: int, seed: int) -> Sheet:
    """Images for the experiments at the size the model sees, with their generous object masks."""
    view: Preprocess | None = getattr(system, "preprocess_", None)
    pixels: list[Tensor] = []
    masks: list[Tensor] = []
    kept: list[int] = []
    order = np.random.default_rng([seed, 2]).permutation(base.seen.positions)
    for i in (int(i) for i in order):
        if len(kept) >= images:
            break
        try:
            image = base.dataset[i].image
        except UnreadableImage:
            continue
        (mask,) = base.objects.masks([image], [i])
        if mask is None:
            continue
        size = view or Preprocess(tuple(image.shape[-2:]))  # type: ignore[arg-type]
        mask = (size.prepare_mask(mask) > 0.5).float()
        if mask.mean() > 0.9:  # nothing but object: there is no background to exchange
            continue
        pixels.append(size.prepare(image))
        masks.append(mask)
        kept.append(i)
    if not kept:
        empty = np.zeros(0, dtype=np.int64)
        return Sheet(torch.zeros(0, 3, 1, 1), torch.zeros(0, 1, 1), empty, empty, np.zeros(0), empty)
    at = np.asarray(kept)
    chances = probabilities[at]
    return Sheet(
        torch.stack(pixels), torch.stack(masks), base.dataset.labels[at], chances.argmax(1).astype(np.int64),
        chances.max(1), at,
    )  # fmt: skip


def mask_tests(
    sheet: Sheet, logits: Callable[[Tensor], NDArray[np.float32]], place: NDArray[np.int64], base: Groundwork, seed: int
) -> dict[str, Any] | None:
    """Accuracy on objects alone and on backgrounds alone, the swap test by label, and CEP of the output.

    - *object only*: the background replaced by its own mean colour; *background only*: the object painted over;
    - *same*, *random*: backgrounds of other images of the class, and of any image (BG-GAP, Xiao et al. 2021);
    - *cep*: share of the change of the logits that the object causes when objects and backgrounds are exchanged (DAR
      paper, equations 1 to 3, by recomposition).
    """
    n = len(sheet)
    if n < 2:
        return None
    rng = np.random.default_rng([seed, 3])
    order = torch.from_numpy(donor_permutation(n, rng))
    mates = _mates(sheet.labels, rng)
    cep = CEPAccumulator("output")
    right: dict[str, list[NDArray[np.bool_]]] = {}
    for start in range(0, n, 2 * TOGETHER):
        at = slice(start, start + 2 * TOGETHER)
        x, mask, truth = sheet.images[at].float(), sheet.masks[at], sheet.labels[at]
        outside = (1 - mask)[:, None]
        mean = (x * outside).sum((2, 3), keepdim=True) / outside.sum((2, 3), keepdim=True).clamp(min=1.0)
        donors, donor_masks = sheet.images[order[at]].float(), sheet.masks[order[at]]
        core, scene = swap(x, mask, donors, donor_masks)
        mate = mates[at]
        same = swap(x, mask, sheet.images[mate].float(), sheet.masks[mate])[1]
        edited = {
            "object_only": mask[:, None] * x + outside * mean,
            "background_only": fill_object(x, mask), "random_background": scene, "same_background": same,
        }  # fmt: skip
        own, moved = logits(_pixels(x)), {key: logits(_pixels(value)) for key, value in edited.items()}
        cep.update(*(torch.from_numpy(v) for v in (own, logits(_pixels(core)), moved["random_background"])))
        for key, scores in {"plain": own, **moved}.items():
            right.setdefault(key, []).append(place[scores.argmax(1)] == truth)
    found = {key: float(np.concatenate(values).mean()) for key, values in right.items()}
    return {
        "source": base.objects.source, "images": n, **found,
        "bg_gap": found["same_background"] - found["random_background"], "cep": float(cep.compute().value),
        "area": float(sheet.masks.mean()),
    }  # fmt: skip


def _pixels(images: Tensor) -> Tensor:
    return images.round().clamp(0, 255).to(torch.uint8)


def _mates(labels: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
    """For every image another one of its class (itself, where it is alone)."""
    out = np.arange(len(labels))
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        if len(mine) > 1:
            out[mine] = mine[donor_permutation(len(mine), rng)]
    return torch.from_numpy(out)


def embeddings_of(system: System, base: Groundwork, tick: Tick) -> NDArray[np.float64]:
    """Features to cluster by: the model's own, those of the ViT that found the objects, or small pictures."""
    network = getattr(system, "network_", None)
    out: list[Tensor] = []
    positions = base.seen.positions
    for start in range(0, len(positions), TOGETHER):
        images = [base.dataset[int(i)].image for i in positions[start : start + TOGETHER]]
        tick(len(images))
        if network is not None and hasattr(network, "embed"):
            with torch.no_grad():
                out.append(network.cpu().eval().embed(system.inputs(images)).float().cpu())
        elif base.objects.embed is not None:
            out.append(base.objects.embed(images))
        else:
            view = Preprocess((8, 8))
            out.append(torch.stack([view.prepare(image).float().flatten() for image in images]))
    return torch.cat(out).double().numpy()


UNLIKE = {
    "brightness": ("darker", "brighter"), "sharpness": ("blurrier", "sharper"),
    "compression": ("smaller in file size", "larger in file size"),
}  # fmt: skip


def unlike_the_rest(seen: Observations, s: Slice, labels: NDArray[np.int64]) -> list[str]:
    """In which simple properties a slice differs from the rest of its class by more than a standard deviation."""
    rest = np.setdiff1d(np.flatnonzero(labels == s.label), s.members)
    words = []
    for key, (less, more) in UNLIKE.items():
        if key not in seen.features or len(rest) < 5:
            continue
        column = seen.features[key][:, 0]
        away = (column[list(s.members)].mean() - column[rest].mean()) / max(float(column.std()), 1e-9)
        if abs(away) > 1:
            words.append(more if away > 0 else less)
    return words


def _turned(
    sheet: Sheet, verdict: Judgement, names: Sequence[str], spared: Sequence[Place], most: int = 4
) -> list[tuple[Tensor, Tensor, Tensor, str]]:
    leading = next((s for s in verdict.suspects if s.level in ("found", "hint") and s.pull is not None), None)
    if leading is None or leading.pull is None:
        return []
    cue = sparing(next(c for c in CUES if c.key == leading.key), spared)
    best = sorted(
        leading.pull.examples, key=lambda e: -(sheet.confidence[e[0]] * (sheet.predictions[e[0]] == sheet.labels[e[0]]))
    )
    chosen = best[:most]
    if not chosen:
        return []
    edited = exchange(sheet, cue, [e[0] for e in chosen], [e[1] for e in chosen])
    return [
        (sheet.images[i], sheet.images[j], picture, names[k]) for (i, j, k), picture in zip(chosen, edited, strict=True)
    ]
