"""From findings to the page: decides what is shown and how; the looks are in audit.html and style.css."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from foveate.report.charts import bar, heat_style
from foveate.report.groups import percent, points

if TYPE_CHECKING:
    from foveate.report.discovery import Discovery

MANY_GROUPS = 24
"""With more groups than this, the page shows the worst ones and folds the rest away."""
WORST_GROUPS = 12
MANY_CLASSES = 12
HEAT_CLASSES = 30
"""A heat map of more classes cannot be read; the most frequent mistakes are listed instead."""


def render(
    findings: dict[str, Any], pictures: list[dict[str, Any]], discoveries: Mapping[str, Discovery] | None = None
) -> str:
    """The whole page as text. Names from the data are escaped: they cannot add markup."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_keep_together, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(percent=percent, points=points)
    environment.globals.update(bar=bar, heat_style=heat_style)
    folder = files("foveate.report")
    template = environment.from_string(folder.joinpath("audit.html").read_text("utf-8"))
    return template.render(
        f=findings,
        style=Markup(folder.joinpath("style.css").read_text("utf-8")),
        several=len(findings["models"]) > 1,
        tones=tones(findings),
        summary=summary(findings),
        groups=group_rows(findings),
        grid=accuracy_grid(findings),
        confusions=confusions(findings),
        pictures=pictures,
        **_discovered(findings, discoveries or {}),
    )


def _discovered(findings: dict[str, Any], discoveries: Mapping[str, Discovery]) -> dict[str, Any]:
    """What the page says about shortcuts nobody named."""
    from foveate.report.discovery import tables

    if not discoveries:
        return {"discovered": False}
    return {
        "discovered": True,
        "experiments": tables.experiments(findings),
        "experiment_sentence": tables.experiment_sentence(findings),
        "mask_rows": tables.mask_rows(findings),
        "mask_sentences": tables.mask_sentences(findings),
        "probes": tables.probe_rows(findings),
        "slices": tables.slice_cards(findings, discoveries),
        "turned": tables.turned_pictures(findings, discoveries),
        "object_source": next(iter(discoveries.values())).base.objects.words,
    }


def _keep_together(value: Any) -> Any:
    """No line break between a number and its per cent sign."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return re.sub(r"(?<=\d) %", "\u00a0%", value) if plain else value


def tones(findings: dict[str, Any]) -> dict[str, str]:
    """A colour for every model."""
    return {model["name"]: f"m{i % 8 + 1}" for i, model in enumerate(findings["models"])}


_METRICS = (
    ("average", "Average", "all images"),
    ("majority", "Majority", "as in training"),
    ("minority", "Minority", "unlike training"),
    ("worst_group", "Worst group", "the lowest of all groups"),
    ("worst_class", "Worst class", "the lowest of all classes"),
)


def summary(findings: dict[str, Any]) -> dict[str, Any]:
    """Columns and one row per model: the value of every metric and whether it is the best of its column."""
    models = findings["models"]
    columns = [entry for entry in _METRICS if any(model[entry[0]] is not None for model in models)]
    best = {key: max(m[key] for m in models if m[key] is not None) for key, _, _ in columns}
    gaps = {m["name"]: m["verdict"]["gap"]["value"] for m in models if m["verdict"]["compared"] == "training"}
    rows = []
    for model in models:
        cells = [
            {"text": percent(model[key]), "best": model[key] is not None and model[key] == best[key]}
            for key, _, _ in columns
        ]
        gap = gaps.get(model["name"])
        rows.append(
            {
                "model": model,
                "cells": cells,
                "gap": None
                if gap is None
                else {"text": points(gap), "best": abs(gap) == min(abs(value) for value in gaps.values())},
            }
        )
    return {"columns": columns, "rows": rows, "gaps": bool(gaps)}


def group_rows(findings: dict[str, Any]) -> dict[str, Any]:
    """Every group (or class, without attributes) with one bar per model, and what to say about them.

    ``shown`` come as bars and ``folded`` as a table: all as bars up to ``MANY_GROUPS``, else the worst ones.
    """
    models = findings["models"]
    by_name: dict[str, dict[str, Any]] = {}
    for model in models:
        for row in model["groups"] or _classes_as_rows(model):
            entry = by_name.setdefault(
                row["name"],
                {**{k: row[k] for k in ("name", "label", "attribute", "n", "kind", "train_count")}, "bars": []},
            )
            entry["bars"].append({"model": model["name"], **row})
    rows = list(by_name.values())
    for entry in rows:
        entry["mean"] = statistics.fmean(b["accuracy"] for b in entry["bars"])
        entry["n"] = max(b["n"] for b in entry["bars"])
    order = {"majority": 0, "minority": 2}
    rows.sort(key=lambda e: (e["label"], order.get(e["kind"] or "", 1), e["attribute"]))
    if len(rows) <= MANY_GROUPS:
        return {"shown": rows, "folded": [], "sentence": _group_sentence(findings), "rest": None}
    worst = sorted(rows, key=lambda e: (e["mean"], -e["n"]))
    rest = worst[WORST_GROUPS:]
    values = sorted(e["mean"] for e in rest)
    text = (
        f"The {len(rest)} other groups lie between {percent(values[0])} and {percent(values[-1])}, "
        f"half of them above {percent(statistics.median(values))}"
        + (" (mean over the models)." if len(models) > 1 else ".")
    )
    return {"shown": worst[:WORST_GROUPS], "folded": rows, "sentence": _group_sentence(findings), "rest": text}


def _classes_as_rows(model: dict[str, Any]) -> list[dict[str, Any]]:
    from foveate.measure import wilson_interval

    rows = []
    for i, entry in enumerate(model["classes"]):
        correct = round(entry["accuracy"] * entry["n"])
        low, high = wilson_interval(correct, entry["n"])
        rows.append(
            {
                **entry, "label": i, "attribute": 0, "correct": correct, "low": low, "high": high,
                "kind": None, "train_count": None,
            }
        )  # fmt: skip
    return rows


def _group_sentence(findings: dict[str, Any]) -> str:
    parts = []
    models = findings["models"]
    for model in models:
        rows = model["groups"] or _classes_as_rows(model)
        low = min(rows, key=lambda row: (row["accuracy"], -row["n"]))
        high = max(rows, key=lambda row: (row["accuracy"], row["n"]))
        worst = f"{low['name']} ({percent(low['accuracy'])})"
        if len(models) > 1:
            parts.append(f"{model['name']} is right least often on {worst}")
        elif low["name"] == high["name"]:
            parts.append(f"{model['name']} is right on {percent(low['accuracy'])} of {low['name']}")
        else:
            parts.append(
                f"{model['name']} is right most often on {high['name']} ({percent(high['accuracy'])}) and least "
                f"often on {worst}"
            )
    return ", ".join(parts) + "."


def accuracy_grid(findings: dict[str, Any]) -> list[dict[str, Any]]:
    """With many groups: a class × attribute table of accuracies per model, else nothing."""
    attributes, classes = findings["dataset"]["attributes"], findings["dataset"]["classes"]
    if not attributes or max(len(attributes), len(classes)) > HEAT_CLASSES:
        return []
    if max(len(model["groups"]) for model in findings["models"]) <= MANY_GROUPS:
        return []
    out = []
    for model in findings["models"]:
        cells: dict[tuple[int, int], dict[str, Any]] = {(r["label"], r["attribute"]): r for r in model["groups"]}
        rows = [
            {"name": name, "cells": [cells.get((y, a)) for a in range(len(attributes))]}
            for y, name in enumerate(classes)
        ]
        out.append({"model": model["name"], "rows": rows})
    return out


def confusions(findings: dict[str, Any]) -> dict[str, Any]:
    """What was predicted, per group while that can be read, else per class (and per attribute, for mistakes)."""
    data, attributes = findings["dataset"], findings["dataset"]["attributes"]
    names = data["predicted_classes"]
    groups = max(len(model["groups"]) for model in findings["models"])
    by_group = bool(attributes) and groups <= MANY_GROUPS and len(names) <= MANY_CLASSES
    tables = []
    for model in findings["models"]:
        counts = model["confusion"]
        entry: dict[str, Any] = {"model": model["name"], "rows": [], "by_attribute": [], "list": []}
        summed = [[sum(per[k] for per in row) for k in range(len(names))] for row in counts]
        entry["list"] = _mistakes(summed, data["classes"], names)[:12]
        if by_group:
            entry["rows"] = [
                _row(row["name"], counts[row["label"]][row["attribute"]], row["label"], row["kind"])
                for row in sorted(model["groups"], key=lambda r: (r["label"], r["kind"] != "majority", r["attribute"]))
            ]
        elif len(names) <= HEAT_CLASSES:
            entry["rows"] = [_row(name, summed[y], y, None) for y, name in enumerate(data["classes"]) if sum(summed[y])]
            if attributes and len(attributes) <= HEAT_CLASSES:
                entry["by_attribute"] = _by_attribute(counts, attributes, names)
        tables.append(entry)
    return {"by_group": by_group, "names": names, "tables": tables, "compact": len(names) > 6}


def _row(name: str, counts: list[int], right: int, kind: str | None) -> dict[str, Any]:
    n = sum(counts)
    return {
        "name": name, "n": n, "kind": kind, "right": right,
        "cells": [{"n": count, "share": count / n if n else 0.0} for count in counts],
    }  # fmt: skip


def _by_attribute(counts: list[Any], attributes: list[str], names: list[str]) -> list[dict[str, Any]]:
    """What the mistakes on images with each attribute were: a shortcut shows as one strong cell in each row."""
    rows = []
    for a, name in enumerate(attributes):
        wrong = [sum(row[a][k] for y, row in enumerate(counts) if y != k) for k in range(len(names))]
        if sum(wrong):
            rows.append(_row(name, wrong, -1, None))
    return rows


def _mistakes(summed: list[list[int]], classes: list[str], names: list[str]) -> list[dict[str, Any]]:
    found = [
        {"label": classes[y], "prediction": names[k], "n": n}
        for y, row in enumerate(summed)
        for k, n in enumerate(row)
        if y != k and n
    ]
    return sorted(found, key=lambda entry: -entry["n"])
