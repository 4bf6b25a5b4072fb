"""What the page shows of a discovery: rows for its bars and tables, and small pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from foveate.errors import UnreadableImage
from foveate.report.discovery.discover import Discovery
from foveate.report.examples import data_uri, thumbnail
from foveate.report.groups import percent

SLICE_PICTURES = 6
MOST_PROBES = 14
_TESTS = (
    ("plain", "the images as they are"), ("object_only", "objects alone, on one colour"),
    ("same_background", "on backgrounds of the same class"), ("random_background", "on backgrounds of any class"),
    ("background_only", "backgrounds alone, the object painted over"),
)  # fmt: skip


def experiments(findings: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a property that was exchanged, one bar a model; strongest first."""
    rows: dict[str, dict[str, Any]] = {}
    for model in _with(findings):
        for suspect in model["discovery"]["suspects"]:
            if suspect["pull"] is not None:
                row = rows.setdefault(suspect["key"], {"name": suspect["name"], "bars": [], "most": 0.0})
                part = suspect["explained_by"] is not None
                tag = f"part of the {suspect['explained_by']}" if part else suspect["level"]
                row["bars"].append(
                    {
                        "model": model["name"],
                        "tag": tag if suspect["level"] in ("found", "hint") else "",
                        **suspect["pull"],
                    }
                )
                row["most"] = max(row["most"], suspect["pull"]["value"] * (0.5 if part else 1.0))
    return sorted(rows.values(), key=lambda row: -row["most"])


def experiment_sentence(findings: dict[str, Any]) -> str:
    """The strongest pull of every model, in one sentence."""
    parts = []
    for model in _with(findings):
        tested = [s for s in model["discovery"]["suspects"] if s["pull"] is not None]
        if tested:
            top = max(tested, key=lambda s: (s["explained_by"] is None, s["pull"]["value"]))
            parts.append(
                f"{model['name']} follows {top['name']} most: {max(0, round(100 * top['pull']['value']))} of 100 "
                f"answers turn with it (95 % interval {max(0, round(100 * top['pull']['low']))} to "
                f"{max(0, round(100 * top['pull']['high']))})"
            )
    return "; ".join(parts) + "." if parts else ""


def mask_rows(findings: dict[str, Any]) -> list[dict[str, Any]]:
    """Accuracy with objects and backgrounds taken apart, one row a test, one bar a model; with a sentence each."""
    models = [m for m in _with(findings) if m["discovery"]["mask_tests"]]
    return [
        {
            "name": name,
            "bars": [{"model": m["name"], "value": m["discovery"]["mask_tests"][key]} for m in models],
        }
        for key, name in _TESTS
        if models
    ]


def mask_sentences(findings: dict[str, Any]) -> list[str]:
    """What the mask tests say about every model."""
    out = []
    for model in _with(findings):
        t = model["discovery"]["mask_tests"]
        if t is None:
            continue
        lost = round(100 * t["bg_gap"])
        cost = f"{lost} point{'' if lost == 1 else 's'} lower than" if lost > 0 else "no lower than"
        out.append(
            f"{model['name']} is right on {percent(t['object_only'])} of the objects alone and on "
            f"{percent(t['background_only'])} of the backgrounds alone; accuracy on any background is {cost} on "
            f"backgrounds of other images of the class (BG-GAP). When objects and backgrounds are "
            f"exchanged, {percent(t['cep'])} of the change in its output comes from the object (CEP; 100 % would be an "
            f"object-only model). {t['images']} images."
        )
    return out


def probe_rows(findings: dict[str, Any]) -> dict[str, Any]:
    """What each property tells about the label (the data), and about each model's answers and errors."""
    models = _with(findings)
    rows: dict[str, dict[str, Any]] = {}
    for model in models:
        found = model["discovery"]
        errors = {probe["key"]: probe for probe in found["errors"]}
        for s in found["suspects"]:
            row = rows.setdefault(s["key"], {"name": s["name"], "label": s["label"], "models": []})
            row["models"].append({"model": model["name"], "answers": s["answers"], "errors": errors.get(s["key"])})
    kept = [row for row in rows.values() if row["label"] is not None]
    kept.sort(key=lambda row: -(row["label"]["score"] - row["label"]["chance"]))
    return {"rows": kept[:MOST_PROBES], "hidden": max(0, len(kept) - MOST_PROBES), "sentence": _probe_sentence(kept)}


def _probe_sentence(rows: list[dict[str, Any]]) -> str:
    telling = [row for row in rows if row["label"]["tells"]]
    if not telling:
        return "None of the properties tells the class in these images, so the images themselves reward no shortcut."
    best = telling[0]
    others = f"; {len(telling) - 1} more tell something" if len(telling) > 1 else ""
    return (
        f"{best['name'][0].upper()}{best['name'][1:]} alone tells the class of {percent(best['label']['score'])} of "
        f"the images (guessing: {percent(best['label']['chance'])}){others}. That is what the images offer; whether a "
        "model takes the offer, the experiments above say."
    )


def slice_cards(findings: dict[str, Any], discoveries: Mapping[str, Discovery]) -> list[dict[str, Any]]:
    """The error slices of every model with some of their images."""
    cards = []
    for model in _with(findings):
        base = discoveries[model["name"]].base.dataset
        for number, s in enumerate(model["discovery"]["slices"], start=1):
            pictures: list[str] = []
            for i in s["positions"][: 3 * SLICE_PICTURES]:
                if len(pictures) == SLICE_PICTURES:
                    break
                try:
                    pictures.append(_picture(base[i].image, 120))
                except UnreadableImage:
                    continue
            unlike = f" They are {' and '.join(s['unlike'])} than the rest of their class." if s["unlike"] else ""
            taken = f", most often taken for {s['mistaken_for']}" if s["mistaken_for"] else ""
            cards.append(
                {
                    "model": model["name"],
                    "number": number,
                    "pictures": pictures,
                    "name": s["name"],
                    "sentence": f"{s['n']} similar images of {s['name']}: {percent(s['accuracy'])} right{taken}; the "
                    f"average is {percent(s['average'])} (p = {s['adjusted']:.2g} after correction).{unlike}",
                }
            )
    return cards


def turned_pictures(findings: dict[str, Any], discoveries: Mapping[str, Discovery]) -> list[dict[str, Any]]:
    """Images whose answer turned in the strongest experiment: before, donor, after."""
    out = []
    for model in _with(findings):
        found = discoveries[model["name"]]
        names = [s.name for s in found.judgement.suspects if s.level in ("found", "hint") and s.pull is not None]
        shots = [
            {"before": _picture(image), "donor": _picture(donor), "after": _picture(edited), "answer": answer}
            for image, donor, edited, answer in found.turned
        ]
        if shots:
            out.append({"model": model["name"], "what": names[0], "shots": shots})
    return out


def _picture(image: Tensor, side: int = 150) -> str:
    return data_uri(thumbnail(np.ascontiguousarray(image.permute(1, 2, 0).numpy()), side))


def _with(findings: dict[str, Any]) -> list[dict[str, Any]]:
    return [model for model in findings["models"] if model.get("discovery")]
