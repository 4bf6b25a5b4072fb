"""The cues an audit knows, one list: properties a model might lean on, read by probes and exchanged by experiments.

A new cue is a :class:`Cue` in a file of this folder and a line in ``CUES``; probes, experiments, verdict, sentences and
JSON take it from there.

>>> [cue.key for cue in CUES if cue.part_of == "background" and cue.family is None]
['frame', 'brightness', 'sharpness', 'colour', 'vignette', 'jpeg']
"""

from foveate.report.discovery.cues.columns import column, given_attribute, read_columns
from foveate.report.discovery.cues.cue import Cue, Glances
from foveate.report.discovery.cues.encoding import QUALITY
from foveate.report.discovery.cues.file_facts import COMPRESSION, SHAPE
from foveate.report.discovery.cues.geometry import ASPECT, TILT
from foveate.report.discovery.cues.object_colour import OBJECT_COLOUR
from foveate.report.discovery.cues.placement import POSITION, SIZE
from foveate.report.discovery.cues.places import CORNER_CUES, FRAME_CUE
from foveate.report.discovery.cues.surroundings import BACKGROUND, BRIGHTNESS, COLOUR, SHARPNESS, VIGNETTE

CUES: tuple[Cue, ...] = (
    *CORNER_CUES, FRAME_CUE, BRIGHTNESS, SHARPNESS, COLOUR, VIGNETTE, QUALITY, BACKGROUND, SIZE, POSITION,
    OBJECT_COLOUR, TILT, ASPECT, SHAPE, COMPRESSION,
)  # fmt: skip
"""Every property of a picture, in the order of the tests."""
EXCHANGED: tuple[Cue, ...] = tuple(cue for cue in CUES if cue.exchange is not None)
"""Those that an experiment tests."""
BY_KEY: dict[str, Cue] = {cue.key: cue for cue in CUES}

__all__ = ["BY_KEY", "CUES", "EXCHANGED", "Cue", "Glances", "column", "given_attribute", "read_columns"]
