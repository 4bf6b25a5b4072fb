"""How far a network keeps the object and the shortcut apart: CEP, CAP and CGP.

*CEP* swaps the core (or the spurious) part of an image for another image's and asks which swap moves a
read-out more: 1 means the read-out follows the core alone, 0 the spurious part alone, in between it is
entangled. *CAP* is the share of a channel's activation on the core region, *CGP* the same share of a Grad-CAM
heat map.

Reference: the DAR paper, arXiv 2605.20732, eqs. 1-3 (CEP) and 6-7 (CAP, CGP). The images with one part
swapped come from :func:`foveate.measure.swap`; the read-outs from any network in eval mode, without
augmentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.errors import DataError, FoveateError
from foveate.measure.metric import Metric

LEVELS = ("output", "feature", "map", "pixel")
EXPECTATIONS = ("of_ratio", "ratio_of")


@dataclass(frozen=True)
class ShareResult:
    """A mean share per unit (channel, pixel, component …), with what could not be counted.

    Attributes:
        values: mean share of every unit, float64; NaN for a dead unit. A scalar when there is one read-out.
        counted: how many samples entered each unit's mean, same shape.
        n: samples seen.
    """

    values: Tensor
    counted: Tensor
    n: int

    @property
    def live(self) -> Tensor:
        """The values of the units that are not dead, flat: what a histogram shows."""
        return self.values[self.counted > 0].flatten()

    @property
    def value(self) -> float:
        """The mean over live units; NaN when all are dead."""
        return float(self.live.mean()) if self.live.numel() else float("nan")

    @property
    def dead(self) -> int:
        """Units without a single sample to count (0/0 for all of them), left out of ``value``."""
        return int((self.counted == 0).sum())

    @property
    def dropped(self) -> int:
        """(sample, unit) pairs left out because they are 0/0, those of dead units included."""
        return int((self.n - self.counted).sum())

    def __str__(self) -> str:
        units = self.values.numel()
        parts = [f"{self.value:.3f}"] + ([f"over {units - self.dead} of {units} units"] if units > 1 else [])
        return " ".join(parts) + (f" ({self.dropped} of {self.n * units} undefined)" if self.dropped else "")


class _ShareAccumulator:
    """Running mean of ``part / whole`` per unit; memory does not grow with the number of samples."""

    def __init__(self, expectation: str):
        if expectation not in EXPECTATIONS:
            raise FoveateError(f"expectation must be one of {EXPECTATIONS}; got '{expectation}'.")
        self.expectation = expectation
        self.n = 0
        self._top: Tensor | None = None
        self._bottom: Tensor | None = None
        self._counted: Tensor | None = None

    def _add(self, part: Tensor, whole: Tensor) -> None:
        """``part`` and ``whole``: ``[B, *units]``, float64, ``0 <= part <= whole``."""
        if not bool(torch.isfinite(whole).all()):
            raise DataError("a read-out is not finite (NaN or infinite); check the network and its input.")
        defined = whole > 0
        if self.expectation == "of_ratio":
            # No epsilon below: it would pull undefined samples to 0 instead of leaving them out.
            top = torch.where(defined, part / torch.where(defined, whole, 1.0), 0.0).sum(0)
            bottom = defined.sum(0).double()
        else:
            top, bottom = part.sum(0), whole.sum(0)
        counted = defined.sum(0)
        if self._top is None or self._bottom is None or self._counted is None:
            self._top, self._bottom, self._counted = top, bottom, counted
        else:
            if top.shape != self._top.shape:
                raise DataError(f"batches of other shapes: {tuple(self._top.shape)} before, {tuple(top.shape)} now.")
            self._top, self._bottom = self._top + top, self._bottom + bottom
            self._counted = self._counted + counted
        self.n += len(part)

    def compute(self) -> ShareResult:
        """The result over everything seen so far."""
        if self._top is None or self._bottom is None or self._counted is None:
            raise DataError("nothing to compute: no batch was given yet.")
        values = torch.where(self._counted > 0, self._top / self._bottom, float("nan"))
        return ShareResult(values.cpu(), self._counted.cpu(), self.n)


class CEPAccumulator(_ShareAccumulator):
    """Core Effect Percentage over batches, so that feature maps need not be kept (DAR, eqs. 1-3).

    Args:
        level: what a unit is. ``"output"``: the whole read-out ``[B, ...]`` is one unit (logits by default;
            say so when you pass probabilities). ``"feature"``: every component of ``[B, C]``. ``"map"``:
            every channel of ``[B, C, H, W]``. ``"pixel"``: every single value of ``[B, C, H, W]``.
        expectation: ``"of_ratio"`` averages the ratio over samples (the paper); ``"ratio_of"`` divides the
            averages, so that samples with large effects weigh more.

    For several donors per image call :meth:`update` once for each.

    >>> cep = CEPAccumulator("feature")
    >>> image, other_core, other_rest = torch.tensor([[[1.0, 1, 0]], [[3.0, 1, 0]], [[1.0, 2, 0]]])
    >>> cep.update(image, other_core, other_rest)
    >>> cep.compute().values.tolist(), cep.compute().dead
    ([1.0, 0.0, nan], 1)
    """

    def __init__(self, level: str = "output", expectation: str = "of_ratio"):
        super().__init__(expectation)
        if level not in LEVELS:
            raise FoveateError(f"level must be one of {LEVELS}; got '{level}'.")
        self.level = level

    def update(self, original: Tensor, core_swapped: Tensor, spurious_swapped: Tensor) -> None:
        """Add the read-outs of a batch: of the images, with the core swapped, with the rest swapped."""
        if not original.shape == core_swapped.shape == spurious_swapped.shape:
            shapes = [tuple(t.shape) for t in (original, core_swapped, spurious_swapped)]
            raise DataError(f"the three read-outs must have one shape; got {shapes}.")
        wanted = {"feature": 2, "map": 4, "pixel": 4}.get(self.level)
        if original.ndim != wanted and (wanted is not None or original.ndim < 1):
            raise DataError(
                f"level '{self.level}' expects read-outs of {wanted or 'at least one'} dimensions; "
                f"got {tuple(original.shape)}."
            )
        with torch.no_grad():
            base = original.detach().double()
            core = (base - core_swapped.detach().double()).abs()
            spurious = (base - spurious_swapped.detach().double()).abs()
            if self.level == "output":
                core, spurious = core.flatten(1).sum(1), spurious.flatten(1).sum(1)
            elif self.level == "map":
                core, spurious = core.sum((2, 3)), spurious.sum((2, 3))
            self._add(core, core + spurious)


def core_effect_percentage(
    original: Tensor,
    core_swapped: Tensor,
    spurious_swapped: Tensor,
    level: str = "output",
    expectation: str = "of_ratio",
) -> ShareResult:
    """Core Effect Percentage (CEP): which swap moves the read-out more (DAR, eqs. 1-3).

    With ``E_core = ‖f(x) − f(core swapped)‖₁`` and ``E_spur`` likewise,
    ``CEP = mean of E_core / (E_core + E_spur)``. Samples where neither swap changes a unit (0/0, a dead
    channel) are dropped and counted.

    Args:
        original, core_swapped, spurious_swapped: the read-out of the images, of the images with another
            image's core, and with another image's spurious part; one shape, batch first.
        level, expectation: see :class:`CEPAccumulator`, which does the same over batches.

    >>> x, core, spurious = torch.zeros(4, 2), torch.full((4, 2), 3.0), torch.ones(4, 2)
    >>> core_effect_percentage(x, core, spurious).value
    0.75
    """
    accumulator = CEPAccumulator(level, expectation)
    accumulator.update(original, core_swapped, spurious_swapped)
    return accumulator.compute()


class CAPAccumulator(_ShareAccumulator):
    """Core Activation Percentage over batches (DAR, eqs. 6-7). Also CGP, when fed heat maps ``[B, H, W]``.

    Args:
        absolute: take absolute values first; needed where activations can be negative.
        expectation: see :class:`CEPAccumulator`.

    >>> cap = CAPAccumulator()
    >>> cap.update(torch.ones(2, 3, 4, 4), half_mask(8, 8))
    >>> cap.compute().values.tolist()
    [0.5, 0.5, 0.5]
    """

    def __init__(self, absolute: bool = False, expectation: str = "of_ratio"):
        super().__init__(expectation)
        self.absolute = absolute

    def update(self, maps: Tensor, core_mask: Tensor) -> None:
        """Add ``maps`` (``[B, C, H, W]`` or ``[B, H, W]``) with the core mask ``[h, w]`` or ``[B, h, w]``."""
        if maps.ndim not in (3, 4) or core_mask.ndim not in (2, 3):
            raise DataError(
                "expected maps [B, C, H, W] (or heat maps [B, H, W]) and a mask [h, w] or [B, h, w]; "
                f"got {tuple(maps.shape)} and {tuple(core_mask.shape)}."
            )
        if core_mask.ndim == 3 and len(core_mask) != len(maps):
            raise DataError(f"{len(core_mask)} masks for {len(maps)} maps; give one each, or one for all.")
        with torch.no_grad():
            values = maps.detach().double()
            if self.absolute:
                values = values.abs()
            elif bool((values < 0).any()):
                raise DataError("some activations are negative, so their share is undefined; pass absolute=True.")
            mask = mask_on_grid(core_mask.to(maps.device), (maps.shape[-2], maps.shape[-1]))
            if maps.ndim == 4 and mask.ndim == 3:
                mask = mask[:, None]
            self._add((values * mask).sum((-2, -1)), values.sum((-2, -1)))


def core_activation_percentage(maps: Tensor, core_mask: Tensor, absolute: bool = False) -> ShareResult:
    """Core Activation Percentage (CAP): share of each channel's activation that lies on the core (DAR, eq.
    6).

    Args:
        maps: activations ``[B, C, H, W]``, non-negative (or pass ``absolute=True``).
        core_mask: 1 on the core, ``[h, w]`` for all images or ``[B, h, w]``, at any resolution: it is brought
            to the grid by area, so a cell the mask covers by a third counts a third. :func:`half_mask` makes
            halves.

    All-zero maps are dropped and counted.

    >>> maps = torch.zeros(1, 1, 4, 4); maps[..., 2:, :] = 1
    >>> core_activation_percentage(maps, half_mask(4, 4)).value
    1.0
    """
    if maps.ndim != 4:
        raise DataError(f"core_activation_percentage expects maps [B, C, H, W]; got {tuple(maps.shape)}.")
    accumulator = CAPAccumulator(absolute)
    accumulator.update(maps, core_mask)
    return accumulator.compute()


def core_gradcam_percentage(heat: Tensor, core_mask: Tensor) -> ShareResult:
    """Core Grad-CAM Percentage (CGP): share of the heat map that lies on the core (DAR, eq. 7).

    Args:
        heat: non-negative heat maps ``[B, H, W]``. Prefer the map's own grid: bilinear upsampling leaks heat
            across the edge of the core.
        core_mask: as in :func:`core_activation_percentage`.

    All-zero heat maps are dropped and counted.

    >>> core_gradcam_percentage(torch.ones(1, 4, 4), half_mask(32, 32)).value
    0.5
    """
    if heat.ndim != 3:
        raise DataError(f"core_gradcam_percentage expects heat maps [B, H, W]; got {tuple(heat.shape)}.")
    accumulator = CAPAccumulator()
    accumulator.update(heat, core_mask)
    return accumulator.compute()


def half_mask(height: int, width: int, core: str = "bottom") -> Tensor:
    """A mask ``float [height, width]`` that is 1 on one half: ``"bottom"`` (dominoes), top, left or right.

    >>> half_mask(2, 3).tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    if core not in ("bottom", "top", "left", "right"):
        raise FoveateError(f"core must be 'bottom', 'top', 'left' or 'right'; got '{core}'.")
    if (height if core in ("bottom", "top") else width) % 2:
        raise DataError(f"an image of {height}x{width} cannot be cut in equal halves; that side must be even.")
    mask = torch.zeros(height, width)
    rows = slice(height // 2, None) if core == "bottom" else slice(0, height // 2 if core == "top" else None)
    columns = slice(width // 2, None) if core == "right" else slice(0, width // 2 if core == "left" else None)
    mask[rows, columns] = 1.0
    return mask


def mask_on_grid(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """The share of every grid cell that ``mask`` covers: ``[..., h, w] -> float64 [..., *size]``, exact for
    any sizes.

    >>> mask_on_grid(torch.tensor([[0.0], [0.0], [1.0]]), (2, 1)).flatten().tolist()
    [0.0, 0.6666666666666666]
    """
    rows = _overlap(mask.shape[-2], size[0], mask.device)
    columns = _overlap(mask.shape[-1], size[1], mask.device)
    return rows @ mask.double() @ columns.T


def _overlap(pixels: int, cells: int, device: torch.device) -> Tensor:
    """``[cells, pixels]``: which share of each cell each pixel fills, when both tile the same length."""
    # In units of 1 / (pixels * cells) all edges are whole numbers, so nothing is lost to rounding.
    cell = torch.arange(cells, device=device)[:, None] * pixels
    pixel = torch.arange(pixels, device=device)[None, :] * cells
    length = torch.minimum(cell + pixels, pixel + cells) - torch.maximum(cell, pixel)
    return length.clamp(min=0).double() / pixels


CEP_MAP = Metric("cep_map", tables=())
CEP_PIXEL = Metric("cep_pixel", tables=())
CEP_FEATURE = Metric("cep_feature", tables=("bench",))
CEP_OUTPUT = Metric("cep_output", tables=("bench",))
CAP = Metric("cap", tables=("bench",))
CGP = Metric("cgp", tables=("bench",))
