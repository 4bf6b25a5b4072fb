"""``foveate demo``: a classifier caught taking a shortcut, and what helps, in a few minutes on a laptop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from foveate.cli.inputs import comparison_table, group_table
from foveate.cli.screen import aside, console, echo_json
from foveate.files import check_writable, write_json
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.assemble.system import System
    from foveate.data.benchmark import Benchmark
    from foveate.measure import GroupReport

    Fitted = dict[str, System]
    Build = Callable[[Benchmark, int, Fitted], System]


NETWORK = {"backbone": "micro_resnet", "model_args": {"layers": [1, 1, 1], "stem_stride": 2}}
TRAINING = {"epochs": 10, "lr": 2e-3, "batch_size": 32}
TRAINED, AUDITED = 1200, 400
"""Images to train on, and of the test images those that the audit looks at."""
CURE_MINUTES, CURED_ON = 3.0, 500
"""Time for the cure at the end, which usually takes less, and training images that it is given."""


def _trained(name: str, **options: Any) -> Build:
    """A system that trains the demo's network; all but ERM get the small balanced set as well, as in the paper."""

    def build(data: Benchmark, seed: int, done: Fitted) -> System:
        from foveate.systems import get_system

        kind: Any = get_system(name)
        system = kind(**NETWORK, **TRAINING, **options, seed=seed)
        return system.fit(data.train, target=None if name == "ERM" else data.target, val=data.val)

    return build


def _adapted(name: str, **options: Any) -> Build:
    """A system that starts from the demo's ERM and adapts on the small balanced set."""

    def build(data: Benchmark, seed: int, done: Fitted) -> System:
        from foveate.systems import get_system

        kind: Any = get_system(name)
        return kind(done["ERM"], seed=seed, **options).fit(data.target, val=data.val)

    return build


def _looking(name: str, **options: Any) -> Build:
    """A system whose small frozen ViT (it comes with foveate) chooses where to look; only labels are used."""

    def build(data: Benchmark, seed: int, done: Fitted) -> System:
        from foveate.systems import get_system

        kind: Any = get_system(name)
        return kind(**options, seed=seed).fit(data.train, val=data.val)

    return build


# One line a system, in the order of the table; each may build on those before it.
SYSTEMS: dict[str, Build] = {
    "ERM": _trained("ERM"),
    "JTT": _trained("JTT", first_epochs=2, upweight=10, by="sampler"),
    "GroupDRO": _trained("GroupDRO"),
    "DFR": _adapted("DFR"),
    "DAR": _adapted("DAR", copies=4),
    "A2": _looking("A2", attention="micro-vit", embedder="micro-vit", crops=(32,)),
    "Glimpse": _looking("Glimpse", attention="micro-vit", embedder="micro-vit", keep=0.2),
    "IFAM": _looking(
        "IFAM", backbone="micro-vit", parts=4, mask="boolean", tune="none", epochs=2, lr=1e-4, batch_size=32
    ),
}


def demo(
    context: typer.Context,
    out: Path = typer.Option(Path("foveate-demo"), "--out", "-o", help="Folder for the models and the report."),
    seed: int = typer.Option(
        0, min=0, max=MAX_SEED, help="Another seed draws other animals and starts from other weights."
    ),
    strength: float = typer.Option(0.95, help="How often animal and habitat go together in training."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures (figures.json) for programs."),
) -> None:
    """Draw critters on habitats, train on them, and show what the classifier really looks at."""
    from foveate.assess import evaluate
    from foveate.data.critters import critters
    from foveate.measure import figures_of
    from foveate.remedy.sources import drawn
    from foveate.report import audit

    context.with_resource(aside(as_json))
    began = time.perf_counter()
    check_writable(out / "report.html")
    data = critters(seed=seed, strength=strength, train=TRAINED)
    names = data.train
    console.print(
        Text(
            f"critters: {', '.join(names.class_names)} on {', '.join(names.attribute_names or [])}. In training each "
            f"animal is in its own habitat {100 * strength:.0f} % of the time, in the test set in each equally often."
        )
    )
    fitted: Fitted = {}
    reports = {}
    for name, build in SYSTEMS.items():
        start = time.perf_counter()
        fitted[name] = build(data, seed, fitted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reports[name] = evaluate(fitted[name], data.test)
        fitted[name].save(out / name.lower())
        console.print(Text(f"{name} trained in {time.perf_counter() - start:.0f} s", "dim"))
    group_table(reports["ERM"], "ERM, group by group")
    console.print(comparison_table(reports, {n: s.supervision() for n, s in fitted.items()}))
    looked_at = drawn(data.test, AUDITED, seed)
    report = audit(fitted, looked_at, title="Critters: what do these classifiers look at?", attribute="habitat")
    path = report.save(out / "report.html")
    console.print(Text(report.verdict, "bold"))
    cured = _cured(fitted["ERM"], data, out, seed)
    told = {name: figures_of(found) for name, found in {**reports, "cure": cured}.items()}
    figures = {"seed": seed, "strength": strength, "test": told}
    write_json(out / "figures.json", figures)
    console.print(Text(f"report: {path.resolve()}   ({time.perf_counter() - began:.0f} s)"))
    if as_json:
        echo_json(figures)


def _cured(model: System, data: Benchmark, out: Path, seed: int) -> GroupReport:
    """The end: the same ERM cured with nothing but images and labels, and measured with the groups it never saw."""
    from foveate.assess import evaluate
    from foveate.data.benchmark import Benchmark
    from foveate.remedy import cure
    from foveate.remedy.sources import drawn

    console.print(Text("Now without the balanced set and without knowing what a habitat is: foveate cure.", "bold"))
    given = Benchmark(data.name, {k: drawn(data[k], CURED_ON, seed).without_attributes() for k in ("train", "val")})
    found = cure(
        model, given, out=out / "cured", minutes=CURE_MINUTES, objects="micro-vit", seed=seed,
        progress=lambda line: console.print(Text(line, "dim")),
    )  # fmt: skip
    before, after = (evaluate(system, data.test) for system in (model, found.model))
    console.print(Text(str(found)))
    console.print(
        Text(
            f"On the test set, measured with the habitats that it was not given: worst group "
            f"{100 * (before.worst_group or 0):.1f} % before, {100 * (after.worst_group or 0):.1f} % after; average "
            f"{100 * before.average:.1f} % and {100 * after.average:.1f} %. Before and after in pictures: "
            f"{(out / 'cured' / 'report.html').resolve()}",
            "bold",
        )
    )
    return after
