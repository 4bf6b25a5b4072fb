"""The spec file of a study: what it may say, and a sentence with its place for what it may not."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import foveate as fv
from foveate.engine import TrainSettings
from foveate.errors import FoveateError, suggest
from foveate.measure import METRICS

# what the study itself gives to every system
GIVEN = {"base", "backbone", "model_args", "seed", "select", "progress", "checkpoint"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DataSpec(_Strict):
    """A name for :func:`foveate.data.load` and its options; the seed is passed as ``seed``."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class NetworkSpec(_Strict):
    """The network every method shares."""

    backbone: str
    model_args: dict[str, Any] = Field(default_factory=dict)


class Method(_Strict):
    """One line of the table: a system, its fixed settings, and a grid of those to choose from.

    ``base`` says whether it starts from the base model; it is known from the system and may be left out.
    """

    system: str
    base: bool | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)

    @property
    def kind(self) -> type[fv.systems.System]:
        return fv.systems.get_system(self.system)

    @property
    def post_hoc(self) -> bool:
        return bool(getattr(self.kind, "post_hoc", False))

    def points(self) -> list[dict[str, Any]]:
        """Fixed settings with every point of the grid, the last list running fastest."""
        product = itertools.product(*self.grid.values())
        return [{**self.settings, **dict(zip(self.grid, values, strict=True))} for values in product]


class Spec(_Strict):
    """One study. ``core`` says what CEP swaps; ``none`` leaves CEP out (the shortcut covers the object)."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    about: str
    data: DataSpec
    core: Literal["bottom-half", "masks", "none"] = "none"
    network: NetworkSpec
    training: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    select: str = "minority"
    methods: dict[str, Method] = Field(min_length=1)

    def check(self) -> None:
        """Raise a sentence for what the types alone do not tell."""
        TrainSettings.of(**self.training)
        if self.select not in METRICS:
            raise FoveateError(f"select: unknown metric '{self.select}'.{suggest(self.select, METRICS)}")
        for label, method in self.methods.items():
            at = f"methods.{label}"
            try:
                kind = method.kind
            except FoveateError as error:
                raise FoveateError(f"{at}.system: {error}") from None
            if label == "base" and kind is not fv.ERM:
                raise FoveateError(f"{at}.system: 'base' is ERM on train only; found {method.system}.")
            if method.post_hoc and "base" not in self.methods:
                raise FoveateError(
                    f"{at}: {method.system} starts from the method 'base', which the spec does not list."
                )
            if method.base is not None and method.base != method.post_hoc:
                does = "starts" if method.post_hoc else "does not start"
                raise FoveateError(f"{at}.base: {method.system} {does} from the base model; leave 'base' out.")
            known = [n for n in {**dict.fromkeys(kind.setting_names()), **TrainSettings.model_fields} if n not in GIVEN]
            for where, names in (("settings", method.settings), ("grid", method.grid)):
                for name in names:
                    if name in GIVEN:
                        raise FoveateError(
                            f"{at}.{where}.{name}: the study gives '{name}' to every method; leave it out."
                        )
                    if name not in known:
                        raise FoveateError(
                            f"{at}.{where}.{name}: {method.system} has no such setting.{suggest(name, known)}"
                        )
            for name, values in method.grid.items():
                if not values:
                    raise FoveateError(f"{at}.grid.{name}: the list is empty; give at least one value.")


class _Loader(yaml.SafeLoader):
    """Plain values only, and 1e-3 is a number (YAML 1.1 takes it for a word)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_spec(path: str | Path) -> Spec:
    """The validated spec of a YAML file; a mistake is named with its place in the file."""
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
        spec = Spec.model_validate(values)
        spec.check()
        return spec
    except OSError as error:
        raise FoveateError(f"{path}: cannot read the spec: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise FoveateError(f"{path}: this is not YAML: {' '.join(str(error).split())}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"]]
        message = f"{first['msg']}, found {first['input']!r}."
        if first["type"] == "extra_forbidden":
            homes: dict[str, type[BaseModel]] = {"data": DataSpec, "network": NetworkSpec, "methods": Method}
            fields = list((homes[where[0]] if len(where) > 1 else Spec).model_fields)
            message = f"unknown field.{suggest(where[-1], fields)} Known: {', '.join(fields)}."
        elif first["type"] == "missing":
            message = "this field is missing."
        raise FoveateError(f"{path}: {'.'.join(where) or 'the file'}: {message}") from None
    except FoveateError as error:
        raise FoveateError(f"{path}: {error}") from None
