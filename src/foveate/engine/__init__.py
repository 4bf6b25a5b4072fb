"""The training engine: one loop on Lightning Fabric for every system."""

from foveate.engine.bf16 import bf16_problem, require_bf16
from foveate.engine.callbacks import Callback, EpochEnd, StopTraining
from foveate.engine.devices import default_device
from foveate.engine.feed import Feed, ImageFeed, TensorFeed
from foveate.engine.loop import History, Objective, cross_entropy, parameter_groups, train
from foveate.engine.plan import Drawn, Fixed, Plan, Shuffled
from foveate.engine.progress import Progress
from foveate.engine.schedule import rate_factor
from foveate.engine.seeds import derived_seed, seed_everything
from foveate.engine.selection import NoGroupsWarning, Selection, check_metric, possible_metric, predict_feed
from foveate.engine.settings import TrainSettings

__all__ = [
    "Callback", "Drawn", "EpochEnd", "Feed", "Fixed", "History", "ImageFeed", "NoGroupsWarning", "Objective", "Plan",
    "Progress", "Selection", "Shuffled", "StopTraining", "TensorFeed", "TrainSettings", "bf16_problem", "check_metric",
    "cross_entropy", "default_device", "derived_seed", "parameter_groups", "possible_metric", "predict_feed",
    "rate_factor", "require_bf16", "seed_everything", "train",
]  # fmt: skip
