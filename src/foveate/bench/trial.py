"""One trial: build a system with one point of its search, fit it, save it, measure it."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import foveate.systems as systems
from foveate.assemble.parted import Parted
from foveate.assemble.piped import Piped
from foveate.assemble.system import System
from foveate.assemble.worth import measured_elsewhere
from foveate.assess import report_of
from foveate.bench.hits import KeptHits
from foveate.bench.spec import Spec
from foveate.bench.spec_checks import GIVEN
from foveate.data.benchmark import Benchmark
from foveate.data.registry import load as load_data
from foveate.data.registry import loader
from foveate.engine import Callback, TrainSettings
from foveate.errors import FoveateError
from foveate.measure import SmallGroupWarning, described, figures_of, half_mask

log = logging.getLogger("foveate")
LOCAL = ("base", "store", "progress", "checkpoint", "checkpoint_every", "workers")
"""Settings that do not change what is learned and stay out of the records."""


@dataclass(frozen=True)
class Cell:
    """A dataset, a method and a seed: one search, and one entry of the mean in a table."""

    dataset: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.method}/{self.seed}"


def cells(spec: Spec) -> list[Cell]:
    """Everything a spec asks for; what others wait for (base models, the first seed) comes first."""
    labels = sorted(spec.methods, key=lambda label: label != "base")
    turns = range(max(len(spec.seeds_of(d)) for d in spec.sets()))
    seeds = [(d, spec.seeds_of(d)[turn]) for turn in turns for d in spec.sets() if turn < len(spec.seeds_of(d))]
    return [Cell(d, m, s) for d, s in seeds for m in labels if spec.methods[m].runs_on(d)]


def trial_folder(spec: str, cell: Cell, key: str) -> Path:
    """Where a trial's model is kept in the folder of the runs; its log is the same with ``.log``."""
    return Path(spec) / cell.dataset / cell.method.replace(" ", "-") / str(cell.seed) / key


@dataclass
class Outcome:
    """What a trial measured."""

    score: float
    metrics: dict[str, float]
    settings: dict[str, Any]
    supervision: str
    seconds: float
    weights: str
    answers: dict[str, Any] = field(default_factory=dict)
    epochs: list[dict[str, float]] = field(default_factory=list)


class Bench:
    """A spec with the folder its models, logs and features are kept in.

    Args:
        spec: what to run.
        runs: folder for everything that is made.
    """

    def __init__(self, spec: Spec, runs: str | Path):
        self.spec = spec
        self.runs = Path(runs)
        self._data: dict[tuple[str, int], Benchmark] = {}

    def data(self, dataset: str, seed: int) -> Benchmark:
        """The data of ``seed``; the last asked for is kept."""
        if (dataset, seed) not in self._data:
            chosen = self.spec.sets()[dataset]
            seeded = {"seed": seed} if "seed" in inspect.signature(loader(chosen.name)).parameters else {}
            root = None if chosen.root is None else chosen.root.replace("{seed}", str(seed))
            self._data = {(dataset, seed): load_data(chosen.name, root, **seeded, **chosen.options)}
        return self._data[dataset, seed]

    def folder(self, cell: Cell, key: str) -> Path:
        """Where the fitted model of a trial is kept."""
        return self.runs / trial_folder(self.spec.name, cell, key)

    def build(self, cell: Cell, point: dict[str, Any]) -> System:
        """The system of a cell with the settings of one point, not fitted."""
        spec, method = self.spec, self.spec.methods[cell.method]
        names = method.kind.setting_names()
        trains = method.kind.trains()
        given: dict[str, Any] = {"select": spec.select_of(cell.dataset), "store": str(self.runs / "features")}
        given = {k: v for k, v in given.items() if k in names}
        if trains or "seed" in names:
            given["seed"] = cell.seed
        if trains or "progress" in names:
            given["progress"] = False
        chosen = {**method.settings, **point}
        if method.post_hoc:
            return method.kind(**given, **chosen)
        training = {k: v for k, v in spec.training_of(cell.dataset).items() if trains or k in names}
        network = spec.network_of(cell.dataset, cell.method)
        if network is not None:
            shared: dict[str, Any] = {"backbone": network.backbone, "model_args": network.model_args}
            shared["embedder"] = network.backbone
            if network.image_size is not None:
                shared |= {"image_size": network.image_size, "embed_size": network.image_size}
            given |= {k: v for k, v in shared.items() if k in names}
        if method.kind is systems.Subsample:  # as many steps as the others take
            data = self.data(cell.dataset, cell.seed)
            smallest = int((data.train + data.target).group_counts.min())
            kept = max(smallest, 1) * data.train.num_groups
            training["epochs"] = round(TrainSettings.of(**training).epochs * len(data.train) / kept)
        return method.kind(**{**given, **training, **chosen})

    def fit(self, system: System, cell: Cell, base: System | None, callbacks: Sequence[Callback] = ()) -> None:
        """Fit on what the protocol gives the method: base on train, post-hoc systems on target, others on both.

        ``callbacks`` hear of every epoch, where the system has epochs.
        """
        data, method = self.data(cell.dataset, cell.seed), self.spec.methods[cell.method]
        val = None if method.last else data.get("val")
        wanted = method.target if method.target is not None else cell.method != "base"
        with measured_elsewhere():
            if method.post_hoc:
                system.set_params(base=base).fit(data.target, val=val, callbacks=callbacks)
            else:
                system.fit(data.train, data.get("target") if wanted else None, val, callbacks=callbacks)

    def run(
        self, cell: Cell, point: dict[str, Any], key: str, base: System | None, callbacks: Sequence[Callback] = ()
    ) -> Outcome:
        """Fit, save and measure one trial."""
        began = time.perf_counter()
        system = self.build(cell, point)
        self.fit(system, cell, base, callbacks)
        folder = self.folder(cell, key)
        system.save(folder)
        if isinstance(system, Piped):
            system.keeps = "maps"  # every trial of a search reads the same images
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            score = self.score(system, cell)
            metrics, answers = self.metrics(system, cell)
        history = getattr(system, "history_", None)
        return Outcome(
            score=score,
            metrics=metrics,
            settings=all_settings(system),
            supervision=system.supervision(),
            seconds=time.perf_counter() - began,
            weights=hash_file(folder / "weights.safetensors"),
            answers=answers,
            epochs=[] if history is None else history.epochs,
        )

    def score(self, system: System, cell: Cell) -> float:
        """The selection metric on val, larger is better; test takes no part in any choice."""
        data = self.data(cell.dataset, cell.seed)
        val, history = data.get("val"), getattr(system, "history_", None)
        own = None if history is None else history.best_score
        select = self.spec.select_of(cell.dataset)
        if val is None or system.class_names_ != val.class_names or select == "loss":
            # it learned the attribute, or selected by its loss: its own selection score
            return described(select).goodness(float(own or 0.0))
        return described(select).goodness(systems.evaluate(system, val).value(select))

    def metrics(self, system: System, cell: Cell) -> tuple[dict[str, float], dict[str, Any]]:
        """Everything that can be measured on test, as shares; and which images were answered rightly."""
        data, chosen = self.data(cell.dataset, cell.seed), self.spec.sets()[cell.dataset]
        found: dict[str, float] = {}
        answers: KeptHits | None = None
        if system.class_names_ == data.test.class_names:
            predictions = system.predict(data.test)
            report = report_of(system, data.test, predictions)
            answers = KeptHits.of(predictions, data.test, system.train_counts_)
            found |= figures_of(report)
            for remark in report.remarks():
                log.warning("%s: %s", cell, remark)
        if chosen.core != "none":
            shares = self.entanglement(system, cell).to_dict()
            found |= {k if k.startswith(("cep_", "cap", "cgp")) else f"cep_{k}": round(v, 4) for k, v in shares.items()}
        if isinstance(system, Parted) and data.test.masks is not None:
            quality = systems.part_quality(system, data.test, data.train).to_dict()
            found |= {k: round(v / 100 if k == "kp" else v, 4) for k, v in quality.items()}
        return found, {} if answers is None else answers.packed()

    def entanglement(self, system: System, cell: Cell) -> systems.Entanglement:
        """CEP, CAP and CGP on test, by swapping what the spec calls the core of the dataset."""
        test = self.data(cell.dataset, cell.seed).test
        height, width = test[0].image.shape[-2:]
        core = None if self.spec.sets()[cell.dataset].core == "masks" else half_mask(height, width)
        return systems.entanglement(system, test, core=core, images=500, seed=cell.seed)

    def base_of(self, cell: Cell, point: dict[str, Any], key: str) -> System:
        """The base model of a cell's dataset and seed: read from its folder, or fitted again where it is missing."""
        base = Cell(cell.dataset, "base", cell.seed)
        folder = self.folder(base, key)
        with contextlib.suppress(FoveateError):
            return systems.load(folder)
        system = self.build(base, point)
        self.fit(system, base, None)
        system.save(folder)
        return system


def all_settings(system: System) -> dict[str, Any]:
    """Everything that decides what ``system`` learned, as JSON values: the usual values of the training too.

    >>> all_settings(systems.DAR(lr=0.01))["weight_decay"], all_settings(systems.DAR(lr=0.01))["lr"]
    (0.01, 0.01)
    """
    training = getattr(system, "training", None)
    every = {**(training.model_dump() if isinstance(training, TrainSettings) else {}), **system.settings()}
    kept = {k: v for k, v in every.items() if k not in LOCAL and k not in GIVEN}
    return dict(json.loads(json.dumps(kept, default=str)))


def hash_file(path: Path) -> str:
    """A short hash of a file, empty when it is not there."""
    if not path.exists():
        return ""
    hasher = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            hasher.update(block)
    return hasher.hexdigest()
