"""The words a verdict is made of, as types: how sure it is, what it rests on, and how its two witnesses stand."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A name from a fixed list; in the JSON it is the plain word."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)


class Level(Word):
    """How much may be said against a model, most first.

    >>> Level.FOUND == "found", Level.HINT.accuses, sorted([Level.NONE, Level.FOUND], key=lambda level: level.rank)[0]
    (True, True, <Level.FOUND: 'found'>)
    """

    FOUND = "found"
    """A shortcut, by the thresholds of :mod:`foveate.report.gaps`."""
    HINT = "hint"
    """Something real but small, or a lead that no experiment can follow."""
    UNCLEAR = "unclear"
    """Cannot tell: too few images."""
    NONE = "none"
    """Looked for, and not there."""
    UNTESTED = "untested"
    """Not looked for: nothing to compare, or no experiment possible."""

    @property
    def accuses(self) -> bool:
        """Whether it speaks against the model at all."""
        return self in (Level.FOUND, Level.HINT)

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Level).index(self)


class Evidence(Word):
    """What a verdict rests on."""

    TRAINING = "training"
    """Groups that training showed often against groups it showed rarely."""
    SPREAD = "spread"
    """Groups of one class against each other."""
    CLASSES = "classes"
    """Classes alone: no attributes to compare by."""
    EXPERIMENT = "experiment"
    """Properties exchanged between images."""


class Agreement(Word):
    """How groups and experiments stand to each other."""

    GROUPS = "groups"
    """Only the groups spoke."""
    EXPERIMENTS = "experiments"
    """Only the experiments spoke."""
    AGREE = "agree"
    DIFFER = "differ"
    """They contradict each other about one thing; a sentence says why they can."""
    APART = "apart"
    """They speak of different properties."""
    OPEN = "open"
    """One of them cannot tell."""
