"""What the types of a spec alone do not tell: names that do not exist, settings a system does not take."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import foveate.systems as systems
from foveate.bench.places import FieldPath
from foveate.data.registry import loader
from foveate.engine import TrainSettings, check_metric
from foveate.errors import FoveateError, suggest
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.bench.spec import DataSpec, Method, Order, Spec

GIVEN = {"base", "seed", "select", "progress", "checkpoint", "store"}
"""Settings the bench itself gives to every system that takes them."""
BASES = (systems.ERM, systems.FullImage)
"""What other systems may start from: a network trained on train, or a frozen one with a head trained on train."""
Mistake = tuple[FieldPath, str]
"""Where it is, and what is wrong with it."""


def mistakes(spec: Spec) -> Iterator[Mistake]:
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
        if data.metric is not None:
            yield from _checked((*at, "metric"), check_metric, data.metric)
    if spec.metric is not None:
        yield from _checked(("metric",), check_metric, spec.metric)
    for number, order in enumerate(spec.orders):
        yield from _order_mistakes(spec, number, order)
    for label, method in spec.methods.items():
        yield from _method_mistakes(spec, label, method)


def _order_mistakes(spec: Spec, number: int, order: Order) -> Iterator[Mistake]:
    for field, name, known in (
        ("better", order.better, list(spec.methods)), ("than", order.than, list(spec.methods)),
        *(("datasets", label, list(spec.sets())) for label in order.datasets or ()),
    ):  # fmt: skip
        if name not in known:
            yield (
                ("orders", number, field),
                f"the spec has no '{name}'.{suggest(name, known)} Known: {', '.join(known)}.",
            )
    if order.better == order.than:
        yield ("orders", number, "than"), f"'{order.than}' is compared with itself; name another method."


def _seed_mistakes(at: tuple[str, ...], seeds: list[int]) -> Iterator[Mistake]:
    for number, seed in enumerate(seeds):
        if not 0 <= seed <= MAX_SEED:
            yield (*at, "seeds", number), f"a seed is a whole number from 0 to {MAX_SEED}; found {seed}."
        if seeds.index(seed) != number:
            yield (*at, "seeds", number), f"the seed {seed} is here a second time; remove one."


def _data_mistakes(at: tuple[str, ...], data: DataSpec) -> Iterator[Mistake]:
    try:
        parameters = inspect.signature(loader(data.name)).parameters
    except FoveateError as error:
        yield (*at, "name"), str(error)
        return
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
    if label == "base" and kind not in BASES:
        named = " or ".join(base.__name__ for base in BASES)
        yield (*at, "system"), f"'base' is trained on train only, {named} (frozen, a new head); found {method.system}."
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
    trained = TrainSettings.model_fields if kind.trains() else {}
    known = [n for n in {**dict.fromkeys(takes), **trained} if n not in (*GIVEN, "training")]
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
    """A value that does not fit shows before anything runs."""
    names = kind.setting_names()
    network = {"backbone": "micro_resnet"} if "backbone" in names and "backbone" not in settings else {}
    try:
        kind(**network, **settings).check()
    except TypeError as error:
        raise FoveateError(f"{kind.__name__} does not take these settings: {error}.") from error


def _checked(at: FieldPath, check: Any, *args: Any) -> Iterator[Mistake]:
    try:
        check(**args[0]) if check == TrainSettings.of else check(*args)
    except FoveateError as error:
        yield at, str(error)
