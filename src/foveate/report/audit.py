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

from foveate import notebook
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError
from foveate.files import write_json, write_text
from foveate.measure import NO_ANSWER, GroupReport, SmallGroupWarning, confusion_by_group, described, group_report
from foveate.report.abilities import named_models, supervision_of
from foveate.report.advice import next_steps
from foveate.report.answers import ModelAnswers, ask_models
from foveate.report.discovery import Discovery
from foveate.report.discovery.before_after import BeforeAfter
from foveate.report.discovery.leaks import leaks
from foveate.report.examples import Example, illustrate, worst_examples
from foveate.report.findings import (
    SHORTCUT,
    DatasetRecord,
    DiscoveryRecord,
    ExampleRecord,
    Findings,
    GazeRecord,
    ModelRecord,
    TrainingRecord,
    VerdictRecord,
    WarningRecord,
)
from foveate.report.groups import judge_groups
from foveate.report.heat import HeatOnObject
from foveate.report.levels import Level
from foveate.report.sentences import example_of, first_words, listed, sections
from foveate.report.sentences.advice import Advice, advice
from foveate.report.training_counts import TrainingCounts, training_counts
from foveate.report.verdict import Verdict, join

_COLOURS = {
    Level.FOUND: "#b3321d", Level.HINT: "#a8720a", Level.UNCLEAR: "#6b6f76", Level.NONE: "#2f7d4f",
    Level.UNTESTED: "#6b6f76",
}  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """What an audit found. ``save`` writes it as one HTML file, ``to_dict`` gives it to programs.

    Attributes:
        findings: everything that is written, as types (:class:`~foveate.report.findings.Findings`).
        pictures: the example images with their overlays, as ``data:`` addresses.
        discoveries: by model, what was found without attributes.
        verdicts: by model, the verdict with its evidence.
    """

    findings: Findings
    pictures: list[Example]
    discoveries: dict[str, Discovery] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What each model leans on, in plain words: one sentence per model."""
        return self.findings.verdict

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain numbers, strings, lists and dictionaries, ready for JSON."""
        return self.findings.model_dump(mode="json")

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
        """One sentence for every figure worse than its limit, say ``{"worst_group": 0.8}``; empty when all pass.

        Metrics are those of the group report; ``shortcut`` is 1 without and 0 with a shortcut found.
        """
        said = []
        for metric, limit in limits.items():
            for entry in self.findings.models:
                value, shown = entry.figure(metric), described(metric)
                if metric == SHORTCUT and value < limit:
                    said.append(f"{entry.name}: a shortcut was found. {entry.verdict.plain}")
                elif shown.better(limit, than=value):
                    side = "over" if shown.higher_is_better is False else "under"
                    said.append(f"{entry.name}: {metric} is {shown.text(value)}, {side} {shown.text(limit)}.")
        return said

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to ``path``, whole or not at all: HTML, or the findings alone for ``*.json``."""
        if Path(path).suffix.lower() == ".json":
            return write_json(path, self.to_dict())
        return write_text(path, self.html())

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        levels = ", ".join(f"{entry.name}: {entry.verdict.level.value}" for entry in self.findings.models)
        return f"Audit({levels}; {self.findings.dataset.images} images)"

    def _repr_html_(self) -> str:
        rows = [
            [
                notebook.text(entry.name), notebook.badge(entry.verdict.level.value, _COLOURS[entry.verdict.level]),
                notebook.text(entry.verdict.plain), notebook.share_bar(entry.average),
                notebook.share_bar(entry.worst_class if entry.worst_group is None else entry.worst_group),
            ]
            for entry in self.findings.models
        ]  # fmt: skip
        worst = "worst class" if self.findings.models[0].worst_group is None else "worst group"
        steps = "".join(
            f"<li>{notebook.text(step.title)}: <code>{notebook.text(step.command)}</code></li>"
            for step in self.findings.advice[:3]
        )
        return notebook.card(
            self.findings.title,
            notebook.table(["model", "shortcut", "in plain words", "average", worst], rows),
            f"<div>What to do next:</div><ol>{steps}</ol>" if steps else "",
            "<div>The whole report: <code>audit.save('report.html')</code></div>",
        )

    def plot(self) -> Any:
        """A Matplotlib figure: how often each model is right on average and in its worst group (or class)."""
        names = [entry.name for entry in self.findings.models]
        figure = notebook.figure(6, 1 + 0.5 * len(names))
        ax, place = figure.subplots(), np.arange(len(names))
        worst = [e.worst_class if e.worst_group is None else e.worst_group for e in self.findings.models]
        ax.barh(place - 0.2, [100 * e.average for e in self.findings.models], 0.38, label="average", color="#9db8c9")
        ax.barh(place + 0.2, [100 * share for share in worst], 0.38, label="worst group", color="#c2452d")
        ax.set(yticks=place, yticklabels=names, xlim=(0, 100), xlabel="accuracy in percent")
        ax.invert_yaxis()
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        return figure


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
    minutes: float | None = None,
    progress: Callable[[str], None] | None = None,
    show_progress: bool = False,
    **options: Any,
) -> Audit:
    """Audit one model, or several side by side, on a dataset.

    With attributes, the images whose attribute is usual for their class in training are compared with the others;
    without training counts, the groups of a class with each other; without attributes, only classes. With masks or
    boxes, the heat maps are compared with where the object is.

    Args:
        models: a fitted system, or a mapping from name to system; a plain ``nn.Module`` is wrapped, with a warning
            that says what was assumed of it.
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
        minutes: after so many minutes an experiment that is still doubtful gets no further images; None for no limit.
        progress: called with a line of text as the work goes on.
        show_progress: draw a bar with the time left, on a terminal.
        options: passed on to ``predict_proba`` (``batch_size``, ``workers``, ``on_bad="skip"``).

    What was found is in ``findings``, whose types are in :mod:`foveate.report.findings`; ``to_dict`` has the same keys.
    """
    systems = named_models(models, dataset)
    if not len(dataset):
        raise DataError(f"{dataset.name} has no images to audit; give a dataset with some.")
    say = progress or (lambda line: None)
    word = attribute or "attribute"
    answers = ask_models(
        systems, dataset, discovery=discover, objects=objects, attribute=word, seed=seed, minutes=minutes, say=say,
        show_progress=show_progress, options=options,
    )  # fmt: skip
    training, notes = training_counts(systems, dataset, train_counts)
    judged = [_judged(name, system, dataset, answers, training, word) for name, system in systems.items()]
    lead = min(judged, key=lambda model: _worst(model.report)).name
    say(f"choosing {examples} examples")
    pictures = _examples(lead, systems, dataset, answers, examples)
    findings = Findings(
        title=title or f"Audit of {_called(list(systems))} on {dataset.name}",
        foveate=_version(),
        date=datetime.date.today().isoformat(),
        attribute=word,
        dataset=_facts(dataset, answers),
        training=None if training is None else TrainingRecord.model_validate(training),
        models=[_record(model, dataset, answers) for model in judged],
        verdict=" ".join(first_words(model.verdict) for model in judged),
        examples_by=lead,
        examples=[ExampleRecord.model_validate(example) for example in pictures],
        unreadable=[dataset.where(int(i)) for i in np.flatnonzero(~answers.read)],
        notes=[*notes, *_notes(judged, answers, training, word)],
        advice=_advice([model.verdict for model in judged], dataset),
        warnings=[WarningRecord.of(leak) for leak in leaks(answers.discoveries)],
    )
    return Audit(findings, pictures, answers.discoveries, {model.name: model.verdict for model in judged})


@dataclass(frozen=True)
class _Judged:
    """One model with its accuracy by group, its confusion ``[C, A, K]``, its verdict and where it looks."""

    name: str
    needs: str
    report: GroupReport
    confusion: NDArray[np.int64]
    verdict: Verdict
    heat: HeatOnObject | None
    discovery: Discovery | None

    @property
    def shown(self) -> BeforeAfter | None:
        """The exchange that shows the verdict."""
        found = self.discovery
        return None if found is None else example_of(self.verdict, found.turned, found.held)


def _judged(
    name: str, system: Any, dataset: GroupedDataset, answers: ModelAnswers, training: TrainingCounts | None, word: str
) -> _Judged:
    predictions = answers.predictions[name]
    counts = None if training is None else training.array
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # the report names the small groups itself
        report = group_report(
            predictions, dataset.labels, dataset.attributes, counts,
            class_names=dataset.class_names, attribute_names=dataset.attribute_names,
        )  # fmt: skip
    confusion = confusion_by_group(
        predictions,
        dataset.labels,
        np.zeros_like(dataset.labels) if dataset.attributes is None else dataset.attributes,
        num_classes=len(answers.classes),
        num_attributes=max(dataset.num_attributes, 1),
    )[: dataset.num_classes]
    groups = judge_groups(report, confusion, train_counts=counts, class_names=answers.classes)
    found = answers.discoveries.get(name)
    if found is None:
        verdict = join(name, groups, attribute=word)
    else:
        places = found.base.objects
        verdict = join(
            name, groups, found.judgement, attribute=word, tells=found.base.attribute_probes,
            estimated=places.words if places.estimated else None,
        )  # fmt: skip
    return _Judged(name, supervision_of(system), report, confusion, verdict, answers.heat[name], found)


def _record(model: _Judged, dataset: GroupedDataset, answers: ModelAnswers) -> ModelRecord:
    worst, silent = model.report.worst, np.flatnonzero(answers.predictions[model.name] == NO_ANSWER)
    return ModelRecord.model_validate(
        {
            **model.report.to_dict(),
            "name": model.name,
            "needs": model.needs,
            "unanswered_images": [dataset.where(int(i)) for i in silent],
            "worst": None if worst is None else worst.name,
            "confusion": model.confusion.tolist(),
            "verdict": VerdictRecord.of(model.verdict, model.shown),
            "gaze": None if model.heat is None else GazeRecord(**vars(model.heat), sentence=sections.heat(model.heat)),
            "discovery": None if model.discovery is None else DiscoveryRecord.of(model.discovery),
        }
    )


def _examples(
    lead: str, systems: Mapping[str, Any], dataset: GroupedDataset, answers: ModelAnswers, most: int
) -> list[Example]:
    """Confident mistakes of ``lead``, with what all models say about the same images."""
    groups = dataset.labels if dataset.groups is None else dataset.groups
    confidence = np.nan_to_num(answers.probabilities[lead], nan=0.0).max(axis=1)
    chosen = worst_examples(answers.predictions[lead], confidence, dataset.labels, groups, n=most)
    return illustrate(chosen, systems, dataset, answers.probabilities, answers.classes)


def _facts(dataset: GroupedDataset, answers: ModelAnswers) -> DatasetRecord:
    return DatasetRecord(
        name=dataset.name,
        images=len(dataset),
        read=int(answers.read.sum()),
        classes=list(dataset.class_names),
        predicted_classes=answers.classes,
        attributes=dataset.attribute_names if dataset.attributes is not None else None,
        object="masks" if dataset.masks is not None else "boxes" if dataset.boxes is not None else None,
    )


def _notes(judged: Sequence[_Judged], answers: ModelAnswers, training: TrainingCounts | None, word: str) -> list[str]:
    maps = [sections.empty_maps(m.name, m.heat.empty) for m in judged if m.heat is not None and m.heat.empty]
    usual_share = None if training is None else training.usual_share
    reports = {m.name: m.report for m in judged}
    return [*maps, *sections.about_the_images(reports, int((~answers.read).sum()), usual_share, word)]


def _advice(verdicts: Sequence[Verdict], dataset: GroupedDataset) -> list[Advice]:
    attributes = dataset.attributes is not None
    silent = [verdict.model for verdict in verdicts if verdict.unanswered]
    return [advice(step, attributes, silent) for step in next_steps(verdicts, attributes)]


def _called(names: list[str]) -> str:
    return listed(names) if len(names) <= 3 else f"{len(names)} models"


def _worst(report: GroupReport) -> float:
    return report.worst_class if report.worst_group is None else report.worst_group


def _version() -> str:
    try:
        return version("foveate")
    except PackageNotFoundError:
        return "unknown"
