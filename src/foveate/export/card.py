"""The model card: what a fitted system is, which labels it consumed, how each group fares, and its limits."""

from __future__ import annotations

import warnings
from typing import Any

from foveate.assemble.capabilities import TakesMask
from foveate.assemble.parted import Parted
from foveate.assemble.system import System
from foveate.assess import evaluate
from foveate.data.dataset import GroupedDataset
from foveate.measure import GroupReport
from foveate.measure.groups import SMALL_GROUP, SmallGroupWarning


def model_card(
    system: System,
    data: GroupedDataset | None = None,
    *,
    exported: dict[str, Any] | None = None,
    on_bad: str = "raise",
) -> str:
    """A model card in Markdown.

    Args:
        system: fitted.
        data: what to measure it on; without it the card says that nothing was measured.
        exported: the description of an export, for its files and its parity check.
        on_bad: what an unreadable image does, ``"raise"`` or ``"skip"``.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> print(model_card(base, data.test))
    # Model card: ERM, cat or duck
    ...
    ## Accuracy by group
    ...
    """
    system._require_fit()
    report = None
    if data is not None:
        with warnings.catch_warnings():  # the card says it in words
            warnings.simplefilter("ignore", SmallGroupWarning)
            report = evaluate(system, data, on_bad=on_bad)
    sections = [
        _title(system),
        _facts(system),
        _groups(system, report, data),
        _labels(system),
        _interventions(system),
        _limits(system, report, data),
    ]
    if exported is not None:
        sections.append(_files(exported))
    return "\n\n".join(sections) + "\n"


def intervention_of(system: System) -> dict[str, Any] | None:
    """Parts and tokens a user has removed from ``system``, as JSON values; None when nothing was."""
    if not isinstance(system, Parted):
        return None
    dropped, limits = [int(p) for p in system.dropped_parts_ or ()], system.token_thresholds_
    if not dropped and limits is None:
        return None
    return {"dropped_parts": dropped, "token_thresholds": None if limits is None else limits.to_dict()}


def _title(system: System) -> str:
    names = system.class_names_
    told = " or ".join(names) if len(names) < 4 else f"{len(names)} classes"
    first = (type(system).__doc__ or "").strip().splitlines()[0]
    return f"# Model card: {type(system).__name__}, {_cell(told)}\n\n{first}"


def _facts(system: System) -> str:
    from foveate import __version__

    tensors = system._tensors().values()
    count = sum(t.numel() for t in tensors)
    view = system.preprocess_
    rows = {
        "system": f"`{system!r}`",
        "classes": ", ".join(system.class_names_),
        "size": f"{count / 1e6:.2f} million numbers",
        "reads": f"RGB, {view.size[0]}×{view.size[1]} px ({view.fit}), mean {_numbers(view.mean)}, "
        f"std {_numbers(view.std)} of values in [0, 1]",
        "made with": f"foveate {__version__}",
    }
    lines = [f"| {k} | {_cell(v)} |" for k, v in rows.items()]
    return "## What it is\n\n| | |\n|---|---|\n" + "\n".join(lines)


def _labels(system: System) -> str:
    text = f"Labels consumed, step by step: {system.supervision()}."
    names, counts = system.attribute_names_, system.train_counts_
    if names is None or counts is None:
        return f"## Supervision\n\n{text} The training data had no attributes, so groups were unknown to it."
    groups = [f"{c}/{a}" for c in system.class_names_ for a in names]
    if len(groups) != len(counts.reshape(-1)):  # it learned the attribute instead of the label
        return f"## Supervision\n\n{text}"
    told = ", ".join(f"{_cell(g)} {int(n):,}" for g, n in zip(groups, counts.reshape(-1), strict=True))
    return f"## Supervision\n\n{text} Training images by group: {told}."


def _groups(system: System, report: GroupReport | None, data: GroupedDataset | None) -> str:
    if report is None or data is None:
        return (
            "## Accuracy by group\n\nNot measured. `foveate card MODEL DATA` measures it; until then nothing is known "
            "about how the model fares in any group."
        )
    head = f"Measured on {_cell(data.name)}, {report.n:,} images: average {_percent(report.average)}"
    remarks = "".join(f" {_cell(remark[0].upper() + remark[1:])}" for remark in report.remarks())
    if report.worst is None:
        lines = [f"| {_cell(name)} | {n:,} | {_percent(a)} |" for name, n, a in report.classes]
        table = "| class | images | accuracy |\n|---|---:|---:|\n" + "\n".join(lines)
        why = "The data have no attributes, so there are no groups and a shortcut cannot show here."
        return f"## Accuracy by group\n\n{head}, worst class {_percent(report.worst_class)}.{remarks} {why}\n\n{table}"
    rows = sorted(report.groups, key=lambda row: (row.accuracy, -row.n))
    lines = [
        f"| {_cell(row.name)} | {row.n:,} | {_percent(row.accuracy)} | {_percent(row.low)} to {_percent(row.high)} | "
        f"{'–' if row.train_count is None else f'{row.train_count:,}'} | {row.kind or ''} |"
        for row in rows
    ]
    table = "| group | images | accuracy | 95 % interval | in training | |\n|---|---:|---:|---|---:|---|\n"
    worst = f"worst group {_percent(report.worst_group)} ({_cell(report.worst.name)})"
    return f"## Accuracy by group\n\n{head}, {worst}.{remarks}\n\n{table}" + "\n".join(lines)


def _interventions(system: System) -> str:
    done = intervention_of(system)
    if done is None:
        return "## Interventions\n\nNone: the model predicts as it was trained."
    told = []
    if done["dropped_parts"]:
        parts = ", ".join(str(p) for p in done["dropped_parts"])
        told.append(f"Parts removed by hand: {parts}. The model does not see the places assigned to them.")
    if done["token_thresholds"] is not None:
        limits = done["token_thresholds"]
        told.append(
            f"Tokens farther from their part's prototype than {_percent(limits['q'])} of the training tokens are "
            f"hidden (by {limits['measure']})."
        )
    return "## Interventions\n\n" + " ".join(told)


def _limits(system: System, report: GroupReport | None, data: GroupedDataset | None) -> str:
    told = [
        "It knows the classes above and no others: any image gets one of them, also one that shows none.",
        "Probabilities are not calibrated.",
    ]
    if report is not None and report.groups and data is not None:
        named = ", ".join(data.attribute_names or [])
        told.append(f"Only one attribute was looked at ({_cell(named)}). Others may be there: `foveate audit`.")
        small = [row.name for row in report.groups if row.n < SMALL_GROUP]
        if small:
            told.append(
                f"Fewer than {SMALL_GROUP} images stand behind {', '.join(map(_cell, small))}; "
                "their figures say little."
            )
        unseen = [row.name for row in report.groups if row.train_count == 0]
        if unseen:
            told.append(f"Never seen in training: {', '.join(map(_cell, unseen))}.")
        if report.empty:
            told.append(f"No test image, so nothing is known: {', '.join(map(_cell, report.empty))}.")
        gap = report.average - (report.worst_group or 0.0)
        if gap > 0.1:
            told.append(
                f"The worst group lies {100 * gap:.0f} points below the average: do not use the model where that "
                "group matters before this is mended."
            )
    if isinstance(system, TakesMask):
        told.append(
            "What lies outside the mask cannot change the prediction once the mask is fixed; the mask itself is made "
            "from the whole image."
        )
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in told)


def _files(exported: dict[str, Any]) -> str:
    parity = exported.get("parity")
    names = ", ".join(f"`{g['file']}`" for g in exported["graphs"])
    told = f"Written as {exported['written_as']}: {names}; classes and preprocessing in `foveate-export.json`."
    if parity is not None:
        told += (
            f" Compared with the model on {parity['images']} images: largest logit difference "
            f"{parity['largest']:.1e}, {100 * parity['same']:.0f} % the same class."
        )
    trust = "" if exported["written_as"] == "onnx" else ", trust=True"
    lines = (
        "import foveate as fv",
        "",
        f'run = fv.export.Runner("FOLDER"{trust})',
        'print(run.predict(["image.jpg"]))',
    )
    use = "\n".join(["```python", *lines, "```"])
    return f"## Files\n\n{told}\n\n{use}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{v:.3f}" for v in values) + ")"


def _cell(text: str) -> str:
    """Names come from data: they must not break the table or pass for markup."""
    for mark in ("\\", "|", "<", "*", "_", "[") if not text.startswith("`") else ("|",):
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())
