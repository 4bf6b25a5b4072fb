"""What is measured of a fitted system: group accuracies, entanglement, the quality of its parts.

>>> import foveate as fv
>>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
>>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
>>> evaluate(base, data.test).n
16
"""

from foveate.assemble.worth import NoBetterWarning
from foveate.assess.entanglement import Entanglement, entanglement
from foveate.assess.evaluate import evaluate, report_of
from foveate.assess.misgivings import misgivings
from foveate.assess.part_quality import PartQuality, part_quality

__all__ = [
    "Entanglement", "NoBetterWarning", "PartQuality", "entanglement", "evaluate", "misgivings", "part_quality",
    "report_of",
]  # fmt: skip
