"""How entangled a fitted network is: CEP, CAP and CGP of its maps, features and output on a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foveate.assemble.capabilities import network_of
from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, ModelError
from foveate.measure import CAPAccumulator, CEPAccumulator, ShareResult, donor_permutation, mask_on_grid, swap


@dataclass(frozen=True)
class Entanglement:
    """What :func:`entanglement` measured; near 1 is core, near 0 spurious, between is entangled.

    Attributes:
        map, pixel, feature, output: CEP of each channel, each channel at each place, each pooled component,
            and the logits as a whole.
        cap: share of each channel's activation on the core.
        cgp: share of the Grad-CAM heat (predicted class) on the core.
        exact: whether the swaps were exact: one core mask for all, and no pixel that the network sees is a mixture
            of core and surroundings. Not so with object masks (the place behind is filled in), nor where resizing
            has blended the seam: there even a network that reads the core's place alone reads a little of the rest,
            and its CEP stays below 1.
    """

    map: ShareResult
    pixel: ShareResult
    feature: ShareResult
    output: ShareResult
    cap: ShareResult
    cgp: ShareResult
    exact: bool

    def to_dict(self) -> dict[str, float]:
        """The mean of each measure."""
        return {n: getattr(self, n).value for n in ("map", "pixel", "feature", "output", "cap", "cgp")}


def entanglement(
    system: System,
    dataset: GroupedDataset,
    *,
    core: Tensor | None = None,
    images: int = 500,
    donors: int = 1,
    batch_size: int = 64,
    seed: int = 0,
) -> Entanglement:
    """Swap core and surroundings between images and see which moves the network more.

    The donor of an image is another image drawn uniformly, the same for both swaps; evaluation mode, no
    augmentation, logits as output.

    Args:
        system: a fitted system that ends in a network.
        dataset: images to swap, all of one size; with masks unless ``core`` is given.
        core: one mask ``[H, W]`` for all images, 1 on the core (halves of dominoes: ``half_mask(64, 32)``).
            The images' own pixels are swapped, before anything is resized, so that the network sees what it would
            see of such images. Without it each image's own object mask is used and the place behind it is filled
            in.
        images: at most this many images, evenly spread over the dataset.
        donors: donors per image.
        seed: chooses the donors.

    Reference: "Deep Attention Reweighting", arXiv 2605.20732, equations 1 to 3, 6 and 7.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> found = fv.entanglement(base, data.test)  # with the object masks of the critters
    >>> found.exact, list(found.to_dict())
    (False, ['map', 'pixel', 'feature', 'output', 'cap', 'cgp'])
    >>> all(0 <= share <= 1 for share in found.to_dict().values())
    True
    """
    system._require_fit()
    network, view = network_of(system), system.preprocess_
    if network is None:
        raise ModelError(
            f"entanglement reads the feature maps of one network that sees the whole image, and "
            f"{type(system).__name__} has none. Measure an ERM model, or DFR or DAR on one."
        )
    network.cpu().eval()
    if core is None and dataset.masks is None:
        raise DataError(f"{dataset.name} has no masks; give one core mask for all images, or add a mask column.")
    chosen = np.linspace(0, len(dataset) - 1, min(images, len(dataset))).astype(int)
    shown = _shown(view, dataset.subset(chosen), core)
    cep = {level: CEPAccumulator(level) for level in ("map", "pixel", "feature", "output")}
    cap, cgp = CAPAccumulator(absolute=True), CAPAccumulator()
    for turn in range(donors):
        order = torch.from_numpy(donor_permutation(len(shown.images), np.random.default_rng([seed, turn])))
        for start in range(0, len(shown.images), batch_size):
            at = slice(start, start + batch_size)
            own, mask = shown.images[at], shown.seen if shown.seen.ndim == 2 else shown.seen[at]
            both = torch.cat([own, *shown.swapped(at, order[at])])
            inputs = view.normalise(torch.stack([view.prepare(image) for image in both]))
            with torch.no_grad():
                maps = network.maps(inputs)
                features = network.pool_maps(maps) if network.reads_maps else network.embed(inputs)
                logits = network.head(features)
            for level, read in (("map", maps), ("pixel", maps), ("feature", features), ("output", logits)):
                cep[level].update(*read.chunk(3))
            if turn == 0:
                cap.update(maps[: len(own)], mask)
                cgp.update(network.gradcam(inputs[: len(own)]).map, mask)
    return Entanglement(
        **{level: accumulator.compute() for level, accumulator in cep.items()},
        cap=cap.compute(), cgp=cgp.compute(), exact=shown.exact,
    )  # fmt: skip


@dataclass(frozen=True)
class _Shown:
    """Images ``[N, 3, H, W]``, where their core is (``[H, W]`` for all, or ``[N, H, W]``), and the same as ``seen`` by
    the network, after resizing."""

    images: Tensor
    masks: Tensor
    seen: Tensor
    exact: bool

    def swapped(self, at: slice, donors: Tensor) -> tuple[Tensor, Tensor]:
        """Core swapped, and spurious swapped."""
        own, others, masks = self.images[at], self.images[donors], self.masks
        return swap(own, masks, others) if masks.ndim == 2 else swap(own, masks[at], others, masks[donors])


def _shown(view: Preprocess, dataset: GroupedDataset, core: Tensor | None) -> _Shown:
    samples = list(dataset)
    images = [s.image for s in samples]
    if core is not None and len({i.shape for i in images}) == 1:
        mask = mask_on_grid(core, (images[0].shape[-2], images[0].shape[-1])).float()
        seen = view.prepare_mask(mask)
        mixed = bool(((seen > 1e-6) & (seen < 1 - 1e-6)).any())  # the weights of a filter sum to 1 but for rounding
        return _Shown(torch.stack(images), mask, seen, exact=not mixed)
    prepared = torch.stack([view.prepare(i) for i in images])
    if core is not None:  # images of several sizes have no pixels to trade until they are of one
        seen = view.prepare_mask(core.float())
        return _Shown(prepared, seen, seen, exact=False)
    if any(s.mask is None for s in samples):
        raise DataError(f"{dataset.name}: some images have no mask; every image needs one here.")
    seen = torch.stack([view.prepare_mask(s.mask) for s in samples if s.mask is not None])
    return _Shown(prepared, seen, seen, exact=False)
