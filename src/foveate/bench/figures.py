"""The papers' pictures of a study: from the saved models of one dataset and seed, and from the records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import foveate.systems as systems
from foveate.assemble.parted import Parted
from foveate.bench.page import figure_name
from foveate.bench.records import Record
from foveate.bench.standing import choose
from foveate.bench.table import lines
from foveate.bench.trial import Bench, Cell
from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError, suggest
from foveate.measure import SmallGroupWarning, minority_groups
from foveate.report.figures import (
    ablation_bars,
    cep_histograms,
    gradcam_panels,
    part_panels,
    query_maps,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("base", "DFR", "DAR", "DAR on spurious")
"""Methods whose models are drawn, where a spec has them; otherwise those with parts."""
IMAGES = 4


class Drawer:
    """Draws what the saved models and the records of a study allow.

    Args:
        bench: the spec and the folder its models are in.
        records: of the spec.
        dataset, seed: whose models are drawn; by default the first of the spec.
        say: gets a line for what is left out.
    """

    def __init__(
        self,
        bench: Bench,
        records: Sequence[Record],
        dataset: str | None = None,
        seed: int | None = None,
        say: Callable[[str], None] = print,
    ):
        known = list(bench.spec.sets())
        dataset = known[0] if dataset is None else dataset
        if dataset not in known:
            named = ", ".join(known)
            raise FoveateError(f"the spec has no dataset '{dataset}'.{suggest(dataset, known)} It has: {named}.")
        seeds = bench.spec.seeds_of(dataset)
        seed = seeds[0] if seed is None else seed
        if seed not in seeds:
            raise FoveateError(f"{dataset} is not run with seed {seed}, but with {', '.join(map(str, seeds))}.")
        self.bench, self.spec, self.records, self.say = bench, bench.spec, list(records), say
        self.dataset, self.seed = dataset, seed

    def save(self, folder: str | Path, methods: Sequence[str] | None = None) -> list[Path]:
        """Write ``NAME-DATASET-WHAT.png`` for every picture that can be drawn."""
        name = self.spec.name
        drawn = self.draw(methods)
        if not drawn:
            raise FoveateError(
                f"nothing to draw for {self.dataset}, seed {self.seed}: no saved model in {self.bench.runs / name} and "
                f"no records of several DAR variants. Run it first: foveate bench run."
            )
        folder = Path(folder)
        return [save_figure(made, folder / figure_name(name, self.dataset, what)) for what, made in drawn.items()]

    def draw(self, methods: Sequence[str] | None = None) -> dict[str, Figure]:
        """The pictures by name: ``cep``, ``gradcam``, ``queries``, ``parts`` (of saved models), ``ablation`` (of
        records)."""
        models = self.models(methods)
        drawn: dict[str, Figure] = {}
        if models:
            data = self.bench.data(self.dataset, self.seed)
            if self.spec.sets()[self.dataset].core != "none":
                drawn["cep"] = cep_histograms({name: self.entanglement(model) for name, model in models.items()})
            if some := minority_images(data.train, data.test):
                if parts := {n: m for n, m in models.items() if isinstance(m, Parted)}:
                    drawn["parts"] = part_panels(parts, data.test, some)
                if others := {n: m for n, m in models.items() if n not in parts}:
                    drawn["gradcam"] = gradcam_panels(others, data.test, some)
                # one that learned the attribute looks elsewhere on purpose
                core = [m for m in models.values() if isinstance(m, systems.DAR) and m.learn == "label"]
                if core:
                    drawn["queries"] = query_maps(core[0], data.test, some)
        variants = self.variants()
        if "DAR" in variants and len(variants) > 1:
            ordered = {"DAR": variants.pop("DAR"), **{k.removeprefix("DAR "): v for k, v in variants.items()}}
            unit = "worst group" if self.metric == "worst_group" else f"{self.metric} accuracy"
            drawn["ablation"] = ablation_bars(ordered, f"{self.dataset}: DAR and its variants", f"{unit}, %")
        return drawn

    def models(self, methods: Sequence[str] | None = None) -> dict[str, Any]:
        """The saved model of the chosen trial of every method, the base under the name ERM."""
        known = [m for m, chosen in self.spec.methods.items() if chosen.runs_on(self.dataset)]
        for method in methods or ():
            if method not in known:
                named = ", ".join(known)
                raise FoveateError(f"no method '{method}' on {self.dataset}.{suggest(method, known)} It has: {named}.")
        found: dict[str, Any] = {}
        shown = [m for m in SHOWN if m in known]
        shown = shown or [m for m in known if issubclass(self.spec.methods[m].kind, Parted)]
        for method in methods or shown:
            cell = Cell(self.dataset, method, self.seed)
            record = choose(self.records, cell, self.spec.digest(self.dataset, method))
            folder = None if record is None else self.bench.folder(cell, record.key)
            if folder is None or not (folder / "system.json").exists():
                self.say(f"no saved model of {cell}: left out of the pictures")
                continue
            found["ERM" if method == "base" else method] = systems.load(folder)
        return found

    def entanglement(self, model: Any) -> systems.Entanglement:
        """CEP of a model as the records have it: same core, same images."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            return self.bench.entanglement(model, Cell(self.dataset, "", self.seed))

    @property
    def metric(self) -> str:
        """The accuracy that the study selects on, or minority accuracy when it selects on something else."""
        select = self.spec.select_of(self.dataset)
        return select if select in ("worst_group", "average") else "minority"

    def variants(self) -> dict[str, list[float]]:
        """The accuracy of every seed, in percent, of DAR and those of its variants that keep its task."""
        chosen = [
            label for label, m in self.spec.methods.items()
            if m.kind is systems.DAR and not {"learn", "pool"} & {*m.settings, *m.grid, *m.space}
        ]  # fmt: skip
        mine = [r for r in self.records if r.dataset == self.dataset and r.method in chosen]
        rows = lines(mine, list(self.spec.methods))
        return {row.method: [100 * v for v in row.values[self.metric]] for row in rows if row.values.get(self.metric)}


def minority_images(train: GroupedDataset, test: GroupedDataset, count: int = IMAGES) -> list[int]:
    """Positions in ``test`` of ``count`` images, spread evenly over those of train's minority groups."""
    few = minority_groups(train.group_counts.reshape(train.num_classes, -1)).ravel()
    places = np.flatnonzero(few[test.require_groups("figures")])
    return [int(i) for i in places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]]
