"""Settings of systems and of their parts: declared once as fields, read, changed and copied as scikit-learn does."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar

from typing_extensions import dataclass_transform

from foveate.errors import FoveateError, suggest

T = TypeVar("T")
TRAINING = "training"
"""The one setting whose own fields may be given by their short names: ``ERM(epochs=3)``."""
MAX_SEED = 2**32 - 1
"""Seeds are from 0 to this: what all of NumPy, scikit-learn and PyTorch take."""


def usual_training() -> Any:
    """The field ``training`` of a system: ``usual_training()`` of the system when it is not given."""
    return field(default=None)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def configured(cls: type[T]) -> type[T]:
    """Class decorator: the annotated fields are the settings, and the constructor stores them as they are given.

    Fields are given by name; one with ``field(default=..., kw_only=False)`` also by position. A class with a field
    ``training`` also takes the short words of :class:`~foveate.engine.TrainSettings`; they change single values of its
    ``usual_training()``. A whole ``training=TrainSettings(...)`` is taken as it is.

    >>> @configured
    ... class Crop(Part):
    ...     size: int = 64
    >>> Crop(size=32), Crop().get_params()
    (Crop(size=32), {'size': 64})
    """
    made = dataclass(eq=False, repr=False, kw_only=True)(cls)
    if TRAINING in getattr(made, "__dataclass_fields__", {}):
        made.__init__ = _with_words(made.__init__)  # type: ignore[method-assign]
    return made


def _with_words(plain: Any) -> Any:
    names = list(inspect.signature(plain).parameters)

    @wraps(plain)
    def init(self: Any, *args: Any, **values: Any) -> None:
        words = {k: values.pop(k) for k in list(values) if k not in names}
        plain(self, *args, **values)
        if self.training is None:
            self.training = self.usual_training()
        if words:
            _check_words(self, words)
            self.training = self.training.changed(**words)

    return init


def _check_words(thing: Any, words: Iterable[str]) -> None:
    """Raise for a word that is neither a setting nor one of the training's: with the names of both."""
    known = list(getattr(type(thing.training), "model_fields", ()))
    own = [name for name in setting_names(type(thing)) if name != TRAINING]
    for word in words:
        if word not in known:
            raise FoveateError(
                f"{type(thing).__name__} has no setting '{word}'.{suggest(word, [*own, *known])} "
                f"It has: {', '.join(own)}; and of its training: {', '.join(known)}."
            )


def setting_names(kind: Any) -> list[str]:
    """Names of the constructor's arguments."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in inspect.signature(kind).parameters.values() if p.kind in kinds]


def get_params(thing: Any, deep: bool = True) -> dict[str, Any]:
    """The settings by name; with ``deep`` also those of settings that have some, as ``name__theirs``."""
    read = getattr(thing, "_setting", None) or (lambda name: getattr(thing, name))
    found = {name: read(name) for name in setting_names(type(thing))}
    if deep:
        for name, value in list(found.items()):
            if hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{k}": v for k, v in value.get_params(deep=True).items()}
    return found


def set_params(thing: T, **values: Any) -> T:
    """Change settings; ``name__theirs`` reaches into one, and short words of the training are understood."""
    known = setting_names(type(thing))
    for name, value in values.items():
        own, _, inner = name.partition("__")
        if own not in known and TRAINING in known:
            own, inner = TRAINING, name
            _check_words(thing, [name])
        if own not in known:
            raise FoveateError(
                f"{type(thing).__name__} has no setting '{own}'.{suggest(own, known)} It has: {', '.join(known)}."
            )
        if not inner:
            setattr(thing, own, value)
        elif own == TRAINING:
            setattr(thing, own, getattr(thing, own).changed(**{inner: value}))
        else:
            getattr(thing, own).set_params(**{inner: value})
    return thing


def unlearned(thing: T) -> T:
    """A copy with the same settings that has learned nothing: what :func:`sklearn.base.clone` gives.

    Fitted systems among the settings stay fitted, as inside scikit-learn's ``FrozenEstimator``, and ready networks
    are shared: neither is changed by a fit.
    """
    from sklearn.base import clone

    params = get_params(thing, deep=False)
    return type(thing)(**{name: v if _kept(v) else clone(v, safe=False) for name, v in params.items()})


def shown(thing: Any) -> str:
    """The settings that are not the usual ones, as they would be typed."""
    usual: dict[str, Any] = {name: p.default for name, p in inspect.signature(type(thing)).parameters.items()}
    made = fields(thing) if is_dataclass(thing) else ()
    usual |= {f.name: f.default_factory() for f in made if f.default_factory is not MISSING}
    values, words = get_params(thing, deep=False), {}
    if hasattr(values.get(TRAINING), "beside"):
        words = values.pop(TRAINING).beside(thing.usual_training())
    told = [f"{k}={v!r}" for k, v in [*((k, v) for k, v in values.items() if not _same(v, usual[k])), *words.items()]]
    return f"{type(thing).__name__}({', '.join(told)})"


class Part:
    """One of the five decisions: settings, and what it holds once it was opened or fitted (names that end in ``_``).

    A part describes itself (:meth:`recipe`: the key of the feature store), gives its tensors and is restored from
    both, and knows nothing of the parts beside it.
    """

    get_params = get_params
    set_params = set_params
    __sklearn_clone__ = unlearned
    __repr__ = shown

    def open(self, models: Any) -> None:
        """Have the networks it names ready; ``models`` (:class:`~foveate.extract.Models`) opens each once."""

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values; None for what has no name, such as a ready network."""
        return {name: as_json(value) for name, value in get_params(self, deep=False).items()}

    def identity(self) -> dict[str, Any]:
        """What its answers depend on beside its settings: the weights it holds."""
        return {}

    def recipe(self) -> dict[str, Any]:
        """Settings and identity as JSON values: equal recipes give equal answers."""
        return {"part": type(self).__name__, **self.plain(), "of": self.identity()}

    def learned(self) -> dict[str, Any]:
        """What must be saved beside settings and tensors, as JSON values."""
        return {}

    def tensors(self) -> dict[str, Any]:
        """What must be saved as tensors."""
        return {}

    def restore(self, learned: dict[str, Any], tensors: dict[str, Any]) -> None:
        """Take over what :meth:`learned` and :meth:`tensors` gave."""


def as_json(value: Any) -> Any:
    """``value`` as JSON has it (tuples become lists), or None when JSON cannot hold it.

    >>> as_json((64, 32)), as_json(object())
    ([64, 32], None)
    """
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None


def _kept(value: Any) -> bool:
    return bool(getattr(value, "fitted", False)) or callable(getattr(value, "state_dict", None))


def _same(value: Any, usual: Any) -> bool:
    try:
        return bool(value == usual)
    except (ValueError, RuntimeError):  # arrays and tensors have no single answer
        return False
