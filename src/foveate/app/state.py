"""What the page knows, without a browser: images, models, what was changed, and what is shown."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.app.guard import read_upload
from foveate.app.novelty import Familiar
from foveate.app.pictures import Picture, crop_pictures, part_picture, seen_picture, to_tensor
from foveate.app.views import REFERENCE, Change, View
from foveate.assemble.system import System, aligned
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, FoveateError, ModelError
from foveate.measure import UNREADABLE, GroupReport, answered, decided, group_report, name_of, shares_of
from foveate.measure.groups import SmallGroupWarning

Which = Literal["all", "errors", "right", "differ"]
NONE = Change()


@dataclass
class Shown:
    """One image under one model.

    Attributes:
        image: what was asked about, ``uint8 [H, W, 3]``.
        prediction: name of the class, or ``"no answer"``.
        chances: probability of every class, by name.
        correct: whether it is the label; None when there is no label.
        looking: where the model looks, drawn over the image.
        kind: what made that map ("grad-cam", "attention", "parts").
        parts: the parts in their colours, or None.
        seen: the image with all that is hidden hatched, or None.
        coverage: share of the patches that is let through, or None.
        crops: what a cropping model cuts out.
    """

    image: Picture
    prediction: str
    chances: dict[str, float]
    correct: bool | None
    looking: Picture | None = None
    kind: str = ""
    parts: Picture | None = None
    seen: Picture | None = None
    coverage: float | None = None
    crops: list[Picture] = field(default_factory=list)


class Session:
    """The state behind the page; every figure and picture on it comes from here.

    Args:
        models: fitted systems by name; one or two.
        data: what to browse.
        folders: where each model was loaded from, so that interventions can be saved into it.
        limit: at most this many images of a split are used (an even sample of every group), so that a change shows
            at once.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> session = Session({"ERM": base}, data)
    >>> wrong = session.rows("ERM", "val", which="errors")
    >>> bool(session.report("ERM", "val").average == 1 - len(wrong) / 16)
    True
    >>> session.show("ERM", session.image("val", 0)).prediction in ("cat", "duck")
    True
    """

    def __init__(
        self,
        models: Mapping[str, System],
        data: Benchmark,
        *,
        folders: Mapping[str, Path] | None = None,
        limit: int = 1000,
    ):
        if not 1 <= len(models) <= 2:
            raise FoveateError(f"the page shows one model or compares two; got {len(models)}.")
        self.name = data.name
        self.folders = {name: Path(path) for name, path in (folders or {}).items()}
        first = next(iter(models.values()))
        first._require_fit()
        for name, system in models.items():
            system._require_fit()
            if sorted(system.class_names_) != sorted(first.class_names_):
                raise ModelError(
                    f"the models know other classes ({', '.join(first.class_names_)}; {name}: "
                    f"{', '.join(system.class_names_)}), so they cannot be compared."
                )
        self.class_names = list(first.class_names_)
        if not data.splits:
            raise DataError(f"{data.name} has no images to show.")
        self.data: dict[str, GroupedDataset] = {}
        self.whole: dict[str, int] = {}
        for split, dataset in data.splits.items():
            dataset = aligned(first, dataset)
            self.whole[split] = len(dataset)
            self.data[split] = dataset if len(dataset) <= limit else dataset.subset(_even(dataset, limit))
        self.split = next(s for s in ("val", "test", "target", "train") if s in self.data)
        """Where interventions are judged: validation images when there are any."""
        learned = self.data.get("train", self.data[self.split])
        reference = learned if len(learned) <= REFERENCE else learned.subset(_even(learned, REFERENCE))
        self._reference = reference if "train" in self.data else None
        self._familiar: Familiar | None = None
        self.views = {name: View.of(system, reference) for name, system in models.items()}
        self._order = {
            name: np.asarray([system.class_names_.index(c) for c in self.class_names])
            for name, system in models.items()
        }

    # -- browsing -------------------------------------------------------------------------

    @property
    def models(self) -> list[str]:
        return list(self.views)

    def groups(self, split: str) -> list[str]:
        """Names of the groups (or classes, without attributes) that occur in ``split``."""
        dataset = self.data[split]
        names, of = self._strata(dataset)
        return [name for k, name in enumerate(names) if (of == k).any()]

    @staticmethod
    def _strata(dataset: GroupedDataset) -> tuple[list[str], NDArray[np.int64]]:
        return (
            (dataset.class_names, dataset.labels) if dataset.groups is None else (dataset.group_names, dataset.groups)
        )

    def rows(
        self,
        model: str,
        split: str,
        group: str | None = None,
        which: Which = "all",
        changes: Mapping[str, Change] | None = None,
    ) -> list[int]:
        """Positions of the images of ``split`` in ``group`` that ``model`` gets wrong, right, or all of them.

        ``"differ"``: those on which two models disagree.
        """
        dataset = self.data[split]
        keep = np.ones(len(dataset), dtype=bool)
        if group is not None:
            names, of = self._strata(dataset)
            if group not in names:
                raise DataError(f"there is no group '{group}'; the groups are {', '.join(names)}.")
            keep &= of == names.index(group)
        if which in ("errors", "right"):
            told = self.predictions(model, split, (changes or {}).get(model, NONE))
            right = told == dataset.labels
            keep &= right if which == "right" else ~right & (told != UNREADABLE)
        elif which == "differ":
            said = [self.predictions(m, split, (changes or {}).get(m, NONE)) for m in self.models]
            keep &= said[0] != said[-1]
        return [int(i) for i in np.flatnonzero(keep)]

    def predictions(self, model: str, split: str, change: Change = NONE) -> NDArray[np.int64]:
        """Predicted class of every image of ``split``; -1 where it cannot be read, -2 where the model has no answer."""
        logits = self.views[model].logits(self.data[split], change)[:, self._order[model]]
        return decided(logits)

    def report(self, model: str, split: str | None = None, change: Change = NONE) -> GroupReport:
        """Accuracy by group under ``change``; on validation unless another split is named."""
        dataset = self.data[split or self.split]
        system = self.views[model].system
        same = dataset.attribute_names == system.attribute_names_
        counts = system.train_counts_ if same and system.class_names_ == dataset.class_names else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            return group_report(
                self.predictions(model, split or self.split, change), dataset.labels, dataset.attributes, counts,
                class_names=dataset.class_names, attribute_names=dataset.attribute_names,
            )  # fmt: skip

    def image(self, split: str, row: int) -> Picture:
        """Image ``row`` of ``split``, ``uint8 [H, W, 3]``."""
        if not 0 <= row < len(self.data[split]):
            raise DataError(f"{split} has {len(self.data[split])} images; there is no number {row}.")
        return self.data[split].images.read(row)

    def label(self, split: str, row: int) -> str:
        """Name of the true class."""
        dataset = self.data[split]
        return dataset.class_names[int(dataset.labels[row])]

    def group(self, split: str, row: int) -> str:
        """Name of the group (of the class, without attributes)."""
        names, of = self._strata(self.data[split])
        return names[int(of[row])]

    def title(self, split: str, row: int) -> str:
        """The last part of the image's own name: enough to recognise it, nothing about this machine."""
        return self.data[split].where(row).replace("\\", "/").rpartition("/")[2]

    def find(self, split: str, name: str) -> int:
        """The image called ``name`` (or its number). Names are only compared: no path is ever opened."""
        wanted = name.strip()
        if not wanted:
            raise DataError("type the name or the number of an image.")
        dataset = self.data[split]
        if wanted.isdigit() and int(wanted) < len(dataset):
            return int(wanted)
        for match in (lambda title: title == wanted, lambda title: wanted.lower() in title.lower()):
            for row in range(len(dataset)):
                if match(self.title(split, row)):
                    return row
        raise DataError(f"there is no image called '{wanted[:80]}' in {split} of {self.name}.")

    # -- one image ------------------------------------------------------------------------

    def upload(self, content: bytes, name: str = "upload") -> Picture:
        """An image from the browser, if it is one and not too large."""
        return read_upload(content, name)

    def unlike_training(self, image: Picture) -> str | None:
        """A sentence when ``image`` looks like nothing in training; None when it does not, or nobody can say."""
        if self._reference is None:
            return None
        if self._familiar is None:
            try:
                self._familiar = Familiar(self._reference)
            except DataError:  # too few images to say what is usual
                self._reference = None
                return None
        strange = self._familiar.strangeness(image)
        if strange <= 1:
            return None
        return (
            f"This image is unlike the training images: in colours and textures it is {strange:.1f} times as far from "
            f"the nearest of {len(self._familiar)} of them as is usual among them. What a model says about it means "
            "little."
        )

    def lost(self, model: str, change: Change) -> tuple[str, float, float] | None:
        """The figure that ``change`` lowers against what is saved now, with its values before and after; else None.

        The worst group where groups are known, else the worst class.
        """
        before, after = (self.report(model, change=c) for c in (self.saved(model), change))
        name = "worst_class" if before.worst_group is None else "worst_group"
        was, now = before.value(name), after.value(name)
        return (name.replace("_", " "), was, now) if now < was else None

    def show(self, model: str, image: Picture, change: Change = NONE, label: str | None = None) -> Shown:
        """Everything the page shows of ``image`` under ``model`` with ``change``."""
        view = self.views[model]
        logits, gaze = view.one(to_tensor(image), change)
        shown = self._shown(model, image, logits, label)
        size = view.system.preprocess_.size
        prepared = view.system.preprocess_.prepare(to_tensor(image))
        flat = prepared.permute(1, 2, 0).numpy()
        shown.looking = gaze.draw(prepared[None])[0]
        shown.kind = gaze.kind
        if gaze.parts is not None:
            shown.parts = part_picture(flat, gaze.parts[0])
        if gaze.mask is not None:
            shown.seen = seen_picture(flat, gaze.mask[0])
            shown.coverage = float(gaze.mask[0].float().mean())
        shown.crops = crop_pictures(flat, gaze, size)
        return shown

    def paint(
        self, model: str, image: Picture, mask: NDArray[np.bool_], *, hide: bool = False, label: str | None = None
    ) -> Shown:
        """What ``model`` says when it may only see ``mask`` (``bool [h, w]``, any size; with ``hide``: all but it)."""
        if mask.ndim != 2 or not mask.size:
            raise DataError("expected a painted mask [h, w].")
        if not mask.any():
            raise DataError("nothing is painted yet: paint over the image first, then ask.")
        scaled = torch.nn.functional.interpolate(
            torch.from_numpy(mask.copy())[None, None].float(), image.shape[:2], mode="nearest-exact"
        )[0, 0]
        visible = scaled < 0.5 if hide else scaled > 0.5
        view = self.views[model]
        logits, used = view.masked(to_tensor(image), visible)
        shown = self._shown(model, image, logits, label)
        prepared = view.system.preprocess_.prepare(to_tensor(image)).permute(1, 2, 0).numpy()
        shown.seen = seen_picture(prepared, used)
        shown.coverage = float(used.float().mean())
        return shown

    def _shown(self, model: str, image: Picture, logits: NDArray[np.float32], label: str | None) -> Shown:
        order = self._order[model]
        said = answered(logits[None, order])
        named = name_of(int(decided(said)[0]), self.class_names)
        told = {name: float(p) for name, p in zip(self.class_names, shares_of(said)[0], strict=True)}
        return Shown(image, named, told, None if label is None else label == named)

    # -- interventions --------------------------------------------------------------------

    def parts(self, model: str) -> int:
        """How many parts can be switched off; 0 for a model without parts."""
        return self.views[model].parts

    def saved(self, model: str) -> Change:
        """The intervention that is saved with the model."""
        return self.views[model].saved

    def save(self, model: str, change: Change) -> Path:
        """Write ``change`` into the folder the model was loaded from."""
        if model not in self.folders:
            raise ModelError(f"{model} was not loaded from a folder; save it with its own save(folder).")
        view = self.views[model]
        with view.lock:
            path = view.apply(change).save(self.folders[model])
            view.saved = change
        return path


def _even(dataset: GroupedDataset, size: int) -> NDArray[np.int64]:
    """About ``size`` positions, the same share of every group, in their old order; always the same ones."""
    strata = dataset.labels if dataset.groups is None else dataset.groups
    rng = np.random.default_rng(0)
    share = size / len(dataset)
    kept = [
        rng.permutation(rows)[: max(round(share * len(rows)), 1)]
        for rows in (np.flatnonzero(strata == s) for s in np.unique(strata))
    ]
    return np.sort(np.concatenate(kept))
