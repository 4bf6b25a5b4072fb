"""A fitted system on disk: ``system.json`` behind a schema, ``weights.safetensors``; nothing in it can run code.

What is read from a model folder is data from somebody else. Settings must be among those of the system's constructor
and plain values; none of them may make this machine open another file, so folders of stores and checkpoints are left
out; the arguments of a network pass the allow-list of :class:`~foveate.extract.BackboneSpec`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise

from foveate.assemble.capabilities import sees_images_alone
from foveate.assemble.system import System
from foveate.data.preprocess import Preprocess
from foveate.engine import TrainSettings
from foveate.errors import FoveateError, ModelError, StorageError, first_line, suggest
from foveate.files import atomic_folder, recover_folder, write_json
from foveate.parameters import as_json
from foveate.registries import SYSTEMS

FORMAT = 2
"""1: before pipelines. What they learned is read by :mod:`foveate.assemble.before_pipelines`."""
LARGEST_SIDE = 2048
ELSEWHERE = ("store", "checkpoint")
"""Settings that name a place on the machine a model was made on; they mean nothing on another, and are not saved."""


class _View(BaseModel):
    """A :class:`~foveate.data.Preprocess` on disk."""

    model_config = ConfigDict(extra="forbid")

    size: tuple[int, int]
    fit: Literal["squash", "crop"] = "squash"
    mean: list[float] = Field(min_length=3, max_length=3)
    std: list[float] = Field(min_length=3, max_length=3)
    flip: bool = True
    shift: int = Field(0, ge=0)


class _Selection(BaseModel):
    metric: str
    on: str = ""
    uses_groups: bool


class _Described(BaseModel):
    """``system.json``."""

    format: int
    foveate: str = ""
    system: str
    params: dict[str, Any]
    class_names: list[str] = Field(min_length=1)
    attribute_names: list[str] | None
    train_counts: list[Annotated[int, Field(ge=0, lt=2**53)]] | None
    preprocess: _View
    selection: _Selection | None
    supervision: str = ""
    learned: dict[str, Any]


def check_folder(folder: str | Path) -> None:
    """Raise unless a system may be saved at ``folder``: only a new or empty folder, or another saved system."""
    place = Path(folder)
    taken = place.is_dir() and any(place.iterdir()) and not (place / "system.json").is_file()
    if taken or (place.exists() and not place.is_dir()):
        raise StorageError(f"{place} is there and is not a saved model; choose a new folder.")


def save(system: System, folder: str | Path) -> Path:
    """Write a fitted system to ``folder``; see :meth:`System.save`."""
    system._require_fit()
    check_folder(folder)
    told = described(system)
    with atomic_folder(folder) as temporary:
        # serialised in memory first: the library's own writer hides a full disk behind another error
        weights = serialise({k: v.contiguous() for k, v in system._tensors().items()})
        (temporary / "weights.safetensors").write_bytes(weights)
        write_json(temporary / "system.json", told)
    return Path(folder)


def described(system: System) -> dict[str, Any]:
    """What ``system.json`` says of a fitted system."""
    from foveate import __version__

    return {
        "format": FORMAT, "foveate": __version__, "system": type(system).__name__, "params": _plain(system),
        "class_names": system.class_names_, "attribute_names": system.attribute_names_,
        "train_counts": None if system.train_counts_ is None else system.train_counts_.tolist(),
        "preprocess": system.preprocess_.to_dict(), "selection": system.selection_,
        "supervision": system.supervision(), "learned": system._config(),
    }  # fmt: skip


def _plain(system: System) -> dict[str, Any]:
    """The settings that can be written down; a ready network has no name, and its weights are saved in any case."""
    return {name: as_json(value) for name, value in system.settings().items() if name not in ELSEWHERE}


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
    if not (folder / "system.json").is_file():
        raise ModelError(f"{folder} does not hold a saved foveate system (there is no system.json in it).")
    told = _read(folder)
    try:
        tensors = load_file(str(folder / "weights.safetensors"))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder} is not a complete saved system: {type(error).__name__} {error}.") from error
    return _restored(told, tensors, str(folder))


def restored(told: Any, tensors: dict[str, torch.Tensor]) -> System:
    """The system that :func:`described` told of, with its tensors: one that was saved inside another."""
    try:
        form = _Described.model_validate(told)
    except ValidationError as error:
        raise ModelError(f"the model inside a saved system cannot be read: {error.errors()[0]['msg']}.") from error
    return _restored(form, tensors, f"the {form.system[:40]} inside")


def _restored(told: _Described, tensors: dict[str, torch.Tensor], where: str) -> System:
    kind = _kind(told.system)
    if told.format > FORMAT:
        raise ModelError(f"{where} was written by a newer foveate ({told.foveate}); update foveate.")
    system = kind(**_settings(kind, told.params, where))
    system.attribute_names_ = told.attribute_names
    system.train_counts_ = None if told.train_counts is None else np.asarray(told.train_counts, np.int64)
    system.preprocess_ = Preprocess(**told.preprocess.model_dump())
    system.selection_ = None if told.selection is None else told.selection.model_dump()
    try:
        system._restore(told.learned, tensors)
        system.class_names_ = told.class_names
        _try(system)
    except FoveateError:
        raise
    except Exception as error:  # whatever a changed file can make torch, timm or numpy say
        raise ModelError(
            f"the weights in {where} are of another architecture than its system.json: {first_line(error)[:300]}"
        ) from error
    return system


def _kind(name: str) -> type[System]:
    if name in ("Wrapped", "Restricted"):  # they go around models from elsewhere, and stand in no list of systems
        return getattr(importlib.import_module("foveate.assemble.wrapping"), name)
    return SYSTEMS.get(name)


def _try(system: System) -> None:
    """Look at the settings and show it one blank image: files that do not belong together are told here."""
    if max(system.preprocess_.size) > LARGEST_SIDE:
        raise ModelError(f"a saved model reads images of up to {LARGEST_SIDE} px; found {system.preprocess_.size}.")
    system.check()
    system.supervision()  # every table prints it
    if sees_images_alone(system) and getattr(system, "masks", None) != "given":  # that one waits for its function
        blank = torch.zeros(1, 3, *system.preprocess_.size, dtype=torch.uint8)
        system._answers(system._logits(system.preprocess_.normalise(blank)))


def _read(folder: Path) -> _Described:
    try:
        return _Described.model_validate_json((folder / "system.json").read_bytes())
    except (OSError, RecursionError) as error:
        raise ModelError(f"{folder} is not a complete saved system: {type(error).__name__} {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ModelError(f"{folder} is not a complete saved system: system.json, {place}: {first['msg']}.") from error


def _settings(kind: type[System], params: dict[str, Any], folder: str) -> dict[str, Any]:
    """The settings of a saved system, if its constructor knows all of them."""
    # a base is a system of its own, and training is written down by its words
    own = [name for name in kind.setting_names() if name not in ("base", "training")]
    known = [*own, *(TrainSettings.model_fields if kind.trains() else ())]
    given = {name: value for name, value in params.items() if name in known or value is not None}
    for name in given:
        if name not in known:
            raise ModelError(
                f"{folder}: system.json has a setting '{name}', which {kind.__name__} has not.{suggest(name, known)}"
            )
    return {k: v for k, v in given.items() if k not in ELSEWHERE}
