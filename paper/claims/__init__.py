"""The paper's claims, each with a verdict that is computed from our runs."""

from paper.claims import (
    alike,
    architectures,
    attacked,
    bayesian,
    far_away,
    label_noise,
    novel_classes,
    prototype_length,
    wrong_predictions,
)
from paper.claims.claim import Claim, Measures, Verdict, clearly_above, error_of, shown

__all__ = ["CLAIMS", "Claim", "Measures", "Verdict", "clearly_above", "error_of", "shown"]

CLAIMS: tuple[Claim, ...] = (
    alike.CLAIM,
    far_away.CLAIM,
    label_noise.CLAIM,
    bayesian.CLAIM,
    wrong_predictions.CLAIM,
    novel_classes.CLAIM,
    attacked.CLAIM,
    prototype_length.CLAIM,
    architectures.CLAIM,
)
