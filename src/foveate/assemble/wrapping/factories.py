"""A Python factory, ``package.module:build``: the user's own code makes the model, a file brings its weights.

Naming a module runs its code. That is the user's own word, like running a script; nothing that comes out of a file
can name one.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from foveate.errors import ModelError, first_line, suggest
from foveate.extract.backbone import read_state

_ADDRESS = re.compile(r"[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*:[A-Za-z_][\w.]*")


def is_address(text: str) -> bool:
    """Whether ``text`` names something in a module.

    >>> is_address("mine.models:build"), is_address("open_clip:ViT-B-32/openai"), is_address("C:/model.onnx")
    (True, False, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def built(address: str, weights: str | Path | None, class_names: Sequence[str] | None) -> Any:
    """What the factory makes, with ``weights`` loaded; one that asks for ``num_classes`` is told how many."""
    factory = _factory(address)
    try:
        asks = "num_classes" in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        asks = False
    try:
        model = factory(num_classes=len(class_names)) if asks and class_names is not None else factory()
    except Exception as error:
        raise ModelError(
            f"{address} raised {type(error).__name__}: {first_line(error)[:300]} A factory is called without arguments "
            "(or with num_classes) and returns the model."
        ) from error
    if not callable(model):
        raise ModelError(f"{address} gave {type(model).__name__}; expected an nn.Module, or a function to logits.")
    if weights is not None:
        _load(model, weights, address)
    return model


def _factory(address: str) -> Any:
    module, _, path = address.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path and "" not in sys.path
    if added:  # as `python -m` does: models often lie beside the data
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ModelError(
            f"the module '{module}' cannot be imported: {first_line(error)} It must be installed, or lie in the folder "
            "you are in."
        ) from error
    except Exception as error:
        raise ModelError(f"importing '{module}' raised {type(error).__name__}: {first_line(error)[:300]}") from error
    finally:
        if added:
            sys.path.remove(here)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ModelError(f"'{module}' has no '{part}'.{suggest(part, [n for n in dir(found) if n[0] != '_'])}")
        found = getattr(found, part)
    if not callable(found):
        raise ModelError(f"{address} is {type(found).__name__}; expected a function that makes the model.")
    return found


def _load(model: Any, weights: str | Path, address: str) -> None:
    if not isinstance(model, nn.Module):
        raise ModelError(f"{address} gave {type(model).__name__}, which takes no weights; leave them out.")
    state = read_state(weights)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise ModelError(
            f"{weights} does not fit what {address} makes: {(lines[1] if len(lines) > 1 else lines[0]).strip()[:300]}"
        ) from error
