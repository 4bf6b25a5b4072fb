"""Critters: drawn animals in drawn habitats, a benchmark with known shortcuts that needs no download.

The class is the species, told apart by shape and parts. What goes with it in training, and must not be leaned
on, is chosen by knobs: the habitat, a thing beside the animal, or the colour of the coat. Every image comes with
its mask, box and the places of its named parts. Images are drawn when first asked for, from recipes that give
the same bits on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.drawing.animals import COATS, KEYPOINTS
from foveate.data.drawing.exact import raw_bits
from foveate.data.drawing.habitats import HABITATS
from foveate.data.drawing.raster import Canvas
from foveate.data.drawing.scene import Scene, outline, render
from foveate.data.drawing.species import SPECIES
from foveate.data.drawing.things import CLUTTER, THINGS
from foveate.data.images import ImageSource
from foveate.errors import DataError, suggest

MAX_CLASSES = len(SPECIES)
KEEP_BYTES = 512 * 2**20
"""A split whose images and masks take less than this is kept in memory once drawn; a larger one is redrawn."""

_PLAN_KEY = 1 << 20  # bit streams of the plans, apart from those of the images


def critters(
    seed: int = 0,
    *,
    classes: int = 2,
    size: int = 64,
    strength: float | None = 0.95,
    second_strength: float | None = None,
    colour_strength: float | None = None,
    attribute: str | None = None,
    train: int | None = None,
    target: int | None = None,
    val: int | None = None,
    test: int | None = None,
    val_strength: float | None = None,
    test_strength: float | None = None,
    centre_bias: float = 0.0,
    object_scale: tuple[float, float] = (0.36, 0.54),
    distractors: int = 0,
) -> Benchmark:
    """Drawn animals whose habitat, company or coat gives the class away in training and nowhere else.

    In ``train`` the share ``strength`` of every class is in the habitat of its own number, the rest spread
    evenly over the other habitats. ``target``, ``val`` and ``test`` hold every group (class × attribute) equally
    often. Counts are exact, not drawn: 2000 training images of two classes at 0.95 are 950, 50, 50 and 950.
    ``1 / classes`` is no correlation at all.

    Args:
        seed: any whole number from 0 up; the same seed gives the same bits on every machine.
        classes: how many species (and habitats), 2 to 8, in the order of :func:`species_names`.
        size: side of the images in pixels, 32 to 512; drawn at that size, not scaled.
        strength: how strongly the habitat goes with the class in ``train``; None draws habitats at random.
        second_strength: puts a thing beside every animal that goes with the class this strongly in ``train``
            and not at all elsewhere (``extras["second"]``; names in ``notes["second_names"]``). None: no things.
        colour_strength: ties the coat's colour to the class in ``train``, a shortcut that lies on the object
            itself. None: every species takes any of eight colours.
        attribute: which shortcut the groups are made of: ``"habitat"``, ``"colour"`` or ``"second"``. By default
            the first of these three whose strength is given. All are in ``extras`` in any case.
        train, target, val, test: images in the split; 0 leaves it out. By default about 2000, 240, 400 and 1000,
            rounded so that groups come out equal, and more where 5 or more classes would make groups tiny.
        val_strength, test_strength: strength of the attribute in ``val`` and ``test``; None is balanced.
        centre_bias: 0 puts the animal anywhere on the ground, 1 in the middle of the image.
        object_scale: smallest and largest side of the animal (square root of width times height of its box)
            as a share of the image; the default makes it cover about 10 to 25 % of the pixels.
        distractors: things of other kinds lying about in every ``test`` image, unrelated to the class.

    Returns:
        A :class:`~foveate.data.benchmark.Benchmark` with masks, boxes, keypoints (``ds.keypoint_names``), and
        ``extras`` ``habitat``, ``colour``, ``facing`` and, when on, ``second``.

    >>> bench = critters(seed=0, train=200, target=8, val=8, test=40)
    >>> bench.train.group_names
    ['cat/meadow', 'cat/sea', 'duck/meadow', 'duck/sea']
    >>> bench.train.group_counts.tolist(), bench.test.group_counts.tolist()
    ([95, 5, 5, 95], [10, 10, 10, 10])
    >>> sample = bench.train[0]
    >>> tuple(sample.image.shape), tuple(sample.mask.shape), tuple(sample.box.shape)
    ((3, 64, 64), (64, 64), (4,))

    The coat's colour as the only shortcut, which no crop or mask can take away:

    >>> coats = critters(strength=None, colour_strength=0.95, train=200, target=0, val=0, test=0)
    >>> coats.train.attribute_names, coats.train.group_counts.tolist()
    (['ginger', 'blue'], [95, 5, 5, 95])
    """
    strengths = {"habitat": strength, "colour": colour_strength, "second": second_strength}
    _check(seed, classes, size, centre_bias, object_scale, distractors)
    for name, value in [*strengths.items(), ("val", val_strength), ("test", test_strength)]:
        _check_strength(name, value)
    attribute = _attribute(attribute, strengths)
    names = {"habitat": list(HABITATS), "colour": list(COATS), "second": list(THINGS)}
    given = zip(SPLITS, (train, target, val, test), strict=True)
    sizes = {split: _size(split, asked, classes) for split, asked in given}  # all of them before anything is drawn
    made: dict[str, GroupedDataset] = {}
    for number, split in enumerate(SPLITS):
        count = sizes[split]
        if count == 0:
            continue
        chosen = {"val": val_strength, "test": test_strength}.get(split)
        used = {
            k: (v if split == "train" else chosen if k == attribute and chosen is not None else 1 / classes)
            for k, v in strengths.items()
            if v is not None
        }
        plan = plan_split(seed, number, count, classes, used, first=attribute)
        basis = Scene(
            seed, number, 0, size, 0, 0,
            clutter=distractors if split == "test" else 0, centre_bias=float(centre_bias),
            object_scale=(float(object_scale[0]), float(object_scale[1])),
        )  # fmt: skip
        made[split] = _dataset(f"critters/{split}", basis, plan, classes, attribute, names[attribute][:classes])
    if not made:
        raise DataError("every split has 0 images; give at least one of train, target, val and test a size.")
    notes: dict[str, Any] = {
        "seed": seed,
        "attribute": attribute,
        "strengths": {k: v for k, v in strengths.items() if v is not None},
        "species_names": species_names()[:classes],
        "habitat_names": names["habitat"][:classes],
        "colour_names": names["colour"],
        "distractor_names": list(CLUTTER),
    }
    if second_strength is not None:
        notes["second_names"] = names["second"][:classes]
    return Benchmark("critters", made, notes)


def species_names() -> list[str]:
    """The species in class order.

    >>> species_names()[:4]
    ['cat', 'duck', 'rabbit', 'penguin']
    """
    return list(SPECIES)


# -- what goes with what ------------------------------------------------------------------


def allocate(count: int, strength: float, classes: int, own: int) -> list[int]:
    """How many of ``count`` images get each value when value ``own`` is to have the share ``strength``.

    The own value gets the rounded count, the others the rest in equal parts; what cannot be split evenly goes
    one each to the values after ``own``, so that no value is favoured over all classes.

    >>> allocate(100, 0.95, classes=4, own=1)
    [1, 95, 2, 2]
    """
    # half up, with slack for shares such as 1/3 that have no exact binary form
    majority = min(count, int(np.floor(count * strength + 0.5 + 1e-9)))
    counts = [0] * classes
    counts[own] = majority
    each, left = divmod(count - majority, classes - 1)
    for k in range(1, classes):
        counts[(own + k) % classes] = each + (k <= left)
    return counts


def _spread(counts: Sequence[int]) -> NDArray[np.int64]:
    """Values ``0 .. len(counts) - 1``, each as often as counted, evenly interleaved."""
    values = np.repeat(np.arange(len(counts)), counts)
    place = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in counts])
    return values[np.argsort(place, kind="stable")]


def plan_split(
    seed: int, split: int, count: int, classes: int, strengths: dict[str, float], first: str
) -> dict[str, NDArray[np.int64]]:
    """Species, habitat and the other cues of every image of a split: exact counts in random order.

    Cue ``first`` forms the groups and is counted exactly. Each further cue is counted exactly within every class
    and interleaved over the values of the cues before it, so that it is independent of them given the class.
    Without a strength the habitat is random; returns columns ``species``, ``habitat`` and those in ``strengths``.
    """
    bits = raw_bits(seed, _PLAN_KEY, split)
    cues = sorted(strengths, key=lambda name: name != first)
    columns: dict[str, list[NDArray[np.int64]]] = {name: [] for name in ("species", *cues)}
    for own in range(classes):
        n = count // classes + (own < count % classes)
        columns["species"].append(np.full(n, own))
        earlier: list[NDArray[Any]] = []
        for cue in cues:
            share = allocate(n, strengths[cue], classes, own)
            # earlier cues sort the images, ties fall at random; the last key of lexsort counts most
            order = np.lexsort([bits.random_raw(n), *reversed(earlier)])
            column = np.empty(n, dtype=np.int64)
            column[order] = _spread(share)
            columns[cue].append(column)
            earlier.append(column)
    shuffle = np.argsort(bits.random_raw(count), kind="stable")
    plan = {name: np.concatenate(parts)[shuffle] for name, parts in columns.items()}
    if "habitat" not in plan:
        plan["habitat"] = (bits.random_raw(count) % np.uint64(classes)).astype(np.int64)
    return plan


# -- images -------------------------------------------------------------------------------


class CritterImages:
    """An image source that draws its scenes when first asked for and keeps them while they are small.

    ``scenes[i]`` is the recipe of image ``i``; ``masks`` is the matching source of masks, which shares the
    drawn pixels. :meth:`redraw` draws a changed recipe, for instance the same animal in another habitat.
    """

    def __init__(self, scenes: Sequence[Scene], name: str = "critters"):
        self.scenes = list(scenes)
        self.name = name
        n, size = len(self.scenes), self.scenes[0].size if scenes else 0
        self._keep = n * size * size * 4 <= KEEP_BYTES
        # untouched pages of an empty array take no memory, so this costs nothing until images are drawn
        shape = (n if self._keep else 0, size, size)
        self._pixels = np.empty((*shape, 3), dtype=np.uint8)
        self._masks = np.empty(shape, dtype=np.uint8)
        self._drawn = np.zeros(n, dtype=bool)
        self._last: tuple[int, NDArray[np.uint8], NDArray[np.uint8]] | None = None
        self.masks = CritterMasks(self)

    def __len__(self) -> int:
        return len(self.scenes)

    def pair(self, i: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Image and mask ``i``."""
        i = range(len(self.scenes))[i]
        if self._keep:
            if not self._drawn[i]:
                self._pixels[i], self._masks[i] = render(self.scenes[i])
                self._drawn[i] = True
            return self._pixels[i], self._masks[i]
        last = self._last
        if last is None or last[0] != i:
            last = self._last = (i, *render(self.scenes[i]))
        return last[1], last[2]

    def redraw(self, i: int, **changes: Any) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Image and mask ``i`` with some of its recipe changed; all other random choices stay.

        >>> from foveate.data.drawing.scene import Scene
        >>> source = CritterImages([Scene(0, 0, 0, size=32, species=0, habitat=0)])
        >>> (source.redraw(0, habitat=1)[1] == source.masks.read(0)).all()
        np.True_
        """
        return render(replace(self.scenes[i], **changes))

    def read(self, i: int) -> NDArray[np.uint8]:
        return self.pair(i)[0]

    def where(self, i: int) -> str:
        return f"{self.name}[{i}]"

    def digest(self, i: int) -> bytes:
        return _digest(self.read(i))


@dataclass(frozen=True)
class CritterMasks:
    """The masks of :class:`CritterImages`, ``uint8 [H, W]``."""

    images: CritterImages

    def __len__(self) -> int:
        return len(self.images)

    def read(self, i: int) -> NDArray[np.uint8]:
        return self.images.pair(i)[1]

    def where(self, i: int) -> str:
        return f"mask of {self.images.where(i)}"

    def digest(self, i: int) -> bytes:
        return _digest(self.read(i))


def _digest(pixels: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(pixels.tobytes() + str(pixels.shape).encode(), digest_size=16).digest()


def _dataset(
    name: str, basis: Scene, plan: dict[str, NDArray[np.int64]], classes: int, attribute: str, values: list[str]
) -> GroupedDataset:
    scenes = []
    for i in range(len(plan["species"])):
        cues: dict[str, Any] = {
            cue: int(plan[cue][i]) for cue in ("species", "habitat", "colour", "second") if cue in plan
        }
        scenes.append(replace(basis, index=i, **cues))
    canvas = Canvas(basis.size)
    outlines = [outline(scene, canvas) for scene in scenes]
    images = CritterImages(scenes, name)
    masks: ImageSource = images.masks
    extras = {
        "habitat": plan["habitat"],
        "colour": np.array([o.colour for o in outlines]),
        "facing": np.array([o.facing for o in outlines]),
    }
    if "second" in plan:
        extras["second"] = plan["second"]
    return GroupedDataset(
        images,
        plan["species"],
        species_names()[:classes],
        attributes=extras[attribute],
        attribute_names=values,
        masks=masks,
        boxes=np.array([o.box for o in outlines], dtype=np.float32),
        keypoints=np.stack([o.keypoints for o in outlines]),
        keypoint_names=KEYPOINTS,
        extras=extras,
        name=name,
    )


# -- settings -----------------------------------------------------------------------------


def _size(split: str, given: int | None, classes: int) -> int:
    if given is not None:
        if isinstance(given, (bool, str)) or given != int(given) or given < 0:
            raise DataError(f"{split} must be a whole number of images, 0 or more; found {given!r}.")
        return int(given)
    if split == "train":
        return -(-max(2000, 500 * classes) // classes) * classes
    groups = classes * classes
    about, least = {"target": (240, 8), "val": (400, 10), "test": (1000, 20)}[split]
    return groups * max(least, round(about / groups))


def _attribute(name: str | None, strengths: dict[str, float | None]) -> str:
    if name is None:
        return next((k for k, v in strengths.items() if v is not None), "habitat")
    if name not in strengths:
        raise DataError(
            f"attribute must be one of {', '.join(strengths)}; found {name!r}.{suggest(str(name), list(strengths))}"
        )
    if strengths[name] is None and name != "habitat":
        raise DataError(f"attribute='{name}' needs {name}_strength; give it a share such as 0.95.")
    return name


def _check_strength(name: str, value: float | None) -> None:
    if value is not None and not 0.0 <= value <= 1.0:
        knob = "strength" if name == "habitat" else f"{name}_strength"
        raise DataError(f"{knob} is a share between 0 and 1 (or None); found {value!r}.")


def _check(
    seed: int, classes: int, size: int, centre_bias: float, object_scale: tuple[float, float], distractors: int
) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError(f"seed must be a whole number, 0 or more; found {seed!r}.")
    if not 2 <= classes <= MAX_CLASSES:
        raise DataError(
            f"critters has {MAX_CLASSES} species ({', '.join(SPECIES)}), so classes goes from 2 to {MAX_CLASSES}; "
            f"found {classes!r}."
        )
    if not 32 <= size <= 512 or size != int(size):
        raise DataError(f"size is the side of the images in pixels, from 32 to 512; found {size!r}.")
    if not 0.0 <= centre_bias <= 1.0:
        raise DataError(f"centre_bias goes from 0 (anywhere) to 1 (always the middle); found {centre_bias!r}.")
    if len(object_scale) != 2 or not 0.1 <= object_scale[0] <= object_scale[1] <= 0.9:
        raise DataError(
            "object_scale is (smallest, largest) side of the animal as a share of the image, between 0.1 and 0.9; "
            f"found {object_scale!r}."
        )
    if not 0 <= distractors <= 12 or distractors != int(distractors):
        raise DataError(f"distractors is how many things lie about in a test image, 0 to 12; found {distractors!r}.")
