"""The cure: from an audit's verdict to a model that looks at the object, with or without attributes.

>>> import foveate as fv
>>> fv.cure is fv.remedy.cure
True
"""

from foveate.remedy.choosing import Rule
from foveate.remedy.kinds import Attempt, Means, Remedy, Showing, State, Supply
from foveate.remedy.result import Cure
from foveate.remedy.run import cure

__all__ = ["Attempt", "Cure", "Means", "Supply", "Remedy", "Rule", "Showing", "State", "cure"]
