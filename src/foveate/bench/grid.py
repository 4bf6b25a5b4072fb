"""The grid: every combination of LOOK, RESTRICT, EXTRACT, POOL and DECIDE on one dataset.

The published systems are some of its cells; the others are there to be tried. A combination that makes no sense is
left out with the reason. Where to look, what to let through and the backbone decide the features, which are computed
once for all pools and decisions. Every choice (an epoch, a strength) is made on val; test is only measured.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from foveate.bench.features import Features, Looker, open_model, read_features
from foveate.bench.records import Record, Records, write_csv
from foveate.bench.run import commit
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.typed import open_data
from foveate.decide import DFRHead, LinearHead
from foveate.engine import Selection, TensorFeed, TrainSettings, cross_entropy, seed_everything, train
from foveate.errors import FoveateError
from foveate.measure import SmallGroupWarning, answered, decided, figures_of, group_report
from foveate.pool import AIMPool, AttentionPool

LOOKS = ("everywhere", "centre", "attention", "truth")
RESTRICTS = ("nothing", "crop", "tokens", "late")
POOLS = ("own", "mean", "dar", "aim")
DECIDES = ("logistic", "dfr", "cross-entropy")


def aim_pool(channels: int) -> AIMPool:
    """AIM's pooling with the most heads, up to its 12, that divide ``channels``.

    >>> aim_pool(384).heads, aim_pool(128).heads
    (12, 8)
    """
    return AIMPool(channels, heads=max(h for h in range(1, 13) if channels % h == 0))


LEARNED: dict[str, Callable[[int], nn.Module]] = {"dar": AttentionPool, "aim": aim_pool}
Head = Callable[[NDArray[np.float32]], NDArray[np.int64]]
Pooled = tuple[dict[str, NDArray[np.float32]], Head | None]
USES = {"logistic": "train: labels", "dfr": "target: labels, groups", "cross-entropy": "target: labels, balanced"}


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

    def summary(self, metric: str = "worst_group") -> list[str]:
        """How many were run, why others were not, and the published and unpublished rows that val prefers."""
        reasons: dict[str, int] = {}
        for reason in self.skipped.values():
            reasons[reason] = reasons.get(reason, 0) + 1
        means, scores = self.mean(metric), self.mean(metric, "score")
        lines = [f"{len(means)} combinations run, {len(self.skipped)} skipped:"]
        lines += [f"  {count}: {reason}" for reason, count in sorted(reasons.items(), key=lambda i: -i[1])]
        # a look at the true mask is a bound, not a system: test images come without masks
        open_ = [c for c in means if c.look != "truth"]
        tops = {}
        for label, group in (
            ("published", [c for c in open_ if c.published]),
            ("unpublished", [c for c in open_ if not c.published]),
        ):
            if group:
                best = tops[label] = max(group, key=lambda c: scores[c])
                name = f" ({best.known_as()})" if best.known_as() else ""
                lines.append(f"best {label} row, chosen on val: {best}{name}: {metric} {100 * means[best]:.1f} on test")
        if len(tops) == 2:
            gap = 100 * (means[tops["unpublished"]] - means[tops["published"]])
            lines.append(f"the unpublished row is {abs(gap):.1f} points {'better' if gap >= 0 else 'worse'}")
        return lines

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
        models = {name: open_model(name, bench, epochs, seed, runs) for name in names}
        looker = Looker(next((m for m in models.values() if m.backbone.is_vit), None))
        kinds = {name: model.backbone.is_vit for name, model in models.items()}
        masks = all(s.masks is not None for s in bench.splits.values())
        digest = _digest(bench, {n: m.backbone.weights_hash() for n, m in models.items()}, looker.name)
        wanted: dict[tuple[str, str, str], list[Combination]] = {}
        for one, reason in combinations(kinds, masks):
            if any(getattr(one, part) not in values for part, values in kept.items()):
                continue
            if reason is None and one.look == "attention" and looker.model is None:
                reason = "none of the backbones is a ViT whose attention could be read"
            if reason is not None:
                skipped[str(one)] = reason
                continue
            wanted.setdefault((one.look, one.restrict, one.extract), []).append(one)
        for (look, restrict, extract), ones in wanted.items():
            blank = {
                one: Record("grid", digest, bench.name, str(one), seed, vars(one).copy(), system="grid",
                            select="worst_group", command=command, commit=made_by, supervision=USES[one.decide])
                for one in ones
            }  # fmt: skip
            there = {one: store.get(record.key) for one, record in blank.items()}
            rows += [record for record in there.values() if record is not None]
            todo = [one for one in ones if there[one] is None]
            if not todo:
                continue
            features = read_features(models[extract], looker, look, restrict, bench)
            learned: dict[str, Pooled] = {}  # a pool is trained once for all decisions on it
            for one in todo:
                record = _measure(one, features, bench, seed, blank[one], learned)
                store.add(record)
                rows.append(record)
                say(f"{one}: worst group {100 * record.metrics['worst_group']:.1f}, {record.seconds:.1f} s")
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


def _digest(bench: Benchmark, weights: dict[str, str], looker: str) -> str:
    splits = {name: split.fingerprint for name, split in bench.splits.items()}
    text = json.dumps([splits, weights, looker], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _measure(
    one: Combination, features: Features, bench: Benchmark, seed: int, record: Record, learned: dict[str, Pooled]
) -> Record:
    """Pool, decide and measure one combination."""
    began = time.perf_counter()
    seed_everything(seed)
    if one.pool not in learned:
        learned[one.pool] = _pooled(one.pool, features, bench, seed)
    vectors, own = learned[one.pool]
    head = own if own is not None and one.decide == "cross-entropy" else _decided(one, vectors, bench, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        counts = bench.train.group_counts
        reports = {
            name: group_report(head(vectors[name]), split.labels, split.attributes, counts)
            for name in ("val", "test")
            if (split := bench.get(name)) is not None
        }
    report = reports["test"]
    record.metrics = figures_of(report)
    record.score = reports["val"].value("worst_group") if "val" in reports else None
    record.supervision += "; selection: group labels (worst_group)"
    if one.look == "truth":
        record.supervision += "; masks, also at test"
    record.seconds = round(time.perf_counter() - began, 2)
    record.finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return record


def _pooled(pool: str, features: Features, bench: Benchmark, seed: int) -> Pooled:
    """One vector an image in every split; a learned pool brings the head it was trained with on target."""
    if pool == "own":
        return {name: f.vectors for name, f in features.splits.items()}, None
    if pool == "mean":
        return {name: f.mean() for name, f in features.splits.items()}, None
    target, val = features.splits["target"], features.splits.get("val")
    module: Any = LEARNED[pool](target.maps.shape[1])
    layer = nn.Linear(int(getattr(module, "out_dim", None) or target.maps.shape[1]), bench.train.num_classes)
    select = None
    if val is not None:
        select = Selection("worst_group", TensorFeed(val.maps, bench.val), bench.train.group_counts)
    settings = TrainSettings.of(epochs=40, lr=1e-3, batch_size=32, weight_decay=1e-3, seed=seed, progress=False)
    model = nn.Sequential(module, layer)
    train(model, TensorFeed(target.maps, bench.target), settings, objective=cross_entropy, select=select)
    with torch.no_grad():
        vectors = {
            name: torch.cat(
                [module(torch.from_numpy(p)) for p in np.array_split(f.maps, len(f.maps) // 256 + 1)]
            ).numpy()
            for name, f in features.splits.items()
        }

    def decide(x: NDArray[np.float32]) -> NDArray[np.int64]:
        with torch.no_grad():
            return decided(answered(layer(torch.from_numpy(x)).numpy()))

    return vectors, decide


def _decided(one: Combination, vectors: dict[str, NDArray[np.float32]], bench: Benchmark, seed: int) -> Head:
    """A linear head on fixed vectors; its strength chosen on val by worst-group accuracy."""
    classes, val = bench.train.num_classes, bench.get("val")

    def fitted(strength: float) -> Any:
        if one.decide == "dfr":
            groups = bench.target.require_groups("DFR")
            head = DFRHead(strength, refits=10, seed=seed)
            return head.fit(vectors["target"], bench.target.labels, groups, num_classes=classes)
        return LinearHead(strength).fit(vectors["train"], bench.train.labels, num_classes=classes)

    if val is None:
        return fitted(1.0).predict
    heads = [fitted(c) for c in ((1.0, 0.3, 0.1, 0.03) if one.decide == "dfr" else (1.0, 0.1, 0.01))]
    return max(heads, key=lambda h: _worst(h.predict(vectors["val"]), val)).predict


def _worst(predictions: NDArray[np.int64], split: GroupedDataset) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        return float(group_report(predictions, split.labels, split.attributes).worst_group or 0.0)
