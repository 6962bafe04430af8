"""Plots: arrays in, matplotlib Axes out."""

from openradial.evaluation.plots import colors
from openradial.evaluation.plots.answers import KNOWN_COLOR, NOVEL_COLOR, plot_answers, plot_winning_probabilities
from openradial.evaluation.plots.maps import plot_points, plot_prediction_map

__all__ = [
    "KNOWN_COLOR",
    "NOVEL_COLOR",
    "colors",
    "plot_answers",
    "plot_points",
    "plot_prediction_map",
    "plot_winning_probabilities",
]
