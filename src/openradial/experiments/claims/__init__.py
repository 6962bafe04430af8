"""The paper's claims, each with a verdict that is computed from our own runs."""

from openradial.experiments.claims import bayesian, far_away, label_noise
from openradial.experiments.claims.claim import Claim, Measures, Verdict, clearly_above, error_of, shown

__all__ = ["CLAIMS", "Claim", "Measures", "Verdict", "clearly_above", "error_of", "shown"]

CLAIMS: tuple[Claim, ...] = (far_away.CLAIM, label_noise.CLAIM, bayesian.CLAIM)
