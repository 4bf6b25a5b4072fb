"""Named systems: one file each, composed of LOOK, RESTRICT, EXTRACT, POOL and DECIDE."""

from foveate.systems.cnc import CnC
from foveate.systems.cvar_dro import CVaRDRO
from foveate.systems.dar import DAR
from foveate.systems.dfr import DFR
from foveate.systems.entanglement import Entanglement, entanglement
from foveate.systems.erm import ERM
from foveate.systems.evaluate import evaluate
from foveate.systems.group_dro import GroupDRO
from foveate.systems.jtt import JTT
from foveate.systems.network import Network
from foveate.systems.reweight import Reweight
from foveate.systems.spectral import SpectralDecoupling
from foveate.systems.subsample import Subsample
from foveate.systems.system import Needs, System, get_system, list_systems, load

__all__ = [
    "DAR", "DFR", "ERM", "JTT", "CVaRDRO", "CnC", "Entanglement", "GroupDRO", "Needs", "Network", "Reweight",
    "SpectralDecoupling", "Subsample", "System", "entanglement", "evaluate", "get_system", "list_systems", "load",
]  # fmt: skip
