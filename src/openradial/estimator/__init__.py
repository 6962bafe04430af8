"""The scikit-learn contract: a classifier that fits, predicts, and may say "unknown"."""

from openradial.errors import require

require("sklearn", "sklearn", "RadialClassifier")  # first, because it says how to install what is missing

from openradial.estimator.classifier import RadialClassifier  # noqa: E402

__all__ = ["RadialClassifier"]
