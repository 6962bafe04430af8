"""The classifier that answers a class or "unknown", and its predictions."""

from openradial.classifier.classifier import Decisions, OpenClassifier, check_rate_has_rejector
from openradial.classifier.predictions import TOP, UNKNOWN, ClassProbability, Prediction, Predictions
from openradial.classifier.streaming import PredictedRows, predict_rows, records

__all__ = ["TOP", "UNKNOWN", "ClassProbability", "Decisions", "OpenClassifier", "PredictedRows", "Prediction"]
__all__ += ["Predictions", "check_rate_has_rejector", "predict_rows", "records"]
