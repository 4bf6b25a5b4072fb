"""Image classifiers of Hugging Face transformers: an object, or a folder that ``save_pretrained`` wrote.

The class names are the configuration's ``id2label``; size and normalisation are those of the image processor, whose
settings are read as data. Nothing is fetched, no code of a folder is run, and weights are read from safetensors alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from torch import nn

from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.modules import HeldModule
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, MissingExtra, ModelError, first_line

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"


class ProcessorForm(BaseModel):
    """What is read of an image processor's settings."""

    size: int | dict[str, int | None] | None = None
    crop_size: int | dict[str, int | None] | None = None
    do_center_crop: bool | None = None
    do_normalize: bool | None = True
    do_rescale: bool | None = True
    rescale_factor: float | None = Field(None, gt=0)
    image_mean: list[float] | float | None = None
    image_std: list[float] | float | None = None

    def view(self, otherwise: tuple[int, int]) -> Preprocess:
        """The same as a :class:`~foveate.data.Preprocess`."""
        cut = bool(self.do_center_crop)
        size = (_sides(self.crop_size) if cut else None) or _sides(self.size) or otherwise
        whole = isinstance(self.size, dict) and "shortest_edge" in self.size
        mean, std = _three(self.image_mean, 0.0), _three(self.image_std, 1.0)
        if self.do_normalize is False:
            mean, std = (0.0,) * 3, (1.0,) * 3
        if self.do_rescale is False:  # it reads pixels from 0 to 255
            mean, std = tuple(m / 255 for m in mean), tuple(s / 255 for s in std)
        elif self.rescale_factor is not None:
            factor = self.rescale_factor * 255
            mean, std = tuple(m / factor for m in mean), tuple(s / factor for s in std)
        return Preprocess(size, fit="crop" if cut or whole else "squash", mean=mean, std=std)


def is_transformers(model: object) -> bool:
    """Whether an object is a model of transformers."""
    return any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__)


def from_object(model: nn.Module, processor: Any = None) -> Brought:
    """A loaded classifier, with its image processor when there is one."""
    config: Any = getattr(model, "config", None)
    if not hasattr(model, "forward") or not hasattr(config, "id2label"):
        raise ModelError(
            f"{type(model).__name__} is no image classifier of transformers; load it with "
            "AutoModelForImageClassification.from_pretrained(...)."
        )
    told = None if processor is None else _form(processor.to_dict(), type(processor).__name__)
    return _brought(model, config, told, type(model).__name__)


def is_folder(path: Path) -> bool:
    """Whether ``save_pretrained`` wrote this folder."""
    return path.is_dir() and (path / CONFIG).is_file() and not (path / "system.json").is_file()


def from_folder(path: Path) -> Brought:
    """The classifier in a folder that ``save_pretrained`` wrote."""
    try:
        from transformers import AutoConfig, AutoModelForImageClassification
        from transformers.utils import logging as library
    except ImportError as error:
        raise MissingExtra("transformers", "transformers", "a model folder of Hugging Face transformers") from error
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    bars = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(str(path), **safe)
        model = AutoModelForImageClassification.from_pretrained(str(path), config=config, use_safetensors=True, **safe)
    except Exception as error:  # whatever a folder can make that library say
        raise ModelError(
            f"{path} cannot be opened as an image classifier of transformers: {first_line(error)[:300]} Expected "
            f"{CONFIG} of a classifier and model.safetensors, as save_pretrained writes them."
        ) from error
    finally:
        if bars:
            library.enable_progress_bar()
    told = None
    if (path / PROCESSOR).is_file():
        try:
            told = _form(json.loads((path / PROCESSOR).read_text(encoding="utf-8")), str(path / PROCESSOR))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path / PROCESSOR} cannot be read: {first_line(error)}") from error
    return _brought(model, config, told, path.name)


def _form(values: Any, where: str) -> ProcessorForm:
    try:
        return ProcessorForm.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error


def _brought(model: nn.Module, config: Any, processor: ProcessorForm | None, name: str) -> Brought:
    names = {int(k): str(v) for k, v in dict(config.id2label or {}).items()}
    known = [names[i] for i in sorted(names)]
    invented = known == [f"LABEL_{i}" for i in range(len(known))]  # what the library writes when nobody named them
    found = Brought(HeldModule(name, model), None if invented else known or None)
    size = _sides(getattr(config, "image_size", None))
    try:
        found.preprocess = None if processor is None else processor.view(size or (224, 224))
    except DataError as error:
        raise ModelError(f"the image processor of {name} cannot be used: {error}") from error
    found.size = size
    return found


def _sides(size: Any) -> tuple[int, int] | None:
    """Height and width out of the ways such a configuration writes them."""
    if isinstance(size, dict):
        one = size.get("shortest_edge")
        size = (size.get("height") or one, size.get("width") or one)
    if isinstance(size, int):
        size = (size, size)
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(isinstance(s, int) for s in size):
        return size[0], size[1]
    return None


def _three(values: list[float] | float | None, usual: float) -> tuple[float, ...]:
    if values is None:
        return (usual,) * 3
    return tuple(values) if isinstance(values, list) else (values,) * 3
