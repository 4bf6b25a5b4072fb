"""The spec file of a study: datasets, systems, grids, seeds. Read and checked before anything runs."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import foveate.systems as systems
from foveate.bench.places import Places, read_yaml
from foveate.data.registry import LOADERS
from foveate.engine import TrainSettings, check_metric
from foveate.errors import FoveateError, suggest
from foveate.files import read_text

GIVEN = {"base", "seed", "select", "progress", "checkpoint", "store"}
"""Settings the bench itself gives to every system that takes them."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NetworkSpec(_Strict):
    """The network that every method which trains one shares, and the embedder of probes that name none.

    ``image_size`` is what it is given to see; by default the system decides.
    """

    backbone: str
    model_args: dict[str, Any] = Field(default_factory=dict)
    image_size: int | None = Field(None, ge=1)


class DataSpec(_Strict):
    """A name for :func:`foveate.data.load` and its options; the seed is passed on to loaders that take one.

    ``core`` says what CEP swaps; ``none`` leaves CEP out. ``network``, ``training``, ``seeds`` and ``select`` take
    precedence over the spec's.
    """

    name: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    root: str | None = None
    core: Literal["bottom-half", "masks", "none"] = "none"
    network: NetworkSpec | None = None
    training: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] | None = Field(default=None, min_length=1)
    select: str | None = None


class Range(_Strict):
    """Numbers from ``low`` to ``high`` to draw from; whole ones when both ends are whole."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"a range needs low < high (and low > 0 on a log scale), found {self.low} and {self.high}")
        return self


class Method(_Strict):
    """One line of the table: a system, its fixed settings, and what to search.

    Attributes:
        system: a name of ``foveate systems``.
        settings: the same in every trial.
        grid: lists of values; the search runs over their product (``grid``) or draws from them.
        space: ranges to draw from (``random`` and ``tpe``).
        search: ``grid``, ``random`` or ``tpe`` (Optuna's samplers).
        trials: how many points ``random`` and ``tpe`` try.
        prune: stop trials early that lag behind at the same epoch.
        repeat: ``search`` on every seed, or search on the first seed and take what was ``chosen`` there for the others;
            by default the first for systems that start from a base (they are cheap), the second for the rest.
        target: train on the target images too; by default yes, except for ``base``.
        last: keep the last epoch instead of the one that ``val`` prefers.
        datasets: labels of those it runs on; by default all.
        base: may be left out; known from the system.
    """

    system: str
    base: bool | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    space: dict[str, Range] = Field(default_factory=dict)
    search: Literal["grid", "random", "tpe"] = "grid"
    trials: int | None = Field(None, ge=1)
    prune: Literal["median", "halving", "hyperband"] | None = None
    repeat: Literal["search", "chosen"] | None = None
    target: bool | None = None
    last: bool = False
    datasets: list[str] | None = Field(None, min_length=1)
    network: NetworkSpec | None = None

    def runs_on(self, dataset: str) -> bool:
        return self.datasets is None or dataset in self.datasets

    @property
    def kind(self) -> type[systems.System]:
        return systems.get_system(self.system)

    @property
    def post_hoc(self) -> bool:
        return bool(getattr(self.kind, "post_hoc", False))

    @property
    def searches_once(self) -> bool:
        """Whether the first seed's choice holds for the others."""
        wanted = self.repeat or ("search" if self.post_hoc else "chosen")
        return wanted == "chosen" and (len(self.points()) > 1 or self.search != "grid")

    def points(self) -> list[dict[str, Any]]:
        """Every point of the grid (without the fixed settings), the last list running fastest."""
        product = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in product]

    def asks(self, point: dict[str, Any]) -> bool:
        """Whether ``point`` is one of this search, and not of a grid or space as it was once.

        >>> Method(system="DAR", grid={"lr": [0.001, 0.01]}).asks({"lr": 0.1})
        False
        """
        if self.search == "grid":
            return point in self.points()
        return {*point} == {*self.grid, *self.space} and all(point[k] in values for k, values in self.grid.items())


class Spec(_Strict):
    """One study: every method on every dataset over several seeds."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    about: str = ""
    data: DataSpec | None = None
    datasets: dict[str, DataSpec | None] = Field(default_factory=dict)
    core: Literal["bottom-half", "masks", "none"] = "none"
    network: NetworkSpec | None = None
    training: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    select: str = "minority"
    methods: dict[str, Method] = Field(min_length=1)

    def sets(self) -> dict[str, DataSpec]:
        """The datasets by label, whichever way they are written."""
        if self.data is not None:
            return {self.data.name: self.data.model_copy(update={"core": self.core})}
        found = {label: data or DataSpec() for label, data in self.datasets.items()}
        return {label: d if d.name else d.model_copy(update={"name": label}) for label, d in found.items()}

    def part(self, methods: Sequence[str] = (), datasets: Sequence[str] = ()) -> Spec:
        """The spec with these methods and datasets only (none named: all); ``base`` stays where others start from it.

        What is left has the digests it had, so finished trials count for the part and for the whole.
        """
        for names, known in ((methods, list(self.methods)), (datasets, list(self.sets()))):
            for name in names:
                if name not in known:
                    raise FoveateError(f"the spec has no '{name}'.{suggest(name, known)} Known: {', '.join(known)}.")
        kept = {n: m for n, m in self.methods.items() if not methods or n in methods}
        if "base" in self.methods and any(m.post_hoc for m in kept.values()):
            kept = {"base": self.methods["base"], **kept}
        changed: dict[str, Any] = {"methods": kept}
        if datasets and self.data is None:
            changed["datasets"] = {n: d for n, d in self.datasets.items() if n in datasets}
        return self.model_copy(update=changed)

    def network_of(self, dataset: str, method: str) -> NetworkSpec | None:
        return self.methods[method].network or self.sets()[dataset].network or self.network

    def training_of(self, dataset: str) -> dict[str, Any]:
        return {**self.training, **self.sets()[dataset].training}

    def select_of(self, dataset: str) -> str:
        return self.sets()[dataset].select or self.select

    def seeds_of(self, dataset: str) -> list[int]:
        return self.sets()[dataset].seeds or self.seeds

    def digest(self, dataset: str, method: str) -> str:
        """A hash of everything in the spec that decides what ``method`` learns on ``dataset``, points and seeds apart.

        Other methods, seeds and grid points may be added to a spec without making its finished trials worthless, and
        points taken out of it (see :meth:`Method.asks`).
        """
        chosen = self.methods[method]
        network = self.network_of(dataset, method)
        data = self.sets()[dataset]
        # a named dataset is the same wherever its files lie; one's own images are what lies there
        where = {"root": data.root} if data.name == "own" else {}
        parts: dict[str, Any] = {
            "spec": self.name,
            "data": {**data.model_dump(exclude={"network", "training", "root", "seeds", "select"}), **where},
            "settings": chosen.settings,
            "network": None if network is None else network.model_dump(exclude_none=True),
            "training": None if chosen.post_hoc else self.training_of(dataset),
            "select": self.select_of(dataset),
            "system": chosen.system,
            "target": chosen.target,
        }
        if chosen.last:
            parts["last"] = True
        if chosen.post_hoc:
            base = self.methods["base"]
            parts["base"] = [self.digest(dataset, "base"), base.settings, base.grid, base.model_dump()["space"]]
        return hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=6).hexdigest()


def takes_training(kind: type[systems.System]) -> bool:
    """Whether a system's constructor passes further settings on to :class:`~foveate.engine.TrainSettings`."""
    last = [k for k in kind.__mro__ if "__init__" in k.__dict__ and issubclass(k, systems.System)]
    takes = False
    for one in last:
        takes = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(one).parameters.values())
        if not takes:
            break
    return takes


Mistake = tuple[tuple[str | int, ...], str]


def _mistakes(spec: Spec) -> Iterator[Mistake]:
    """What the types alone do not tell, with its place."""
    if (spec.data is None) == (not spec.datasets):
        yield ("data",), "name the data: either 'data' (one dataset) or 'datasets' (several, by label)."
        return
    if spec.data is not None and not spec.data.name:
        yield ("data", "name"), "this field is missing."
        return
    yield from _checked(("training",), TrainSettings.of, spec.training)
    yield from _checked(("select",), check_metric, spec.select)
    yield from _seed_mistakes((), spec.seeds)
    for label, data in spec.sets().items():
        at = ("data",) if spec.data is not None else ("datasets", label)
        yield from _seed_mistakes(at, data.seeds or [])
        if data.select is not None:
            yield from _checked((*at, "select"), check_metric, data.select)
        yield from _data_mistakes(at, data)
    for label, method in spec.methods.items():
        yield from _method_mistakes(spec, label, method)


def _seed_mistakes(at: tuple[str, ...], seeds: list[int]) -> Iterator[Mistake]:
    for number, seed in enumerate(seeds):
        if not 0 <= seed < 2**32:
            yield (*at, "seeds", number), f"a seed is a whole number from 0 to {2**32 - 1}; found {seed}."
        if seeds.index(seed) != number:
            yield (*at, "seeds", number), f"the seed {seed} is here a second time; remove one."


def _data_mistakes(at: tuple[str, ...], data: DataSpec) -> Iterator[Mistake]:
    if data.name not in LOADERS:
        known = sorted(LOADERS)
        yield (*at, "name"), f"unknown dataset '{data.name}'.{suggest(data.name, known)} Known: {', '.join(known)}."
        return
    parameters = inspect.signature(LOADERS[data.name]).parameters
    options = [p for p in parameters if p not in ("root", "seed")]
    for name in data.options:
        if name not in options:
            yield (*at, "options", name), f"{data.name} has no option '{name}'.{suggest(name, options)}"
    yield from _checked((*at, "training"), TrainSettings.of, data.training)


def _method_mistakes(spec: Spec, label: str, method: Method) -> Iterator[Mistake]:
    at = ("methods", label)
    try:
        kind = method.kind
    except FoveateError as error:
        yield (*at, "system"), str(error)
        return
    if label == "base" and kind is not systems.ERM:
        yield (*at, "system"), f"'base' is ERM on train only; found {method.system}."
    if method.post_hoc and "base" not in spec.methods:
        yield at, f"{method.system} starts from the method 'base', which the spec does not list."
    sets = [dataset for dataset in spec.sets() if method.runs_on(dataset)]
    known = list(spec.sets())
    for number, dataset in enumerate(method.datasets or ()):
        if dataset not in known:
            yield (*at, "datasets", number), f"the spec has no dataset '{dataset}'.{suggest(dataset, known)}"
    if method.post_hoc and (lone := [d for d in sets if not spec.methods["base"].runs_on(d)]):
        yield (*at, "datasets"), f"{method.system} starts from 'base', which does not run on {lone[0]}."
    if method.base is not None and method.base != method.post_hoc:
        does = "starts" if method.post_hoc else "does not start"
        yield (*at, "base"), f"{method.system} {does} from the base model; leave 'base' out."
    takes = kind.setting_names()
    if not method.post_hoc and "backbone" in takes and "backbone" not in {**method.settings, **method.grid}:
        for dataset in sets:
            if spec.network_of(dataset, label) is None:
                yield (
                    at,
                    f"{method.system} trains a network, and none is named: give the spec 'network: {{backbone: …}}'.",
                )
                return
    if method.search == "grid" and (method.space or method.trials):
        yield (*at, "space" if method.space else "trials"), "a grid search has neither; say 'search: random' or 'tpe'."
    if method.search != "grid" and method.trials is None:
        yield (*at, "search"), f"'{method.search}' needs to know how many points to try: give 'trials'."
    if method.prune and method.post_hoc:
        yield (*at, "prune"), "systems on a base are cheap and are not pruned; leave 'prune' out."
    trained = TrainSettings.model_fields if takes_training(kind) else {}
    known = [n for n in {**dict.fromkeys(takes), **trained} if n not in GIVEN]
    for where, names in (("settings", method.settings), ("grid", method.grid), ("space", method.space)):
        for name in names:
            if name in GIVEN:
                yield (*at, where, name), f"the bench gives '{name}' to every method; leave it out."
            elif name not in known:
                yield (*at, where, name), f"{method.system} has no such setting.{suggest(name, known)}"
    for name in {**method.grid, **method.space}:
        if (name in method.settings) + (name in method.grid) + (name in method.space) > 1:
            yield (*at, "grid" if name in method.grid else "space", name), f"'{name}' is given twice; remove one."
    for name, values in method.grid.items():
        if not values:
            yield (*at, "grid", name), "the list is empty; give at least one value."
        for number, value in enumerate(values):
            yield from _checked((*at, "grid", name, number), _try, kind, {**method.settings, name: value})
    for name, limits in method.space.items():
        for value in (limits.low, limits.high):
            yield from _checked((*at, "space", name), _try, kind, {**method.settings, name: value})
    yield from _checked((*at, "settings"), _try, kind, method.settings)


def _try(kind: type[systems.System], settings: dict[str, Any]) -> None:
    """Constructors do no work, so a value that does not fit shows before anything runs."""
    names = kind.setting_names()
    network = {"backbone": "micro_resnet"} if "backbone" in names and "backbone" not in settings else {}
    try:
        kind(**network, **settings)
    except TypeError as error:
        raise FoveateError(f"{kind.__name__} does not take these settings: {error}.") from error


def _checked(at: tuple[str | int, ...], check: Any, *args: Any) -> Iterator[Mistake]:
    try:
        check(**args[0]) if check == TrainSettings.of else check(*args)
    except FoveateError as error:
        yield at, str(error)


def read_spec(path: str | Path) -> Spec:
    """The checked spec of a YAML file; a mistake is named with its line and its field.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "spec.yaml"
    >>> _ = file.write_text("name: x\\ndata: {name: critters}\\nnetwork: {backbone: micro_resnet}\\n"
    ...                     "methods:\\n  base: {system: EMR}\\n")
    >>> try:
    ...     read_spec(file)
    ... except FoveateError as error:
    ...     print(str(error).partition("spec.yaml, ")[2][:74])
    line 5, methods.base.system: unknown system 'EMR'. Did you mean 'ERM'? Kno
    """
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FoveateError(f"{path}: cannot read the spec: {getattr(error, 'strerror', error)}.") from error
    return parse_spec(text, str(path))


def parse_spec(text: str, named: str = "the spec") -> Spec:
    """As :func:`read_spec`, from the text; ``named`` is what errors call it."""
    try:
        values, places = read_yaml(text)
    except FoveateError as error:
        raise FoveateError(f"{named}, {error}") from error.__cause__
    try:
        spec = Spec.model_validate(values)
    except ValidationError as error:
        raise _explained(error, places, named) from None
    for at, what in _mistakes(spec):
        raise FoveateError(f"{named}, line {places.line(at)}, {'.'.join(map(str, at))}: {what}")
    return spec


def _explained(error: ValidationError, places: Places, named: str) -> FoveateError:
    # a misspelt field is also a missing one; the misspelling is what helps
    first = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")[0]
    where = [part for part in first["loc"] if not (isinstance(part, str) and part in ("int", "float"))]
    message = f"{first['msg'].removeprefix('Value error, ')}, found {first['input']!r}."
    if first["type"] == "extra_forbidden":
        fields = list(_home(where).model_fields)
        message = f"unknown field.{suggest(str(where[-1]), fields)} Known: {', '.join(fields)}."
    elif first["type"] == "missing":
        message = "this field is missing."
    elif first["type"] == "value_error":
        message = first["msg"].removeprefix("Value error, ") + "."
    field = ".".join(str(part) for part in where) or "the file"
    return FoveateError(f"{named}, line {places.line(where)}, {field}: {message}")


def _home(where: Sequence[str | int]) -> type[BaseModel]:
    """The part of the spec a field belongs to."""
    names = [str(part) for part in where[:-1]]
    if not names:
        return Spec
    if "network" in names:
        return NetworkSpec
    if names[0] == "methods":
        return Range if "space" in names else Method
    return DataSpec if names[0] in ("data", "datasets") else Spec
