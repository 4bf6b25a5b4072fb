"""What to do: which system fits what the user has, with the command to copy."""

from __future__ import annotations

from typing import Any

from foveate.report.groups import HARDLY


def advice(findings: dict[str, Any]) -> list[dict[str, str]]:
    """Steps in the order to try them: ``{title, when, command}``; one that says "keep it" when nothing was found.

    >>> advice({"models": [{"verdict": {"level": "none"}}], "dataset": {"attributes": None}})[0]["title"]
    'Keep it, and audit again when the data change'
    """
    levels = {model["verdict"]["level"] for model in findings["models"]}
    again = {
        "title": "Keep it, and audit again when the data change",
        "when": "No shortcut was found. New cameras or places bring new ones; a limit makes the audit a test.",
        "command": "foveate audit MODEL --data DATA --fail-under worst_class=0.8",
    }
    if not levels & {"found", "hint"}:
        if any(s.startswith(HARDLY) for model in findings["models"] for s in model["verdict"].get("sentences", [])):
            weak = {
                "title": "Train it further, or check the labels",
                "when": "It hardly beats guessing, and a model that has learned nothing has no shortcut to show. Are "
                "the class names in the order of its outputs, and the images prepared as in training?",
                "command": "foveate audit MODEL --data DATA --classes FIRST,SECOND --out audit.html",
            }
            return [weak]
        unclear = {
            "title": "Audit more images",
            "when": "Too few images to tell. A few hundred for each class are enough for most tests.",
            "command": "foveate audit MODEL --data MORE_DATA --out audit.html",
        }
        return [unclear, again] if "unclear" in levels else [again]
    groups = bool(findings["dataset"]["attributes"])
    steps = [
        {
            "title": "DAR: keep the network, learn where to look",
            "when": "You have the trained network (a foveate model) and a few images in which class and shortcut do "
            "not go together. The quickest mend; the network itself stays as it is.",
            "command": "foveate fit DATA --system DAR --base MODEL --out mended"
            + ("" if groups else "   # DATA: the groups file below"),
        },
        {
            "title": "A²: crop to what matters before looking",
            "when": "You have no group labels and the shortcut lies beside the object.",
            "command": "foveate fit DATA --system A2 --out mended",
        },
        {
            "title": "iFAM: a model that can prove where it looked",
            "when": "The model must be auditable: what its mask leaves out cannot reach the answer at all.",
            "command": "foveate fit DATA --system IFAM --out mended && foveate verify mended DATA",
        },
        {
            "title": "A²-ZS: class names instead of training",
            "when": "You have a CLIP model and no training images.",
            "command": "foveate fit DATA --system A2ZeroShot --out mended",
        },
    ]
    if not groups:
        pseudo = {
            "title": "Make groups from what was found",
            "when": "No attributes were given; the audit can write the class each image's shortcut speaks for, so that "
            "group metrics and group-aware systems (DAR, DFR, GroupDRO) can be used.",
            "command": "foveate audit MODEL --data DATA --groups-out groups.csv",
        }
        steps.insert(0, pseudo)
    steps.append(
        {
            "title": "Then audit again, both models side by side",
            "when": "Fixing one shortcut often feeds another; the same tests look for that.",
            "command": "foveate audit MODEL mended --data DATA --out audit.html",
        }
    )
    return steps
