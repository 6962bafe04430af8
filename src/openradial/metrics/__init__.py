"""Metrics: arrays in (NumPy, torch or lists), float out.

Scores are unknown scores: larger is more unknown. Known and novel inputs are given as two arrays. An input is accepted
where its score is at most the threshold. Label -1 is "unknown".
"""

from openradial.metrics.calibration import ReliabilityBins, brier, confidences, ece, reliability_bins
from openradial.metrics.classification import accuracy, open_f1, top_k_accuracy
from openradial.metrics.intervals import Interval, bootstrap, summary, summary_intervals
from openradial.metrics.ranking import OscrCurve, RocCurve, aupr, auroc, fpr_at_tpr, oscr, oscr_curve, roc_curve
from openradial.metrics.selective import RiskCoverage, aurc, misclassification_auroc, risk_coverage_curve

__all__ = ["Interval", "OscrCurve", "ReliabilityBins", "RiskCoverage", "RocCurve", "accuracy", "aupr", "aurc", "auroc"]
__all__ += ["bootstrap", "brier", "confidences", "ece", "fpr_at_tpr", "misclassification_auroc"]
__all__ += ["open_f1", "oscr", "oscr_curve", "reliability_bins", "risk_coverage_curve", "roc_curve", "summary"]
__all__ += ["summary_intervals", "top_k_accuracy"]
