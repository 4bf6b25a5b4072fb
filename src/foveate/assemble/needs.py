"""What supervision a system consumed, in words that every table prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """Which labels each step of a system consumes; every table prints it.

    >>> print(Needs(train="labels", target="labels, groups"))
    train: labels; target: labels, groups
    """

    train: str = "labels"
    target: str = ""
    select: str = ""

    def __str__(self) -> str:
        steps = {"train": self.train, "target": self.target, "selection": self.select}
        return "; ".join(f"{step}: {what}" for step, what in steps.items() if what)


NO_LABELS = Needs(train="none (class names only)")
