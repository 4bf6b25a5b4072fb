"""The audit report, one HTML file that says what a classifier leans on, and the figures of the papers."""

from foveate.report.audit import Audit, audit
from foveate.report.discovery.cues import CUES, Cue
from foveate.report.figures import ablation_bars, cep_histograms, gradcam_panels, part_panels, query_maps, save_figure
from foveate.report.findings import Findings
from foveate.report.levels import Agreement, Evidence, Level
from foveate.report.verdict import Verdict

__all__ = [
    "CUES", "Agreement", "Audit", "Cue", "Evidence", "Findings", "Level", "Verdict", "ablation_bars", "audit",
    "cep_histograms", "gradcam_panels", "part_panels", "query_maps", "save_figure",
]  # fmt: skip
