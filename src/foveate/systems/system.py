"""What every system has in common: scikit-learn habits, prediction, saving without pickle, a registry."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess, as_images
from foveate.engine import TrainSettings
from foveate.errors import DataError, FoveateError, ModelError, StorageError, first_line, suggest
from foveate.files import atomic_folder, recover_folder, write_json
from foveate.look import Gaze

FORMAT = 1
Images = Tensor | NDArray[np.uint8] | Sequence[Any]
_registry: dict[str, type[System]] = {}


@dataclass(frozen=True)
class Needs:
    """Which labels each step of a system consumes; every table prints it.

    >>> print(Needs(train="labels", target="labels, groups"))
    train: labels; target: labels, groups
    """

    train: str = "labels"
    target: str = ""
    select: str = ""

    def __str__(self) -> str:
        steps = {"train": self.train, "target": self.target, "selection": self.select}
        return "; ".join(f"{step}: {what}" for step, what in steps.items() if what)


class System:
    """A classifier that follows scikit-learn: settings in the constructor, work in ``fit``, results with ``_``.

    A subclass gives ``fit``, ``_logits`` (logits of prepared, normalised inputs), ``look``, and
    ``_config`` / ``_tensors`` / ``_restore`` for saving.
    """

    needs: ClassVar[Needs] = Needs()
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """Where a system's usual training settings differ from those of ``TrainSettings``."""
    training: TrainSettings
    preprocess_: Preprocess
    class_names_: list[str]
    train_counts_: NDArray[np.int64] | None
    selection_: dict[str, Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "needs" in cls.__dict__:  # every named system states what it needs; bases do not
            _registry[cls.__name__] = cls

    # -- settings -------------------------------------------------------------------------

    @classmethod
    def setting_names(cls) -> list[str]:
        """Names of the constructor's arguments, those a class passes on to its parent included."""
        names: list[str] = []
        for kind in cls.__mro__:
            if "__init__" not in kind.__dict__ or not issubclass(kind, System):
                continue
            arguments = list(inspect.signature(kind).parameters.values())
            names += [a.name for a in arguments if a.kind is not a.VAR_KEYWORD and a.name not in names]
            if not any(a.kind is a.VAR_KEYWORD for a in arguments):
                break
        return names

    def get_params(self) -> dict[str, Any]:
        """The constructor's settings, by name."""
        chosen: dict[str, Any] = {}
        if hasattr(self, "training"):
            usual = TrainSettings.of(**self.DEFAULTS)
            chosen = {k: v for k, v in self.training.model_dump().items() if v != getattr(usual, k)}
        return {**{n: getattr(self, n) for n in self.setting_names()}, **chosen}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items() if not isinstance(v, System))
        return f"{type(self).__name__}({shown})"

    @property
    def fitted(self) -> bool:
        return hasattr(self, "class_names_")

    def _require_fit(self) -> None:
        if not self.fitted:
            raise ModelError(f"this {type(self).__name__} has not been fitted; call fit(train) first.")

    def supervision(self) -> str:
        """What labels this fitted system consumed, selection included."""
        chosen = ""
        if self.selection_ is not None:
            groups = "group labels" if self.selection_["uses_groups"] else "labels"
            chosen = f"{groups} ({self.selection_['metric']})"
        return str(Needs(self._train_labels(), self.needs.target, self.needs.select or chosen))

    def _train_labels(self) -> str:
        """What the training step consumed."""
        return self.needs.train

    def _remember(self, train: GroupedDataset) -> None:
        """Keep from the training set what later reports need."""
        self.class_names_ = list(train.class_names)
        self.attribute_names_ = None if train.attribute_names is None else list(train.attribute_names)
        self.train_counts_ = None if train.attributes is None else train.group_counts

    # -- prediction -----------------------------------------------------------------------

    def fit(
        self, train: GroupedDataset, target: GroupedDataset | None = None, val: GroupedDataset | None = None
    ) -> System:
        raise NotImplementedError

    def _logits(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def look(self, images: Images) -> Gaze:
        """Where the model looked to predict, for a batch of images."""
        raise NotImplementedError

    def inputs(self, images: Images) -> Tensor:
        """Images in any usual form as the normalised batch this model reads."""
        self._require_fit()
        return self.preprocess_.normalise(torch.stack([self.preprocess_.prepare(i) for i in as_images(images)]))

    @torch.no_grad()
    def predict_logits(
        self, data: GroupedDataset | Images, *, batch_size: int = 128, workers: int = 0, on_bad: str = "raise"
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]`` for a dataset or a batch of images; NaN rows for images skipped as unreadable."""
        self._require_fit()
        if not isinstance(data, GroupedDataset):
            prepared = self.inputs(data)
            parts = [self._logits(prepared[i : i + batch_size]) for i in range(0, len(prepared), batch_size)]
            return torch.cat(parts).float().cpu().numpy()
        logits = np.full((len(data), len(self.class_names_)), np.nan, dtype=np.float32)
        loader = Loader(data, self.preprocess_, workers=workers, on_bad=on_bad, cache_bytes=0)  # type: ignore[arg-type]
        for batch in loader.in_order(batch_size):
            scores = self._logits(self.preprocess_.normalise(batch.inputs))
            logits[batch.indices.numpy()] = scores.float().cpu().numpy()
        return logits

    def predict_proba(self, data: GroupedDataset | Images, **options: Any) -> NDArray[np.float32]:
        """Class probabilities ``[n, C]``."""
        logits = self.predict_logits(data, **options)
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        return shifted / shifted.sum(1, keepdims=True)

    def predict(self, data: GroupedDataset | Images, **options: Any) -> NDArray[np.int64]:
        """Class indices ``[n]``; -1 for images skipped as unreadable."""
        return decided(self.predict_logits(data, **options))

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        """What was learned, except tensors, as JSON values."""
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        raise NotImplementedError

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        raise NotImplementedError

    def save(self, folder: str | Path) -> Path:
        """Write the fitted system to ``folder``: ``system.json`` and ``weights.safetensors``."""
        self._require_fit()
        from foveate import __version__

        check_folder(folder)
        params = {k: v for k, v in self.get_params().items() if not isinstance(v, System)}
        described = {
            "format": FORMAT, "foveate": __version__, "system": type(self).__name__, "params": params,
            "class_names": self.class_names_, "attribute_names": self.attribute_names_,
            "train_counts": None if self.train_counts_ is None else self.train_counts_.tolist(),
            "preprocess": self.preprocess_.to_dict(), "selection": self.selection_,
            "supervision": self.supervision(), "learned": self._config(),
        }  # fmt: skip
        with atomic_folder(folder) as temporary:
            # serialised in memory first: the library's own writer hides a full disk behind another error
            weights = serialise({k: v.contiguous() for k, v in self._tensors().items()})
            (temporary / "weights.safetensors").write_bytes(weights)
            write_json(temporary / "system.json", described)
        return Path(folder)


def decided(logits: NDArray[Any]) -> NDArray[np.int64]:
    """Class indices ``[n]`` of logits or probabilities ``[n, C]``; -1 for rows of NaN (images that could not be read).

    >>> decided(np.array([[0.1, 0.2], [np.nan, np.nan]], dtype=np.float32)).tolist()
    [1, -1]
    """
    return np.where(np.isnan(logits).any(1), -1, np.nan_to_num(logits).argmax(1)).astype(np.int64)


def check_folder(folder: str | Path) -> None:
    """Raise unless a system may be saved at ``folder``: only a new or empty folder, or another saved system."""
    place = Path(folder)
    taken = place.is_dir() and any(place.iterdir()) and not (place / "system.json").is_file()
    if taken or (place.exists() and not place.is_dir()):
        raise StorageError(f"{place} is there and is not a saved model; choose a new folder.")


def load(folder: str | Path) -> System:
    """Load a system written by :meth:`System.save`; no code from the files is executed.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> again = fv.load(base.save(tempfile.mkdtemp()))
    >>> type(again).__name__, again.class_names_
    ('ERM', ['cat', 'duck'])
    >>> bool((again.predict(data.test) == base.predict(data.test)).all())
    True
    """
    folder = recover_folder(Path(folder).expanduser())
    described_path = folder / "system.json"
    if not described_path.is_file():
        raise ModelError(f"{folder} does not hold a saved foveate system (there is no system.json in it).")
    try:
        described = json.loads(described_path.read_text(encoding="utf-8"))
        kind = get_system(described["system"])
        if described["format"] > FORMAT:
            raise ModelError(f"{folder} was written by a newer foveate ({described['foveate']}); update foveate.")
        system = kind(**described["params"])
        tensors = load_file(str(folder / "weights.safetensors"))
        system.class_names_ = described["class_names"]
        system.attribute_names_ = described["attribute_names"]
        counts = described["train_counts"]
        system.train_counts_ = None if counts is None else np.asarray(counts, dtype=np.int64)
        system.preprocess_ = Preprocess(**described["preprocess"])
        system.selection_ = described["selection"]
    except (json.JSONDecodeError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise ModelError(f"{folder} is not a complete saved system: {type(error).__name__} {error}.") from error
    try:
        system._restore(described["learned"], tensors)
    except (RuntimeError, KeyError, TypeError) as error:
        raise ModelError(
            f"the weights in {folder} are of another architecture than its system.json: {first_line(error)}"
        ) from error
    return system


def get_system(name: str) -> type[System]:
    """The system class called ``name`` (case does not matter)."""
    found = {k.lower(): v for k, v in _registry.items()}
    if name.lower() not in found:
        known = list_systems()
        raise FoveateError(f"unknown system '{name}'.{suggest(name, known)} Known: {', '.join(known)}.")
    return found[name.lower()]


def list_systems() -> list[str]:
    """Names of all systems."""
    return sorted(_registry)


def training_set(train: GroupedDataset, target: GroupedDataset | None) -> GroupedDataset:
    """``train``, joined with ``target`` when given; an error when only one class is in it."""
    joined = train if target is None else train + target
    if len(np.unique(joined.labels)) < 2:
        raise DataError(f"{joined.name} has images of one class only; a classifier needs at least two.")
    return joined


def aligned(system: System, dataset: GroupedDataset) -> GroupedDataset:
    """``dataset`` with the classes of ``system`` in its order; a label the system never saw is an error.

    A test set of its own may lack a class or list them in another order: labels are matched by name.
    """
    system._require_fit()
    if dataset.class_names == system.class_names_:
        return dataset
    unknown = [c for c in dataset.class_names if c not in system.class_names_]
    if unknown:
        raise DataError(
            f"{dataset.name} has the label '{unknown[0]}', which never occurs in the training data "
            f"(known: {', '.join(system.class_names_)})."
        )
    place = np.asarray([system.class_names_.index(c) for c in dataset.class_names])
    return dataset.with_labels(place[dataset.labels], system.class_names_)
