"""The audit: does a classifier take a shortcut, where, and how sure is that? One report for one or several models."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.data.dataset import GroupedDataset
from foveate.engine.progress import Progress
from foveate.errors import DataError, suggest
from foveate.files import write_json, write_text
from foveate.measure import METRICS, GroupReport, SmallGroupWarning, confusion_by_group, group_report
from foveate.measure.groups import SMALL_GROUP
from foveate.report.advice import advice
from foveate.report.discovery import Discovery
from foveate.report.examples import illustrate, worst_examples
from foveate.report.groups import percent, verdict
from foveate.report.heat import GAZE_IMAGES, object_share
from foveate.report.verdict import join
from foveate.report.workload import discovered, looked, predicted_in_pieces, work
from foveate.systems.system import decided


@dataclass(frozen=True)
class Audit:
    """What an audit found. ``save`` writes it as one HTML file, ``to_dict`` gives it to programs.

    Attributes:
        findings: plain numbers, strings, lists and dictionaries; see :func:`audit` for the keys.
        pictures: the example images with their overlays, as ``data:`` addresses.
        discoveries: by model, what was found without attributes.
    """

    findings: dict[str, Any]
    pictures: list[dict[str, Any]]
    discoveries: dict[str, Discovery] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What each model leans on, in plain words: one sentence a model."""
        return str(self.findings["verdict"])

    def to_dict(self) -> dict[str, Any]:
        """The findings, ready for JSON."""
        return self.findings

    def html(self) -> str:
        """The report as one self-contained HTML page."""
        from foveate.report.page import render

        return render(self.findings, self.pictures, self.discoveries)

    def pseudo_groups(self, dataset: GroupedDataset | None = None, model: str | None = None) -> GroupedDataset:
        """``dataset`` (by default the audited one) with attributes made from the shortcut that was found.

        Args:
            dataset: for instance the training images, for a system that needs groups.
            model: whose shortcut, when several were audited; by default the first that has one.
        """
        chosen = [self.discoveries[model]] if model in self.discoveries else list(self.discoveries.values())
        if not chosen:
            raise DataError("no discovery was run in this audit; there is nothing to make groups from.")
        with_one = [found for found in chosen if found.judgement.shortcuts] or chosen
        return with_one[0].pseudo_groups(dataset)

    def failures(self, limits: Mapping[str, float]) -> list[str]:
        """One sentence for every figure under its limit, for instance ``{"worst_group": 0.8}``; empty when all pass.

        Metrics are those of the group report; ``shortcut`` is 1 without and 0 with a shortcut found.
        """
        said = []
        for metric, limit in limits.items():
            for entry in self.findings["models"]:
                value = _figure(entry, metric)
                if value < limit:
                    said.append(f"{entry['name']}: {metric} is {100 * value:.1f}, under {100 * limit:.1f}.")
        return said

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to ``path``, whole or not at all: HTML, or the findings alone for ``*.json``."""
        if Path(path).suffix.lower() == ".json":
            return write_json(path, self.findings)
        return write_text(path, self.html())

    def __str__(self) -> str:
        return self.verdict


def audit(
    models: Any | Mapping[str, Any],
    dataset: GroupedDataset,
    *,
    title: str | None = None,
    attribute: str | None = None,
    train_counts: ArrayLike | None = None,
    examples: int = 9,
    seed: int = 0,
    discover: bool = True,
    objects: str | None = None,
    progress: Callable[[str], None] | None = None,
    show_progress: bool = False,
    **options: Any,
) -> Audit:
    """Audit one model, or several side by side, on a dataset.

    With attributes, the images whose attribute is usual for their class in training are compared with the others;
    without training counts, the groups of a class with each other; without attributes, only classes. With masks or
    boxes, the heat maps are compared with where the object is.

    Args:
        models: a fitted system, or a mapping from name to system.
        dataset: images to audit on, not seen in training.
        title: heading of the report.
        attribute: what to call the attribute in a sentence, for instance "habitat".
        train_counts: images per training group, ``[C, A]`` or flat; default: the models' own ``train_counts_``.
            One set of counts serves all models, so that they are compared on the same groups: the most uneven.
        examples: how many confident mistakes to show, 0 for none.
        seed: picks the images for the heat-map figures.
        discover: also look for shortcuts nobody named: exchange properties between images, probe what tells the label,
            find bunches of errors (for fitted and wrapped systems; see :mod:`foveate.report.discovery`).
        objects: where objects are, for discovery: ``"masks"``, ``"boxes"``, ``"centre"``, or the name of a ViT;
            by default the best there is.
        progress: called with a line of text as the work goes on.
        show_progress: draw a bar with the time left, on a terminal.
        options: passed on to ``predict_proba`` (``batch_size``, ``workers``, ``on_bad="skip"``).

    The findings have the keys ``title, foveate, date, attribute, dataset, training, models, verdict, examples,
    unreadable, notes``; each entry of ``models`` holds the group report, ``confusion`` ``[C][A][K]``, ``verdict``,
    ``gaze`` and ``discovery`` (None where it was not run).
    """
    systems = _named(models)
    if not len(dataset):
        raise DataError(f"{dataset.name} has no images to audit; give a dataset with some.")
    say = progress or (lambda line: None)
    notes: list[str] = []
    word = attribute or "attribute"

    predicted = _predicted_classes(systems, dataset)
    with Progress("audit", work(systems, dataset, discover), show_progress) as bar:
        probabilities: dict[str, NDArray[np.float64]] = {}
        for name, system in systems.items():
            say(f"{name}: predicting {len(dataset)} images")
            bar.note(f"{name}: predicting")
            chances = predicted_in_pieces(system, dataset, bar if show_progress else None, options)
            probabilities[name] = _aligned(chances, system, dataset, predicted)
        predictions = {name: decided(values) for name, values in probabilities.items()}
        read = np.logical_and.reduce([p >= 0 for p in predictions.values()])
        found = discovered(systems, dataset, probabilities, predicted, read, discover, objects, word, seed, say, bar)
        gazes: dict[str, dict[str, Any] | None] = {}
        for name, system in systems.items():
            if dataset.masks is not None or dataset.boxes is not None:
                say(f"{name}: where it looks, on {min(GAZE_IMAGES, len(dataset))} images")
                bar.note(f"{name}: where it looks")
            gazes[name] = object_share(system, dataset, predictions[name], seed=seed, tick=looked(bar, system))

    counts, source = _training(systems, dataset, train_counts, notes)
    reports: dict[str, GroupReport] = {}
    entries: list[dict[str, Any]] = []
    for name, system in systems.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)  # the report names the small groups itself
            report = group_report(
                predictions[name], dataset.labels, dataset.attributes, counts,
                class_names=dataset.class_names, attribute_names=dataset.attribute_names,
            )  # fmt: skip
        reports[name] = report
        confusion = confusion_by_group(
            predictions[name],
            dataset.labels,
            np.zeros_like(dataset.labels) if dataset.attributes is None else dataset.attributes,
            num_classes=len(predicted),
            num_attributes=max(dataset.num_attributes, 1),
        )[: dataset.num_classes]
        judged = verdict(name, report, confusion, train_counts=counts, class_names=predicted, attribute=word)
        if name in found:
            base = found[name].base
            judged = join(
                name, judged, found[name].judgement, attribute=word, tells=base.attribute_probes,
                estimated=base.objects.words if base.objects.estimated else None,
            )  # fmt: skip
        gaze = gazes[name]
        if gaze is not None and gaze["empty"]:
            notes.append(f"{name}: {gaze['empty']} heat maps were empty and are not counted.")
        entries.append(
            {
                "name": name,
                "needs": _supervision(system),
                **report.to_dict(),
                "worst": None if report.worst is None else report.worst.name,
                "confusion": confusion.tolist(),
                "verdict": judged.to_dict(),
                "gaze": gaze,
                "discovery": found[name].to_dict() if name in found else None,
            }
        )

    lead = min(reports, key=lambda name: _worst(reports[name]))
    say(f"choosing {examples} examples")
    groups = dataset.labels if dataset.groups is None else dataset.groups
    confidence = np.nan_to_num(probabilities[lead], nan=0.0).max(axis=1)
    chosen = worst_examples(predictions[lead], confidence, dataset.labels, groups, n=examples)
    pictures = illustrate(chosen, systems, dataset, probabilities, predicted)

    findings: dict[str, Any] = {
        "title": title or f"Audit of {_listed(list(systems))} on {dataset.name}",
        "foveate": _version(),
        "date": datetime.date.today().isoformat(),
        "attribute": word,
        "dataset": {
            "name": dataset.name,
            "images": len(dataset),
            "read": int(read.sum()),
            "classes": list(dataset.class_names),
            "predicted_classes": predicted,
            "attributes": dataset.attribute_names if dataset.attributes is not None else None,
            "object": "masks" if dataset.masks is not None else "boxes" if dataset.boxes is not None else None,
        },
        "training": None
        if counts is None
        else {"counts": counts.tolist(), "source": source, "usual_share": _usual_share(counts)},
        "models": entries,
        "verdict": " ".join(entry["verdict"]["sentences"][0] for entry in entries),
        "examples_by": lead,
        "examples": [_without_pictures(entry) for entry in pictures],
        "unreadable": [dataset.where(int(i)) for i in np.flatnonzero(~read)],
        "notes": [*notes, *_notes(dataset, reports, counts, read, word)],
    }
    findings["advice"] = advice(findings)
    return Audit(findings, pictures, found)


def _figure(entry: dict[str, Any], metric: str) -> float:
    if metric == "shortcut":
        return 0.0 if entry["verdict"]["level"] == "found" else 1.0
    if metric not in METRICS:
        known = ("shortcut", *METRICS)
        raise DataError(f"unknown metric '{metric}'.{suggest(metric, known)} Known: {', '.join(known)}.")
    if entry[metric] is None:
        raise DataError(f"{entry['name']}: '{metric}' cannot be had from these images; it needs attributes (groups).")
    return float(entry[metric])


# -- models and their classes ---------------------------------------------------------------------


def _named(models: Any | Mapping[str, Any]) -> dict[str, Any]:
    systems = {str(k): v for k, v in models.items()} if isinstance(models, Mapping) else {type(models).__name__: models}
    if not systems:
        raise DataError("no models to audit; give a fitted system, or a mapping from name to system.")
    for name, system in systems.items():
        if not hasattr(system, "predict_proba"):
            raise DataError(f"'{name}' is a {type(system).__name__}, which has no predict_proba; give a fitted system.")
    return systems


def _supervision(system: Any) -> str:
    """What labels the system consumed, in words."""
    stated = getattr(system, "supervision", None)
    return str(stated() if callable(stated) else getattr(system, "needs", "")) or "not stated"


def _classes_of(system: Any, dataset: GroupedDataset) -> list[str]:
    names = getattr(system, "class_names_", None)
    return list(dataset.class_names) if names is None else [str(name) for name in names]


def _predicted_classes(systems: Mapping[str, Any], dataset: GroupedDataset) -> list[str]:
    """The classes of the dataset first, then those that only models know."""
    names = list(dataset.class_names)
    for model, system in systems.items():
        known = _classes_of(system, dataset)
        missing = [name for name in dataset.class_names if name not in known]
        if missing:
            raise DataError(
                f"'{model}' does not know the class{'es' if len(missing) > 1 else ''} {', '.join(missing)} of "
                f"{dataset.name}; it was trained on {', '.join(known)}. Audit it on images of classes it knows."
            )
        names += [name for name in known if name not in names]
    return names


def _aligned(values: ArrayLike, system: Any, dataset: GroupedDataset, predicted: Sequence[str]) -> NDArray[np.float64]:
    """Probabilities with one column for every predicted class, in that order: ``[N, K]``."""
    given = np.asarray(values, dtype=np.float64)
    known = _classes_of(system, dataset)
    if given.shape != (len(dataset), len(known)):
        raise DataError(
            f"predict_proba gave {given.shape} for {len(dataset)} images and {len(known)} classes; "
            f"expected {(len(dataset), len(known))}."
        )
    out = np.zeros((len(dataset), len(predicted)))
    out[:, [predicted.index(name) for name in known]] = given
    out[np.isnan(given).any(axis=1)] = np.nan
    return out


def _training(
    systems: Mapping[str, Any], dataset: GroupedDataset, given: ArrayLike | None, notes: list[str]
) -> tuple[NDArray[np.int64] | None, str | None]:
    """The training counts ``[C, A]`` to compare by, and whose they are."""
    if dataset.attributes is None:
        return None, None
    shape = (dataset.num_classes, dataset.num_attributes)
    if given is not None:
        counts = np.asarray(given, dtype=np.int64)
        if counts.size != shape[0] * shape[1]:
            raise DataError(f"train_counts has shape {counts.shape}; expected {shape}, one count for every group.")
        return counts.reshape(shape), "given"
    found: dict[str, NDArray[np.int64]] = {}
    for name, system in systems.items():
        raw = getattr(system, "train_counts_", None)
        if raw is None:
            continue
        known = _classes_of(system, dataset)
        values = list(getattr(system, "attribute_names_", None) or dataset.attribute_names or [])
        counts = np.asarray(raw, dtype=np.int64).ravel()
        if counts.size != len(known) * len(values) or set(values) != set(dataset.attribute_names or []):
            notes.append(f"The training counts of {name} belong to other groups than this dataset's and were not used.")
            continue
        rows = [known.index(name) for name in dataset.class_names]
        columns = [values.index(value) for value in dataset.attribute_names or []]
        found[name] = counts.reshape(len(known), len(values))[np.ix_(rows, columns)]
    if not found:
        return None, None
    source = max(found, key=lambda name: _usual_share(found[name]))
    return found[source], source


def _usual_share(counts: NDArray[np.int64]) -> float:
    """How much of a class its most frequent attribute makes up in training, averaged over images."""
    return float(counts.max(axis=1).sum() / max(int(counts.sum()), 1))


# -- small things ---------------------------------------------------------------------------------


def _worst(report: GroupReport) -> float:
    return report.worst_class if report.worst_group is None else report.worst_group


def _without_pictures(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in entry.items() if key not in ("picture", "answers")}
    kept["answers"] = [
        {k: v for k, v in answer.items() if k not in ("overlay", "views")} for answer in entry["answers"]
    ]
    return kept


def _notes(
    dataset: GroupedDataset,
    reports: Mapping[str, GroupReport],
    counts: NDArray[np.int64] | None,
    read: NDArray[np.bool_],
    word: str,
) -> list[str]:
    notes: list[str] = []
    first = next(iter(reports.values()))
    small = [row for row in first.groups if row.n < SMALL_GROUP]
    if small:
        named = ", ".join(f"{row.name} ({row.n})" for row in small[:8]) + (" …" if len(small) > 8 else "")
        notes.append(
            f"{len(small)} of {len(first.groups)} groups have fewer than {SMALL_GROUP} images, so their accuracies "
            f"are very uncertain: {named}."
        )
    if first.empty:
        named = ", ".join(first.empty[:8]) + (" …" if len(first.empty) > 8 else "")
        notes.append(f"{len(first.empty)} groups have no image in this dataset: {named}.")
    if not read.all():
        notes.append(f"{int((~read).sum())} of {len(read)} images could not be read and are not counted.")
    if counts is not None and first.minority is None:
        notes.append(
            f"In training the {word} is spread evenly over each class (its most frequent value makes up "
            f"{percent(_usual_share(counts))}), so there is no majority and no minority."
        )
    return notes


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _version() -> str:
    try:
        return version("foveate")
    except PackageNotFoundError:
        return "unknown"
