"""What a cure is made of, as types: where a balanced set comes from, what is done with it, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Supply(str, Enum):
    """Where a set comes from in which the cue tells the class no more."""

    TARGET = "target"
    GROUPS = "groups"
    EXCHANGE = "exchange"
    PSEUDO = "pseudo-groups"

    @property
    def words(self) -> str:
        """In a sentence, after "on"."""
        return _ORIGINS[self]

    @property
    def labels(self) -> str:
        """Which labels it uses, for the supervision line."""
        return _LABELS[self]


class Means(str, Enum):
    """What is done with the set."""

    DFR = "DFR"
    DAR = "DAR"
    TUNE = "fine-tuning"
    CROP = "input restriction"

    @property
    def words(self) -> str:
        """What it does to the model."""
        return _MEANS[self]


_ORIGINS = {
    Supply.TARGET: "the target split",
    Supply.GROUPS: "group-balanced images",
    Supply.EXCHANGE: "exchanged images",
    Supply.PSEUDO: "pseudo-groups",
}
_LABELS = {
    Supply.TARGET: "labels of a balanced target set",
    Supply.GROUPS: "labels, attributes",
    Supply.EXCHANGE: "labels; groups by exchange (no attributes)",
    Supply.PSEUDO: "labels; groups read off the cue by a probe (no attributes)",
}
_MEANS = {
    Means.DFR: "a new last layer on the same features",
    Means.DAR: "learned attention over the same feature maps, and a new head",
    Means.TUNE: "the whole network trained on, slowly",
    Means.CROP: "the same model, shown the object alone",
}


class State(str, Enum):
    """What became of a remedy."""

    TRIED = "tried"
    UNFIT = "does not fit"
    NO_TIME = "no time"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Remedy:
    """One thing to try: a means on a set; input restriction needs none.

    >>> Remedy(Means.DFR, Supply.EXCHANGE).key, Remedy(Means.DFR, Supply.EXCHANGE).title
    ('dfr-exchange', 'DFR on exchanged images')
    """

    means: Means
    origin: Supply | None = None

    @property
    def key(self) -> str:
        return "-".join([self.means.name.lower(), *([self.origin.value] if self.origin else [])])

    @property
    def title(self) -> str:
        return self.means.value + (f" on {self.origin.words}" if self.origin else "")


@dataclass(frozen=True)
class Counted:
    """Some validation images that are counted together: how many, and how many were named rightly."""

    name: str
    n: int
    right: int

    @property
    def accuracy(self) -> float:
        return self.right / self.n if self.n else float("nan")


@dataclass(frozen=True)
class Showing:
    """How a model does on the images that are chosen on.

    Attributes:
        real: accuracy on the real images as they come, biased or not.
        cells: what the choice looks at: the groups, or without attributes (real, exchanged) x class.
        follows: share of the exchanged images that it names as the class of the donor; None without exchange.

    >>> Showing(0.9, (Counted("cat", 10, 9), Counted("duck", 10, 4))).worst.name
    'duck'
    """

    real: float
    cells: tuple[Counted, ...]
    follows: float | None = None

    @property
    def average(self) -> float:
        """Mean over the cells, each counted alike: what the average is once the cue says nothing about the class.

        On images that are biased like the training set the plain average rewards the shortcut itself.
        """
        there = [cell.accuracy for cell in self.cells if cell.n]
        return sum(there) / len(there)

    @property
    def worst(self) -> Counted:
        """The cell with the lowest accuracy; of equals the larger."""
        return min((cell for cell in self.cells if cell.n), key=lambda cell: (cell.accuracy, -cell.n))


@dataclass
class Attempt:
    """A remedy and what became of it.

    Attributes:
        why: for a remedy that was not tried, or failed, the reason.
        supervision: which labels the result used.
        seconds: what it took.
        allowed: whether its average on real images is within the limit.
    """

    remedy: Remedy
    state: State
    why: str = ""
    standing: Showing | None = None
    supervision: str = ""
    seconds: float = 0.0
    allowed: bool = True
    notes: list[str] = field(default_factory=list)
