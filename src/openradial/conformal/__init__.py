"""Decisions: from scores to a class or "unknown".

Scores are unknown-scores: larger is more unknown. Label -1 is unknown, or "unknown" where labels are strings. Tensors,
NumPy arrays and lists are taken; what comes back is a tensor where one was given, otherwise a NumPy array.
"""

from openradial.conformal.beta import BetaFit, fit_beta
from openradial.conformal.conformal import conformal_p_values
from openradial.conformal.rejector import Rejector
from openradial.conformal.report import FalseRejectReport, false_reject_report
from openradial.conformal.risk import OperatingPoint, operating_point
from openradial.conformal.sets import PredictionSets

__all__ = [
    "BetaFit",
    "FalseRejectReport",
    "OperatingPoint",
    "PredictionSets",
    "Rejector",
    "conformal_p_values",
    "false_reject_report",
    "fit_beta",
    "operating_point",
]
