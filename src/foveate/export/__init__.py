"""A fitted system as files other programs run: ONNX or ``torch.export`` graphs, a runner, a model card."""

from foveate.export.card import model_card
from foveate.export.graphs import Graph, GraphPlan, plan_of
from foveate.export.runner import Runner
from foveate.export.write import FORMATS, Parity, to_folder

__all__ = ["FORMATS", "Graph", "GraphPlan", "Parity", "Runner", "model_card", "plan_of", "to_folder"]
