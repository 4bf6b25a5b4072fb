"""What the images give away: cues that alone tell the class, whatever a model makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foveate.report.discovery.cues import Cue
from foveate.report.discovery.discover import Discovery
from foveate.report.discovery.judgement import Suspect
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.levels import Level

MOST_LEAKS = 3


@dataclass(frozen=True)
class Leak:
    """A cue that tells the class by itself: a warning about the data.

    Attributes:
        probe: how well it tells the class.
        levels: what may be said about each model and this cue, by model.
    """

    cue: Cue
    probe: PropertyProbe
    levels: Mapping[str, Level]


def leaks(discoveries: Mapping[str, Discovery]) -> list[Leak]:
    """The cues that tell the class almost always, strongest first; a part of one that does is left out, and what may
    rightly tell it, as the colour of a fox."""
    found: dict[str, list[tuple[str, Suspect]]] = {}
    for model, discovery in discoveries.items():
        for s in discovery.judgement.suspects:
            if s.label is not None and s.label.strong and not s.cue.within_class:
                found.setdefault(s.key, []).append((model, s))
    out = []
    for about in found.values():
        first = about[0][1]
        if first.label is not None and (first.cue.part_of or "") not in found:
            out.append(Leak(first.cue, first.label, {model: s.level for model, s in about}))
    return sorted(out, key=lambda leak: -leak.probe.strength)[:MOST_LEAKS]
