"""Images with labels, attributes, masks, boxes and parts; loaders, generators and checks."""

from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.check import CheckReport, Problem, check
from foveate.data.cmnist import cmnist
from foveate.data.compose import compose
from foveate.data.critters import critters
from foveate.data.cue import cue_critters
from foveate.data.dataset import GroupedDataset, Sample
from foveate.data.dominoes import dominoes
from foveate.data.huggingface import from_huggingface
from foveate.data.images import ArrayImages, FileImages, decode
from foveate.data.loading import Batch, Loader
from foveate.data.preprocess import Preprocess
from foveate.data.registry import list, load
from foveate.data.tables import from_csv, from_folder, from_path, write_csv

__all__ = [
    "SPLITS", "ArrayImages", "Batch", "Benchmark", "CheckReport", "FileImages", "GroupedDataset", "Loader",
    "Preprocess", "Problem", "Sample", "check", "cmnist", "compose", "critters", "cue_critters", "decode", "dominoes",
    "from_csv", "from_folder", "from_huggingface", "from_path", "list", "load", "write_csv",
]  # fmt: skip
