"""The spec file of a study: datasets, systems, grids, seeds. Read and checked before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import foveate.systems as systems
from foveate.bench.places import Places, read_yaml
from foveate.bench.spec_checks import mistakes
from foveate.errors import FoveateError, suggest
from foveate.files import read_text

NOT_LEARNED = {"network", "training", "root", "seeds", "select", "metric", "summary"}
"""Fields of a dataset that its digest has elsewhere, or that do not decide what is learned."""


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

    ``core`` says what CEP swaps; ``none`` leaves CEP out. ``network``, ``training``, ``seeds``, ``select`` and
    ``metric`` take precedence over the spec's. ``{seed}`` in ``root`` stands for the seed: one folder of images for
    each. ``summary`` puts the dataset in the page's table by the labels that methods take.
    """

    name: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    root: str | None = None
    core: Literal["bottom-half", "masks", "none"] = "none"
    network: NetworkSpec | None = None
    training: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] | None = Field(default=None, min_length=1)
    select: str | None = None
    metric: str | None = None
    summary: bool = False


class Order(_Strict):
    """What a study is to find out: whether method ``better`` is above method ``than`` in the study's metric.

    Attributes:
        better, than: labels of methods.
        says: who expects it, for instance a paper.
        datasets: labels of those it is asked of; by default all that have both methods.
    """

    better: str
    than: str
    says: str = ""
    datasets: list[str] | None = Field(default=None, min_length=1)

    def asked_of(self, dataset: str) -> bool:
        return self.datasets is None or dataset in self.datasets

    def __str__(self) -> str:
        return f"{self.better} > {self.than}"


class SearchRange(_Strict):
    """Numbers from ``low`` to ``high`` to draw from; whole ones when both ends are whole."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> SearchRange:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"a range needs low < high (and low > 0 on a log scale), found {self.low} and {self.high}")
        if self.log and self.step is not None:
            raise ValueError("a range on a log scale has no step; leave one of the two out")
        return self

    def holds(self, value: Any) -> bool:
        """Whether ``value`` lies in the range (its last digits apart)."""
        spare = 1e-9 * max(abs(self.low), abs(self.high))
        return isinstance(value, (int, float)) and self.low - spare <= value <= self.high + spare


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
        summary: whether it has a row in the page's table by labels, where its dataset is in it.
    """

    system: str
    base: bool | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    space: dict[str, SearchRange] = Field(default_factory=dict)
    search: Literal["grid", "random", "tpe"] = "grid"
    trials: int | None = Field(None, ge=1)
    prune: Literal["median", "halving", "hyperband"] | None = None
    repeat: Literal["search", "chosen"] | None = None
    target: bool | None = None
    last: bool = False
    datasets: list[str] | None = Field(None, min_length=1)
    network: NetworkSpec | None = None
    summary: bool = True

    def runs_on(self, dataset: str) -> bool:
        return self.datasets is None or dataset in self.datasets

    @property
    def kind(self) -> type[systems.System]:
        return systems.get_system(self.system)

    @property
    def post_hoc(self) -> bool:
        return self.kind.post_hoc

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
        return (
            {*point} == {*self.grid, *self.space}
            and all(point[name] in values for name, values in self.grid.items())
            and all(limits.holds(point[name]) for name, limits in self.space.items())
        )


class Spec(_Strict):
    """One study: every method on every dataset over several seeds.

    ``metric`` is the one figure of test that the study is about, by default the one that choices are made with
    (``select``); ``orders`` are the comparisons it was made for.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    about: str = ""
    data: DataSpec | None = None
    datasets: dict[str, DataSpec | None] = Field(default_factory=dict)
    core: Literal["bottom-half", "masks", "none"] = "none"
    network: NetworkSpec | None = None
    training: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    select: str = "minority"
    metric: str | None = None
    orders: list[Order] = Field(default_factory=list)
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
        changed["orders"] = [o for o in self.orders if o.better in kept and o.than in kept]
        if datasets and self.data is None:
            changed["datasets"] = {n: d for n, d in self.datasets.items() if n in datasets}
        return self.model_copy(update=changed)

    def network_of(self, dataset: str, method: str) -> NetworkSpec | None:
        return self.methods[method].network or self.sets()[dataset].network or self.network

    def training_of(self, dataset: str) -> dict[str, Any]:
        return {**self.training, **self.sets()[dataset].training}

    def select_of(self, dataset: str) -> str:
        return self.sets()[dataset].select or self.select

    def metric_of(self, dataset: str) -> str:
        """The figure of test that the study is about."""
        return self.sets()[dataset].metric or self.metric or self.select_of(dataset)

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
            "data": {**data.model_dump(exclude=NOT_LEARNED), **where},
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
    for at, what in mistakes(spec):
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
    if names[0] == "orders":
        return Order
    if names[0] == "methods":
        return SearchRange if "space" in names else Method
    return DataSpec if names[0] in ("data", "datasets") else Spec
