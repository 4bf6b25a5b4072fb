"""Pictures that prove what an experiment says: an image, the same image edited, and where the model looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.measure import name_of
from foveate.report.abilities import gaze_at
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.inquiry import Inquiry
from foveate.report.discovery.judgement import Judgement
from foveate.report.examples import LEAD_SIDE, looked_at, overlay


@dataclass(frozen=True)
class BeforeAfter:
    """An image before and after an experiment, and what the model says to both.

    Attributes:
        cue: what was exchanged.
        image, donor, edited: pixels ``uint8 [3, H, W]``.
        position, donor_position: of image and donor in the dataset.
        label, donor_label: their classes; ``donor_attribute`` is the donor's attribute, None without attributes.
        before, answer: what the model says to the image as it is, and to the edited one.
        looked: where it looked in the edited one, drawn over it, ``uint8 [h, w, 3]``; None for all but the first.
    """

    cue: Cue
    image: Tensor
    donor: Tensor
    edited: Tensor
    position: int
    donor_position: int
    label: str
    donor_label: str
    donor_attribute: str | None
    before: str
    answer: str
    looked: NDArray[np.uint8] | None = None


def before_and_after(
    system: System,
    data: GroupedDataset,
    asked: Inquiry,
    judgement: Judgement,
    names: Sequence[str],
    most: int = 4,
) -> tuple[list[BeforeAfter], list[BeforeAfter]]:
    """The clearest answers that turned with the leading suspect; where there is none, one that held."""
    leading = next((s.pull for s in judgement.accused if s.pull is not None), None)
    if leading is not None:
        return _pictured(system, data, asked, leading.cue, leading.examples, names, most), []
    if not judgement.pulls:
        return [], []
    _, widest = max(judgement.pulls, key=lambda entry: (entry[0].cue.needs_objects, entry[1].value))
    return [], _pictured(system, data, asked, widest.cue, widest.held, names, most=1)


def _pictured(
    system: System,
    data: GroupedDataset,
    asked: Inquiry,
    cue: Cue,
    found: Sequence[tuple[int, int, int]],
    names: Sequence[str],
    most: int = 4,
) -> list[BeforeAfter]:
    sheet = asked.sheet

    def clear(entry: tuple[int, int, int]) -> tuple[bool, bool, float]:
        """A donor that is what it was taken for, with another attribute; an image named rightly and surely before, or,
        where the answer held, one that was changed a lot."""
        i, j, k = entry
        alike = (
            data.attributes is not None and data.attributes[sheet.positions[i]] == data.attributes[sheet.positions[j]]
        )
        if k == sheet.labels[i]:
            best = float((sheet.images[i].float() - sheet.images[j].float()).abs().mean())
        else:
            best = float(sheet.confidence[i] * (sheet.predictions[i] == sheet.labels[i]))
        return bool(sheet.predictions[j] != sheet.labels[j]), bool(alike), -best

    chosen = sorted(found, key=clear)[:most]
    if not chosen:
        return []
    edited = asked.shown(cue, [e[0] for e in chosen], [e[1] for e in chosen])
    gazes = gaze_at(system, [edited[0]])
    looked = None if gazes is None else overlay(gazes[0], looked_at(system, gazes[0], edited[0]), LEAD_SIDE)
    out = []
    for place, (i, j, k) in enumerate(chosen):
        given = None if data.attributes is None else int(data.attributes[sheet.positions[j]])
        out.append(
            BeforeAfter(
                cue, sheet.images[i], sheet.images[j], edited[place], int(sheet.positions[i]), int(sheet.positions[j]),
                data.class_names[sheet.labels[i]], data.class_names[sheet.labels[j]],
                None if given is None else (data.attribute_names or [])[given],
                name_of(int(sheet.predictions[i]), list(names)), names[k], looked if place == 0 else None,
            )
        )  # fmt: skip
    return out
