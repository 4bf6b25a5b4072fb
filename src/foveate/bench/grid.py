"""The grid: every combination of LOOK, RESTRICT, EXTRACT, POOL and DECIDE on one dataset.

The published systems are some of its cells, and those cells *are* the named systems with their usual settings; the
others are pipelines of the same parts, there to be tried. A combination that makes no sense is left out with the
reason. Features go through the store: what a look, a restriction and a backbone make of an image is computed once for
all pools and decisions on it. Every choice (an epoch, a strength) is made on val; test is only measured.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import foveate.systems as systems
from foveate.assemble.adapting import FrozenBase
from foveate.assemble.pipeline import Pipeline
from foveate.assemble.system import System
from foveate.assemble.worth import measured_elsewhere
from foveate.assess import evaluate
from foveate.bench.records import Record, Records, write_csv
from foveate.bench.run import commit
from foveate.data.benchmark import Benchmark
from foveate.data.typed import open_data
from foveate.decide import BalancedLogistic, CrossEntropy, Logistic
from foveate.errors import FoveateError
from foveate.extract import Frozen, FrozenModel
from foveate.extract.named import list_named
from foveate.look import Centre, ClsAttention, Everywhere, Truth
from foveate.measure import SmallGroupWarning
from foveate.pool import LearnedPool, MeanPool, OwnPool
from foveate.restrict import GreedyCrops, Nothing, TopTokens

LOOKS = ("everywhere", "centre", "attention", "truth")
RESTRICTS = ("nothing", "crop", "tokens", "late")
POOLS = ("own", "mean", "dar", "aim")
DECIDES = ("logistic", "dfr", "cross-entropy")


LEARNED = ("dar", "aim")
CROP = 0.5
"""Side of a crop, as a share of the image's."""
KEEP = 0.25
"""Share of the tokens (or of the map) that a look lets through."""


def aim_heads(channels: int) -> int:
    """The most heads of AIM's pool, up to its 12, that divide ``channels``.

    >>> aim_heads(384), aim_heads(128)
    (12, 8)
    """
    return max(h for h in range(1, 13) if channels % h == 0)


@dataclass
class GridModel:
    """A frozen backbone of the grid: opened by ``name``, or the network of an ERM ``base``."""

    name: str
    frozen: FrozenModel
    base: System | None = None

    @classmethod
    def open(cls, name: str, bench: Benchmark, epochs: int, seed: int, runs: Path) -> GridModel:
        """Known weights, or a network trained on ``train`` by ERM (kept in ``runs/grid``)."""
        if name in list_named() or "@" in name or name.startswith("open_clip:"):
            return cls(name, FrozenModel.open(name))
        folder = runs / "grid" / f"{name}-{epochs}-{seed}-{bench.train.fingerprint[:10]}"
        if (folder / "system.json").exists():
            base = systems.load(folder)
        else:
            base = systems.ERM(name, epochs=epochs, lr=2e-3, seed=seed, progress=False)
            base.fit(bench.train, val=bench.get("val")).save(folder)
        return cls(name, FrozenModel(base.network_.cpu().backbone, base.preprocess_), base)

    @property
    def vit(self) -> bool:
        return self.frozen.backbone.is_vit


@dataclass(frozen=True)
class Combination:
    """One cell: five choices. ``vit`` says what kind of network the backbone is."""

    look: str
    restrict: str
    extract: str
    pool: str
    decide: str
    vit: bool = False

    def __str__(self) -> str:
        return " → ".join((self.look, self.restrict, self.extract, self.pool, self.decide))

    def build(self, model: GridModel, looker: FrozenModel | None, how: dict[str, Any]) -> System:
        """The system of this cell: the named one where it has a name, else a pipeline.

        Args:
            model: the backbone that reads.
            looker: the ViT whose attention is looked at.
            how: ``store``, ``seed`` and ``progress``.
        """
        side = (looker or model.frozen).size
        named = self._named(model, looker, int(CROP * side), how)
        if named is not None:
            return named
        channels = model.frozen.backbone.map_dim
        looks = {
            "everywhere": Everywhere(), "centre": Centre(), "truth": Truth(), "attention": ClsAttention(looker),
        }  # fmt: skip
        restricts = {
            "nothing": Nothing(), "crop": GreedyCrops((int(CROP * side),), frame=side), "tokens": TopTokens(KEEP),
            "late": TopTokens(KEEP, way="late"),
        }  # fmt: skip
        learns = CrossEntropy()
        learns.set_params(seed=how["seed"], progress=False)
        pools = {
            "own": OwnPool(), "mean": MeanPool(), "dar": LearnedPool("attention", by=learns),
            "aim": LearnedPool("aim", args={"heads": aim_heads(channels)}, by=learns),
        }  # fmt: skip
        decides = {"logistic": Logistic(), "dfr": BalancedLogistic(seed=how["seed"]), "cross-entropy": learns}
        whole = self.restrict == "nothing" and model.base is not None
        return Pipeline(
            look=looks[self.look], restrict=restricts[self.restrict],
            extract=FrozenBase(model.base, who="the grid") if whole else Frozen(model.frozen),
            pool=pools[self.pool], decide=decides[self.decide], **how,
        )  # fmt: skip

    def _named(self, model: GridModel, looker: FrozenModel | None, crop: int, how: dict[str, Any]) -> System | None:
        name, head = self.known_as(), {"head": "dfr"} if self.decide == "dfr" else {}
        reads = model.frozen
        trains = {k: how[k] for k in ("seed", "progress", "store")}
        if name == "DFR" and model.base is not None:
            return systems.DFR(model.base, **trains)
        if name == "DAR":
            return systems.DAR(model.base, **trains) if model.base is not None else None
        if name == "AIM probe":
            start = {"base": model.base} if model.base is not None else {"backbone": model.name}
            return systems.AIMProbe(**start, heads=aim_heads(reads.backbone.map_dim), **trains)
        if name in ("linear probe", "DFR"):
            return systems.FullImage(reads, **head, **how)
        if name == "centre crop":
            return systems.CentreCrop(reads, crops=crop, image_size=(looker or reads).size, **how)
        if name in ("A²-LR", "DFR + A²"):
            return systems.A2(looker, reads, crops=(crop,), **head, **how)
        return systems.Glimpse(looker, reads, keep=KEEP, **how) if name == "Glimpse" else None

    def invalid(self, masks: bool = True) -> str | None:
        """Why the combination makes no sense, or None.

        >>> Combination("attention", "tokens", "resnet", "own", "dfr").invalid()
        'a CNN has no tokens to leave out'
        """
        if (self.look == "everywhere") != (self.restrict == "nothing"):
            if self.look == "everywhere":
                return "who looks everywhere restricts nothing"
            return "a look that restricts nothing changes nothing"
        if self.look == "truth" and not masks:
            return "the data have no masks"
        if self.restrict == "tokens" and not self.vit:
            return "a CNN has no tokens to leave out"
        if self.restrict == "late" and self.pool == "own":
            return "a late mask acts on the map, and the model's own pool reads past it"
        if self.pool == "mean" and not self.vit and self.restrict != "late":
            return "the mean is the CNN's own pool"
        if self.pool not in LEARNED and self.decide == "cross-entropy":
            return "on a fixed vector cross-entropy is logistic regression"
        return None

    def known_as(self) -> str | None:
        """The name of a published row (or of Glimpse, which is ours), or None for one nobody has published."""
        key = (self.look, self.restrict, self.pool, self.decide)
        names = {
            ("everywhere", "nothing", "own", "logistic"): "linear probe",
            ("everywhere", "nothing", "own", "dfr"): "DFR",
            ("everywhere", "nothing", "aim", "cross-entropy"): "AIM probe",
            ("centre", "crop", "own", "logistic"): "centre crop",
            ("attention", "crop", "own", "logistic"): "A²-LR",
            ("attention", "crop", "own", "dfr"): "DFR + A²",
            ("attention", "tokens", "own", "logistic"): "Glimpse",
        }
        if key == ("everywhere", "nothing", "dar", "cross-entropy"):
            return None if self.vit else "DAR"  # DAR is for CNNs
        return names.get(key)

    @property
    def published(self) -> bool:
        return self.known_as() not in (None, "Glimpse")


def combinations(backbones: dict[str, bool], masks: bool) -> Iterator[tuple[Combination, str | None]]:
    """Every combination of ``backbones`` (name -> is a ViT) with the reason against it, or None."""
    for look, restrict, extract in itertools.product(LOOKS, RESTRICTS, backbones):
        for pool, decide in itertools.product(POOLS, DECIDES):
            one = Combination(look, restrict, extract, pool, decide, backbones[extract])
            yield one, one.invalid(masks)


@dataclass
class Grid:
    """What the grid found: a record for every combination that was run, a reason for every other."""

    records: list[Record]
    skipped: dict[str, str] = field(default_factory=dict)

    def mean(self, metric: str, where: str = "metrics") -> dict[Combination, float]:
        """Mean over seeds of a test metric (or of the val score, ``where="score"``) for every combination."""
        found: dict[Combination, list[float]] = {}
        for record in self.records:
            if record.state == "done" and (where == "score" or metric in record.metrics):
                value = record.score if where == "score" else record.metrics[metric]
                found.setdefault(Combination(**record.point), []).append(float(value or 0.0))
        return {one: float(np.mean(values)) for one, values in found.items()}

    def reasons(self) -> dict[str, int]:
        """How many combinations were left out for which reason, the most frequent first."""
        return dict(Counter(self.skipped.values()).most_common())

    def best(self, metric: str = "worst_group") -> dict[str, Combination]:
        """Of the rows that were published, and of the others, the one that val prefers."""
        scores = self.mean(metric, "score")
        # a look at the true mask is a bound, not a system: test images come without masks
        open_ = [c for c in self.mean(metric) if c.look != "truth"]
        groups = {
            "published": [c for c in open_ if c.published],
            "unpublished": [c for c in open_ if not c.published],
        }
        return {label: max(group, key=lambda c: scores[c]) for label, group in groups.items() if group}

    def summary(self, metric: str = "worst_group") -> list[str]:
        """How many were run, why others were not, and the published and unpublished rows that val prefers."""
        means, tops = self.mean(metric), self.best(metric)
        lines = [f"{len(means)} combinations run, {len(self.skipped)} skipped:"]
        lines += [f"  {count}: {reason}" for reason, count in self.reasons().items()]
        for label, best in tops.items():
            name = f" ({best.known_as()})" if best.known_as() else ""
            lines.append(f"best {label} row, chosen on val: {best}{name}: {metric} {100 * means[best]:.1f} on test")
        if len(tops) == 2:
            gap = 100 * (means[tops["unpublished"]] - means[tops["published"]])
            lines.append(f"the unpublished row is {abs(gap):.1f} points {'better' if gap >= 0 else 'worse'}")
        return lines

    def to_dict(self, metric: str = "worst_group") -> dict[str, Any]:
        """The same for programs: every combination with ``metric`` on test, and the score on val that chooses."""
        means, scores = self.mean(metric), self.mean(metric, "score")
        rows = [{**vars(c), "name": c.known_as(), "val": scores[c], "test": means[c]} for c in means]
        best = {label: {**vars(c), "name": c.known_as()} for label, c in self.best(metric).items()}
        return {"metric": metric, "combinations": rows, "best": best, "skipped": self.reasons()}

    def save(self, path: Path, metric: str = "worst_group") -> Path:
        """The heat map, and the records beside it as CSV."""
        from foveate.bench.plot import grid_heatmap
        from foveate.report.figures import save_figure

        write_csv(path.with_suffix(".csv"), self.records)
        return save_figure(grid_heatmap(self.mean(metric), metric), path)


def run_grid(
    data: str = "critters",
    *,
    backbones: Sequence[str] | None = None,
    epochs: int = 5,
    seeds: Sequence[int] = (0,),
    only: Sequence[str] = (),
    runs: Path = Path("runs"),
    root: Path | None = None,
    command: str = "",
    say: Callable[[str], None] = print,
) -> Grid:
    """Run every valid combination that has no record yet; records are kept in ``runs/grid.db``.

    Args:
        data: a dataset's name with options (``critters:train=2000``), a CSV file or a folder.
        backbones: names for :func:`~foveate.extract.open_backbone`, or of networks to be trained on ``train`` first.
            The first ViT also says where to look.
        epochs: of that training.
        seeds: of data, training and heads.
        only: ``look=attention``, ``pool=own`` … keep combinations with these parts.
    """
    names = list(backbones or ("micro_resnet", "micro-vit"))
    kept = _filters(only)
    store, made_by = Records(runs / "grid.db"), commit()
    rows: list[Record] = []
    skipped: dict[str, str] = {}
    for seed in seeds:
        bench = open_data(data, root, seed)
        models = {name: GridModel.open(name, bench, epochs, seed, runs) for name in names}
        looker = next((m.frozen for m in models.values() if m.vit), None)
        masks = all(s.masks is not None for s in bench.splits.values())
        digest = _digest(bench, {n: m.frozen.backbone.weights_hash() for n, m in models.items()})
        how = {"store": str(runs / "features"), "seed": seed, "progress": False}
        for one, reason in combinations({name: m.vit for name, m in models.items()}, masks):
            if any(getattr(one, part) not in values for part, values in kept.items()):
                continue
            if reason is None and one.look == "attention" and looker is None:
                reason = "none of the backbones is a ViT whose attention could be read"
            if reason is not None:
                skipped[str(one)] = reason
                continue
            blank = Record("grid", digest, bench.name, str(one), seed, vars(one).copy(), system="grid",
                           select="worst_group", command=command, commit=made_by)  # fmt: skip
            record = store.get(blank.key)
            if record is None:
                record = _measure(one.build(models[one.extract], looker, how), bench, blank)
                store.add(record)
                say(f"{one}: worst group {100 * record.metrics['worst_group']:.1f}, {record.seconds:.1f} s")
            rows.append(record)
    return Grid(rows, skipped)


def _filters(only: Sequence[str]) -> dict[str, set[str]]:
    parts = {"look": LOOKS, "restrict": RESTRICTS, "extract": None, "pool": POOLS, "decide": DECIDES}
    found: dict[str, set[str]] = {}
    for text in only:
        part, _, value = text.partition("=")
        known = parts.get(part)
        if part not in parts or (known is not None and value not in known):
            choices = "; ".join(f"{p}: {', '.join(v)}" for p, v in parts.items() if v)
            raise FoveateError(f"--only takes part=value, found '{text}'. {choices}; extract: a backbone.")
        found.setdefault(part, set()).add(value)
    return found


def _digest(bench: Benchmark, weights: dict[str, str]) -> str:
    splits = {name: split.fingerprint for name, split in bench.splits.items()}
    text = json.dumps([splits, weights, "named cells are the named systems"], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _measure(system: System, bench: Benchmark, record: Record) -> Record:
    """Fit one cell on what its decision wants, and measure it."""
    began = time.perf_counter()
    val = bench.get("val")
    with warnings.catch_warnings(), measured_elsewhere():
        warnings.simplefilter("ignore", SmallGroupWarning)
        if system.post_hoc:
            system.fit(bench.target, val=val)
        else:
            # a probe trained on both joins them; the grid's published row is the paper's, on train alone
            joins = isinstance(system, systems.AIMProbe)
            system.fit(bench.train, None if joins else bench.target, val)
        report = evaluate(system, bench.test)
        record.score = None if val is None else evaluate(system, val).value("worst_group")
    record.metrics = {n: round(v, 4) for n, v in report.figures.items() if v is not None}
    looks = isinstance(system, Pipeline) and isinstance(system.look_part, Truth)
    record.supervision = system.supervision() + ("; masks, also at test" if looks else "")
    record.seconds = round(time.perf_counter() - began, 2)
    record.finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return record
