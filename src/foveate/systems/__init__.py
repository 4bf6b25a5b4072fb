"""Named systems: one file each, composed of LOOK, RESTRICT, EXTRACT, POOL and DECIDE."""

from foveate.systems.a2 import A2
from foveate.systems.a2_adapter import A2Adapter
from foveate.systems.a2_zero_shot import A2ZeroShot, ZeroShot
from foveate.systems.attentive_probes import AIMProbe, EPProbe
from foveate.systems.cnc import CnC
from foveate.systems.crops_reference import S2, CentreCrop, FullImage, RandomCrops
from foveate.systems.cvar_dro import CVaRDRO
from foveate.systems.dar import DAR
from foveate.systems.dfr import DFR
from foveate.systems.entanglement import Entanglement, entanglement
from foveate.systems.erm import ERM
from foveate.systems.evaluate import evaluate
from foveate.systems.glimpse import Glimpse
from foveate.systems.group_dro import GroupDRO
from foveate.systems.ifam import IFAM
from foveate.systems.jtt import JTT
from foveate.systems.masked import EarlyMask, LateMask
from foveate.systems.network import Network
from foveate.systems.part_quality import PartQuality, part_quality
from foveate.systems.pdiscoformer import PDiscoFormer
from foveate.systems.reweight import Reweight
from foveate.systems.spectral import SpectralDecoupling
from foveate.systems.subsample import Subsample
from foveate.systems.system import Needs, System, get_system, list_systems, load
from foveate.systems.ttr import TTR
from foveate.systems.wrapped import Wrapped, wrap

__all__ = [
    "DAR", "DFR", "ERM", "JTT", "CVaRDRO", "CnC", "Entanglement", "GroupDRO", "Needs", "Network", "Reweight",
    "SpectralDecoupling", "Subsample", "System", "entanglement", "evaluate", "get_system", "list_systems", "load",
    "Wrapped", "wrap", "IFAM", "PDiscoFormer", "PartQuality", "part_quality", "EarlyMask", "LateMask",
    "AIMProbe", "EPProbe",
    "A2", "CentreCrop", "FullImage", "Glimpse", "RandomCrops", "S2",
    "A2Adapter", "A2ZeroShot", "TTR", "ZeroShot",
]  # fmt: skip
