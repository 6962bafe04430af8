"""Plots: arrays in, matplotlib Axes out."""

from openradial.evaluation.plots import colors
from openradial.evaluation.plots.colors import KNOWN_COLOR, NOVEL_COLOR
from openradial.evaluation.plots.curves import (
    plot_oscr,
    plot_rates,
    plot_reliability,
    plot_risk_coverage,
    plot_roc,
    plot_scores,
)

__all__ = ["KNOWN_COLOR", "NOVEL_COLOR", "colors", "plot_oscr", "plot_rates", "plot_reliability"]
__all__ += ["plot_risk_coverage", "plot_roc", "plot_scores"]
