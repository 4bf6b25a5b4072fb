"""How entangled a fitted network is: CEP, CAP and CGP of its maps, features and output on a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foveate.assemble.capabilities import network_of
from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, ModelError
from foveate.measure import CAPAccumulator, CEPAccumulator, ShareResult, donor_permutation, swap


@dataclass(frozen=True)
class Entanglement:
    """What :func:`entanglement` measured; near 1 is core, near 0 spurious, between is entangled.

    Attributes:
        map, pixel, feature, output: CEP of each channel, each channel at each place, each pooled component,
            and the logits as a whole.
        cap: share of each channel's activation on the core.
        cgp: share of the Grad-CAM heat (predicted class) on the core.
        exact: whether the swaps were exact (halves), or recomposed with masks over filled-in backgrounds.
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
        core: one mask ``[H, W]`` for all images, 1 on the core (halves of dominoes: ``half_mask(64, 32)``);
            the swap is then exact. Without it each image's own object mask is used and the place behind it
            is filled in.
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
    exact = core is not None
    prepared, masks = _prepared(system, dataset.subset(chosen), core)
    cep = {level: CEPAccumulator(level) for level in ("map", "pixel", "feature", "output")}
    cap, cgp = CAPAccumulator(absolute=True), CAPAccumulator()
    for turn in range(donors):
        order = torch.from_numpy(donor_permutation(len(prepared), np.random.default_rng([seed, turn])))
        for start in range(0, len(prepared), batch_size):
            at = slice(start, start + batch_size)
            own, others = prepared[at], prepared[order[at]]
            mask = masks if exact else masks[at]
            swapped = swap(own, mask, others, None if exact else masks[order[at]])
            inputs = view.normalise(torch.cat([own, *swapped]))
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
        cap=cap.compute(), cgp=cgp.compute(), exact=exact,
    )  # fmt: skip


def _prepared(system: System, dataset: GroupedDataset, core: Tensor | None) -> tuple[Tensor, Tensor]:
    view = system.preprocess_
    samples = list(dataset)
    images = torch.stack([view.prepare(s.image) for s in samples])
    if core is not None:
        return images, view.prepare_mask(core.float())
    if any(s.mask is None for s in samples):
        raise DataError(f"{dataset.name}: some images have no mask; every image needs one here.")
    return images, torch.stack([view.prepare_mask(s.mask) for s in samples if s.mask is not None])
