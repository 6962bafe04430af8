"""Calibrated decisions: from scores to a class or "unknown".

Scores are unknown scores: larger is more unknown. Label -1 is unknown, or "unknown" where labels are strings. Tensors,
NumPy arrays and lists are accepted; the result is a tensor where one was given, otherwise a NumPy array.
"""

from openradial.conformal.beta import BetaFit, fit_beta
from openradial.conformal.calibration import conformal_p_values, examples_needed
from openradial.conformal.prediction_sets import PredictionSets
from openradial.conformal.rejector import FalseRejectReport, Rejector, false_reject_report
from openradial.conformal.risk import OperatingPoint, operating_point

__all__ = ["BetaFit", "FalseRejectReport", "OperatingPoint", "PredictionSets", "Rejector", "conformal_p_values"]
__all__ += ["examples_needed", "false_reject_report", "fit_beta", "operating_point"]
