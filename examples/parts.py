"""iFAM sorts patches into parts, from class labels alone; what is plain is background and cannot be read."""

import foveate as fv
from examples.shared import animals, unusual
from foveate.report import part_panels


def draw(small: bool = False):
    data = animals(small)
    how = {"mask": "boolean", "tune": "none", "epochs": 1 if small else 3, "lr": 1e-4, "batch_size": 32}
    ifam = fv.IFAM("micro-vit", parts=4, progress=False, **how).fit(data.train)
    return part_panels({"iFAM": ifam}, data.test, unusual(data, each=3))
