"""The audit report, one HTML file that says what a classifier leans on, and the figures of the papers."""

from foveate.report.audit import Audit, audit
from foveate.report.figures import ablation_bars, cep_histograms, gradcam_panels, part_panels, query_maps, save_figure

__all__ = [
    "Audit", "ablation_bars", "audit", "cep_histograms", "gradcam_panels", "part_panels", "query_maps", "save_figure",
]  # fmt: skip
