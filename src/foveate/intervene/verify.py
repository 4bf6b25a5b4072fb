"""Does anything outside a model's mask reach its prediction? Change those pixels, hold the mask, and look."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.assemble.capabilities import NeedsMasks, TakesMask, network_of
from foveate.assemble.system import Images, System
from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess, as_images
from foveate.errors import DataError, ModelError, UnreadableImage

REPLACEMENTS = ("noise", "another image", "black", "white", "checkerboard")
CHUNK = 32
MANY_CLASSES = 16


@dataclass(frozen=True)
class Verified:
    """What happened to one system's logits when pixels outside its region were replaced.

    Attributes:
        name: of the system.
        region: what counts as outside.
        held: whether the mask was held fixed while the pixels changed; without that nothing can be guaranteed.
        changes: largest absolute change of any logit, by replacement.
        pruned: the same when hidden patches are not computed at all (the largest of all replacements); None where
            there is no such path.
        gradient: largest absolute derivative of a logit by a pixel outside; None where it cannot be taken.
        inside: largest change when the pixels *inside* are replaced: the positive control, which must not be 0. By
            noise; where noise changes nothing, by every other replacement.
        flips: images whose class some replacement changes.
        coverage: share of every image that is inside.
    """

    name: str
    region: str
    held: bool
    changes: dict[str, float]
    pruned: float | None
    gradient: float | None
    inside: float
    flips: int
    coverage: tuple[float, ...]

    @property
    def largest(self) -> float:
        """Largest change of a logit by anything outside, the pruned pass included."""
        return max([*self.changes.values(), *([] if self.pruned is None else [self.pruned])])

    @property
    def holds(self) -> bool:
        """Whether, with the mask held fixed, nothing outside it had any effect (exactly none), and both controls
        passed: without them a model that sees everything, or nothing, would hold too."""
        return self.held and self.largest == 0 and not self.gradient and self.failed_control is None

    @property
    def failed_control(self) -> str | None:
        """The control that failed, or None: ``"hidden pixels"`` when the mask hides nothing, so that nothing was
        replaced; ``"visible pixels"`` when new pixels inside change no logit either (or break them all)."""
        if min(self.coverage) == 1:
            return "hidden pixels"
        return None if 0 < self.inside < math.inf else "visible pixels"

    @property
    def verdict(self) -> str:
        """One sentence, or two; the second names the control that failed."""
        images = f"{len(self.coverage)} image{'s' if len(self.coverage) != 1 else ''}"
        if self.failed_control == "hidden pixels":
            return (
                f"{self.name}: its mask hides nothing in {images}, so there was nothing to test. "
                "The control of hidden pixels failed."
            )
        if self.largest or self.gradient:
            slope = "" if not self.gradient else f", and the gradient there is up to {self.gradient:.2g}"
            return (
                f"{self.name}: {self.region} change the logits by up to {self.largest:.2g}{slope}; "
                f"{self.flips} of {images} change class. What lies outside reaches the prediction."
            )
        found = f"{self.name}: {self.region} do not reach the logits: {len(self.changes)} replacements in {images}"
        found += " changed no logit at all" + ("" if self.gradient is None else ", and the gradient there is exactly 0")
        return f"{found}. {self._shortcoming}".rstrip()

    @property
    def _shortcoming(self) -> str:
        """Why a change of nothing shows nothing; empty when it shows something."""
        if self.failed_control is None:
            return "" if self.held else "But it has no mask to hold fixed, so nothing is guaranteed for other images."
        if max(self.coverage) == 0:
            why = "the mask is empty in every image, so the prediction is the same for all"
        elif self.inside == 0:
            why = "the pixels inside do not reach them either, so this model ignores its images"
        else:
            why = "new pixels inside give logits that are not numbers"
        return f"But the control of visible pixels failed: {why}."

    def to_dict(self) -> dict[str, Any]:
        judged = {name: getattr(self, name) for name in ("largest", "holds", "failed_control", "verdict")}
        return {**asdict(self), **judged}


@dataclass(frozen=True)
class VerifyReport:
    """One :class:`Verified` a system; prints as a table with a sentence each."""

    systems: tuple[Verified, ...]
    data: str
    seed: int

    @property
    def holds(self) -> bool:
        """Whether the guarantee holds for the first system, the one asked about."""
        return self.systems[0].holds

    @property
    def verdict(self) -> str:
        return "\n".join(found.verdict for found in self.systems)

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "seed": self.seed,
            "holds": self.holds,
            "systems": [s.to_dict() for s in self.systems],
        }

    def __str__(self) -> str:
        heads = ["largest change of a logit", *(s.name for s in self.systems)]
        rows = [[what, *(_figure(s.changes[what]) for s in self.systems)] for what in REPLACEMENTS]
        rows.append(["pruned, any of these", *(_figure(s.pruned) for s in self.systems)])
        rows.append(["gradient outside", *(_figure(s.gradient) for s in self.systems)])
        rows.append(["change inside (control)", *(_figure(s.inside) for s in self.systems)])
        rows.append(["share inside", *(f"{100 * float(np.mean(s.coverage)):.0f} %" for s in self.systems)])
        widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in [heads, *rows]
        ]
        return "\n".join([*lines, "", self.verdict])


def _figure(value: float | None) -> str:
    return "–" if value is None else "0" if value == 0 else f"{value:.3g}"


def verify(
    systems: System | Mapping[str, System],
    data: GroupedDataset | Images,
    *,
    images: int = 16,
    seed: int = 0,
) -> VerifyReport:
    """Replace what lies outside a model's mask and report how much its logits change: for an early mask, not at all.

    With the mask held fixed, the pixels it hides are replaced by noise, by another image, by black, white and a
    checkerboard, after the resizing and before the network. Systems with ``stage_inputs`` and ``logits_with_mask``
    (iFAM, early and late masks, PDiscoFormer) are tested on their own mask, patch by patch. For any other system
    there is no mask to hold: the true masks of ``data``, or else its own gaze, say what is outside, and the figures
    show how much that matters.

    What is shown is shown for the mask as it was. The mask itself is made from the whole image: a change of the
    background may still change what is selected.

    Args:
        systems: a fitted system, or several by name; the first is the one in question.
        data: a dataset, or a batch of images.
        images: how many images of a dataset to use.
        seed: chooses them, and the noise.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> small = {"model_args": {"depth": 2, "embed_dim": 24}, "epochs": 1, "progress": False}
    >>> early, late = (kind("micro_vit", **small).fit(data.train) for kind in (fv.EarlyMask, fv.LateMask))
    >>> report = verify({"early": early, "late": late}, data.test, images=4)
    >>> [found.holds for found in report.systems], report.systems[0].largest, report.systems[0].gradient
    ([True, False], 0.0, 0.0)
    """
    given = dict(systems) if isinstance(systems, Mapping) else {type(systems).__name__: systems}
    if not given:
        raise ModelError("verify needs at least one system.")
    pictures, masks, name = _chosen(data, images, seed)
    return VerifyReport(tuple(_verify_one(n, s, pictures, masks, seed) for n, s in given.items()), name, seed)


def _chosen(data: GroupedDataset | Images, count: int, seed: int) -> tuple[list[Tensor], list[Tensor] | None, str]:
    """Images, their true masks (None unless all have one), and what to call them."""
    if not isinstance(data, GroupedDataset):
        return as_images(data), None, "images"
    if count < 1:
        raise DataError(f"verify needs at least one image; got images={count}.")
    pictures: list[Tensor] = []
    masks: list[Tensor | None] = []
    for i in np.random.default_rng(seed).permutation(len(data)):
        try:
            sample = data[int(i)]
        except UnreadableImage:
            continue
        pictures.append(sample.image)
        masks.append(sample.mask)
        if len(pictures) == count:
            break
    if not pictures:
        raise DataError(f"{data.name}: none of its {len(data)} images can be read.")
    known = [m for m in masks if m is not None]
    return pictures, known if len(known) == len(masks) else None, data.name


# -- one system ---------------------------------------------------------------------------


@dataclass
class _Case:
    """Some images of one system: what goes in, what is outside, and how logits are had."""

    inputs: Tensor  # [B, 3, h, w]
    inside: Tensor  # bool [B, h, w]
    logits: Callable[[Tensor], Tensor]
    pruned: Callable[[Tensor], Tensor] | None
    differentiable: Callable[[Tensor], Tensor] | None


def _verify_one(name: str, system: System, images: list[Tensor], masks: list[Tensor] | None, seed: int) -> Verified:
    system._require_fit()
    held = isinstance(system, TakesMask)
    region = "the patches its mask hides"
    changes = dict.fromkeys(REPLACEMENTS, 0.0)
    pruned: list[float] = []
    slopes: list[float] = []
    control, flips, coverage = 0.0, 0, []
    for start in range(0, len(images), CHUNK):
        some = images[start : start + CHUNK]
        theirs = None if masks is None else masks[start : start + CHUNK]
        if isinstance(system, TakesMask):
            case = _held_case(system, some, theirs)
        else:
            case, region = _free_case(system, some, theirs)
        generator = torch.Generator().manual_seed(seed + start)
        others = _replacements(case.inputs, system.preprocess_, generator)
        with torch.no_grad():
            before = case.logits(case.inputs)
            turned = torch.zeros(len(some), dtype=torch.bool)
            for what, other in others.items():
                changed = torch.where(case.inside[:, None], case.inputs, other)
                after = case.logits(changed)
                changes[what] = max(changes[what], _difference(after, before))
                turned |= (after.argmax(1) != before.argmax(1)).cpu()
                if case.pruned is not None:
                    pruned.append(_difference(case.pruned(changed), case.pruned(case.inputs)))
            control = max(control, _positive_control(case, others, before))
        flips += int(turned.sum())
        coverage += case.inside.float().mean((1, 2)).tolist()
        slope = None if case.differentiable is None else _gradient(case, generator)
        slopes += [] if slope is None else [slope]
    return Verified(
        name, region, held, changes, max(pruned) if pruned else None, max(slopes) if slopes else None, control, flips,
        tuple(coverage),
    )  # fmt: skip


def _positive_control(case: _Case, others: Mapping[str, Tensor], before: Tensor) -> float:
    """Largest change of a logit when what is visible is replaced: by noise, by the rest only if noise does nothing."""
    for other in others.values():
        change = _difference(case.logits(torch.where(case.inside[:, None], other, case.inputs)), before)
        if change:
            return change
    return 0.0


def _difference(after: Tensor, before: Tensor) -> float:
    """Largest absolute change of a logit."""
    return _finite((after - before).abs().max())


def _finite(value: Tensor) -> float:
    """NaN counts as infinite: a comparison with it would pass it over."""
    return math.inf if bool(value.isnan()) else float(value)


def _held_case(system: TakesMask, images: list[Tensor], masks: list[Tensor] | None) -> _Case:
    """The system's own mask, computed once and held."""
    if masks is not None and isinstance(system, NeedsMasks) and system.reads_true_masks:
        inputs, tokens = system.stage_inputs(images, masks=masks)
    else:
        inputs, tokens = system.stage_inputs(images)
    inputs, tokens = inputs.detach().cpu(), tokens.detach().cpu()
    hard = tokens.dtype == torch.bool

    def logits(x: Tensor) -> Tensor:
        return system.logits_with_mask(x, tokens)

    def pruned(x: Tensor) -> Tensor:
        return system.logits_with_mask(x, tokens, prune=True)

    def prunes() -> bool:
        try:
            with torch.no_grad():
                pruned(inputs)
        except ModelError:
            return False
        return True

    return _Case(
        inputs,
        patches_to_pixels(tokens if hard else tokens > 0.5, inputs.shape[-2:]),
        logits,
        pruned if hard and prunes() else None,
        logits,
    )


def patches_to_pixels(tokens: Tensor, size: tuple[int, ...] | torch.Size) -> Tensor:
    """Which pixels belong to kept patches: ``[B, N]`` or ``[B, h, w]`` of booleans to ``[B, H, W]``.

    >>> patches_to_pixels(torch.tensor([[True, False]]), (2, 4)).int()
    tensor([[[1, 1, 0, 0],
             [1, 1, 0, 0]]], dtype=torch.int32)
    """
    height, width = size[-2:]
    if tokens.ndim == 2:
        rows = max(1, round(math.sqrt(tokens.shape[1] * height / width)))
        tokens = tokens.unflatten(1, (rows, -1)) if tokens.shape[1] % rows == 0 else tokens[:, None]
    rows, columns = tokens.shape[1:]
    if height % rows or width % columns:
        raise ModelError(
            f"a mask of {rows}x{columns} patches does not divide images of {height}x{width} px, so the pixels it hides "
            "cannot be told."
        )
    return tokens.repeat_interleave(height // rows, 1).repeat_interleave(width // columns, 2)


def _free_case(system: System, images: list[Tensor], masks: list[Tensor] | None) -> tuple[_Case, str]:
    """No mask of its own to hold: the true masks, or where it looks, say what is outside."""
    inputs = system.inputs(images).cpu()
    size = (inputs.shape[-2], inputs.shape[-1])
    if masks is not None:
        inside = torch.stack([system.preprocess_.prepare_mask(m) for m in masks]) > 0.5
        region = "the pixels outside the true masks"
    else:
        gaze = system.look(images)
        if gaze.mask is not None:
            inside = F.interpolate(gaze.mask[:, None].float(), size, mode="nearest-exact")[:, 0] > 0.5
        else:
            heat = gaze.upsampled(size)
            inside = heat > heat.mean((1, 2), keepdim=True)
        inside, region = inside.cpu(), "the pixels it does not look at"
    network = network_of(system)
    differentiable: Callable[[Tensor], Tensor] | None = None
    if network is not None:

        def differentiable(x: Tensor) -> Tensor:
            return network.cpu().eval()(x)

    return _Case(inputs, inside, lambda x: system._logits(x), None, differentiable), region


def _replacements(inputs: Tensor, view: Preprocess, generator: torch.Generator) -> dict[str, Tensor]:
    """What to put in place of pixels, each normalised like ``inputs [B, 3, h, w]``."""
    height, width = inputs.shape[-2:]
    noise = torch.randint(0, 256, inputs.shape, generator=generator, dtype=torch.uint8)
    board = (torch.arange(height)[:, None] + torch.arange(width)) % 2 * 255
    # one image alone: its own upside-down and mirrored stands in for another
    another = inputs.roll(1, 0) if len(inputs) > 1 else inputs.flip(-1, -2)

    def plain(value: Tensor) -> Tensor:
        return view.normalise(value.to(torch.uint8).expand(len(inputs), 3, height, width))

    return {
        "noise": view.normalise(noise),
        "another image": another,
        "black": plain(torch.zeros(1)),
        "white": plain(torch.full((1,), 255)),
        "checkerboard": plain(board),
    }


def _gradient(case: _Case, generator: torch.Generator) -> float | None:
    """Largest absolute derivative of a logit by a pixel outside; None when there is none to take."""
    assert case.differentiable is not None
    x = case.inputs.clone().requires_grad_()
    logits = case.differentiable(x)
    if not logits.requires_grad:
        return None
    classes = logits.shape[1]
    # of many classes, random mixtures: where no logit depends on a pixel, no mixture does
    mixtures = torch.randn(4, classes, generator=generator)
    directions = torch.eye(classes) if classes <= MANY_CLASSES else mixtures
    worst = 0.0
    for direction in directions:
        (slope,) = torch.autograd.grad((logits * direction).sum(), x, retain_graph=True)
        outside = slope.abs().amax(1)[~case.inside]
        worst = max(worst, _finite(outside.max()) if outside.numel() else 0.0)
    return worst
