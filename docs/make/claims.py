"""Orders that running text claims: written beside the words as a comment, shown on the site as the measured difference.

``A² is above the whole image<!-- order pets-a2/vit-s: A2 > full image: holds -->`` names a study, one of its datasets
(or ``results/FILE`` for a study with a script of its own), two methods, a metric (``A > B by miou``) where it is not
the study's own, and the verdict that the words rely on. A test compares every verdict with the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from foveate.bench.orders import VERDICTS, OrderFound
from foveate.bench.page import find_specs, open_study
from foveate.bench.quoted import OWN, Quoted

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "records"
CLAIM = re.compile(
    r"<!--\s+order\s+([\w-]+)/([\w-]+):\s+([^<]+?)(?:\s+by\s+(\w+))?:\s+(" + "|".join(VERDICTS.values()) + r")\s+-->"
)


class Claim(NamedTuple):
    """One order that a text relies on."""

    study: str
    dataset: str
    order: str
    metric: str | None
    verdict: str

    def found(self) -> OrderFound:
        """What the records say."""
        return _quoted().order(self.study, self.dataset, self.order, self.metric)


def claims(text: str) -> Iterator[Claim]:
    """Every claim in ``text``."""
    return (_claim(found) for found in CLAIM.finditer(text))


def shown(text: str, up: str = "") -> str:
    """``text`` with every claim replaced by its figures; ``up`` leads from the page to the folder of the results.

    >>> shown("The mean of A is above that of B.")
    'The mean of A is above that of B.'
    """
    return CLAIM.sub(lambda found: _figures(_claim(found), up), text)


def _claim(found: re.Match[str]) -> Claim:
    study, dataset, order, metric, verdict = found.groups()
    return Claim(study, dataset, " ".join(order.split()), metric, verdict)


def _figures(claim: Claim, up: str) -> str:
    found = claim.found()
    points = found.points(found.by_seed).replace("[", r"\[").replace("]", r"\]")
    place = "what-came-out-as-the-papers-say-and-what-did-not" if claim.study == OWN else claim.study
    return f" ([{points}]({up}results.md#{place}))"


@lru_cache
def _quoted() -> Quoted:
    studies = [open_study(path, RECORDS) for path in find_specs([ROOT / "benchmarks" / "specs"])]
    return Quoted([(study.spec, study.records) for study in studies], RECORDS.parent / OWN)
