"""A model from what was typed: a saved model, a file, a folder of transformers, a name, a factory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from foveate.cli.inputs import labels_of
from foveate.cli.screen import echo
from foveate.errors import FoveateError

if TYPE_CHECKING:
    from foveate.assemble.system import System
    from foveate.data.dataset import GroupedDataset
    from foveate.data.preprocess import Preprocess

MODEL_HELP = (
    "saved foveate models, .onnx / .pt2 / TorchScript files, folders of transformers, NAME@weights.safetensors of "
    "timm, open_clip:ARCH/TAG, or package.module:build."
)
MAX_SIDE = 16_384


def _option(default: Any, *names: str, help: str) -> dict[str, Any]:
    return {"option": typer.Option(default, *names, help=help)}


@dataclass(frozen=True)
class Opener:
    """Opens models, with what was said of those that come from elsewhere; each field is an option."""

    classes: str | None = field(
        default=None,
        metadata=_option(None, help="Class names of a model from elsewhere, in the order of its outputs: cat,dog."),
    )
    size: int | None = field(
        default=None, metadata=_option(None, help="Side of the images a model from elsewhere reads, in pixels.")
    )
    mean: str | None = field(
        default=None,
        metadata=_option(None, help="Mean a model from elsewhere expects, for pixels from 0 to 1: 0.5,0.5,0.5."),
    )
    std: str | None = field(default=None, metadata=_option(None, help="Standard deviation likewise."))
    trust: bool = field(
        default=False,
        metadata=_option(False, "--trust", help="Allow model files that hold a program (TorchScript, .pt2)."),
    )
    weights: Path | None = field(
        default=None,
        metadata=_option(None, help="State dict for package.module:build or a timm name, .safetensors or PyTorch."),
    )
    layer: str | None = field(
        default=None,
        metadata=_option(None, help="Layer whose output are the feature maps, where the right one is not found."),
    )

    def __post_init__(self) -> None:
        _numbers("--mean", self.mean)
        _numbers("--std", self.std, least=1e-9)
        if self.size is not None and not 1 <= self.size <= MAX_SIDE:
            raise FoveateError(f"--size is the side of an image in pixels, from 1 to {MAX_SIDE}; found {self.size}.")
        if self.weights is not None and not self.weights.expanduser().is_file():
            raise FoveateError(f"there is no file {self.weights} (from --weights). Check the path.")

    def said(self) -> list[str]:
        """The options that were given."""
        return [f"--{name}" for name, value in vars(self).items() if value not in (None, False)]

    def open(self, what: str, dataset: GroupedDataset | None = None, *, quiet: bool = False) -> System:
        """The model that ``what`` stands for; one that names no classes is taken to have those of ``dataset``.

        What was assumed, what a model from elsewhere can do, and what was said for nothing goes to the error stream
        unless ``quiet``.
        """
        from foveate.assemble.saving import load

        if not is_elsewhere(what):
            if self.said() and not quiet:
                echo(f"{what} is a saved model and knows its own; {', '.join(self.said())} ignored for it.", err=True)
            return load(Path(what).expanduser())
        return self._wrapped(what, dataset, quiet)

    def _wrapped(self, what: str, dataset: GroupedDataset | None, quiet: bool) -> System:
        from dataclasses import replace

        from foveate.assemble.wrapping import wrap

        names = [name.strip() for name in self.classes.split(",")] if self.classes else None
        spare = None if dataset is None else list(dataset.class_names)
        model = wrap(
            what, names, otherwise=spare, image_size=self.size, weights=self.weights, layer=self.layer,
            trust=self.trust, try_out=False,
        )  # fmt: skip
        if self.mean is not None or self.std is not None:
            view: Preprocess = model.preprocess_
            mean, std = _numbers("--mean", self.mean), _numbers("--std", self.std)
            model.preprocess_ = replace(view, mean=mean or view.mean, std=std or view.std)
        model.try_out()
        if not quiet:
            if model.assumed_:
                echo(
                    f"{model.name} names no classes: taken to be those of the dataset, in its order: "
                    f"{', '.join(model.class_names_[:8])}. Another order: --classes.", err=True,
                )  # fmt: skip
            echo(f"{model.name}: {model.abilities}", err=True)
        return model


def model_labels(models: Sequence[str]) -> list[str]:
    """What to call models in a table: their file or folder, or the architecture of a checkpoint.

    >>> model_labels(["runs/dar", "resnet18@weights.safetensors", "mine.models:build"])
    ['dar', 'resnet18', 'mine.models:build']
    """
    return labels_of([Path(model.partition("@")[0]) for model in models])


def is_elsewhere(what: str) -> bool:
    """Whether ``what`` is a model from elsewhere, and not one that foveate saved."""
    from foveate.assemble.wrapping.factories import is_address
    from foveate.assemble.wrapping.transformers_models import is_folder

    path = Path(what).expanduser()
    if path.is_dir():
        return is_folder(path)
    known = "@" in what or what.startswith("open_clip:") or is_address(what)
    return path.exists() or known or path.suffix in (".onnx", ".pt2", ".pt", ".pth")


def _numbers(option: str, text: str | None, least: float = -math.inf) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(math.isfinite(v) and v >= least for v in values):
        raise FoveateError(f"{option} takes three numbers, for red, green and blue: 0.485,0.456,0.406; found '{text}'.")
    return values


OPENER = Opener()
"""Nothing was said."""


def opens_models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an :class:`Opener` where its parameter ``opener`` stands; it gets the opener."""
    own, types = inspect.signature(command, eval_str=True), get_type_hints(Opener)
    shown: list[inspect.Parameter] = []
    for parameter in own.parameters.values():
        options = fields(Opener) if parameter.name == "opener" else ()
        shown += [
            parameter.replace(name=o.name, default=o.metadata["option"], annotation=types[o.name]) for o in options
        ]
        shown += [] if options else [parameter]

    @wraps(command)
    def run(**given: Any) -> None:
        said = {option.name: given.pop(option.name) for option in fields(Opener)}
        command(**given, opener=Opener(**said))

    run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run
