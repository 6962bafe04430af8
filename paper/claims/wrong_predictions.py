"""Claim 5: wrong predictions carry a low probability."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, clearly_above
from paper.plan import Results

WRONG_AT_MOST, RIGHT_AT_LEAST = 0.1, 0.8


def measure(results: Mapping[str, Results]) -> Measures:
    """Return shares of wrong predictions with p > 0.9, and medians, by head."""
    names = {"wrong_above": "wrong with p > 0.9", "median_wrong": "median p, wrong", "median_right": "median p, right"}
    return {
        f"{head}, {title}": [seed[name] for seed in results["fig6"][head]]
        for name, title in names.items()
        for head in ("softmax", "radial")
    }


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    softmax, radial = (measures[f"{head}, wrong with p > 0.9"] for head in ("softmax", "radial"))
    if not clearly_above(softmax, radial):
        return "not reproduced"
    low = fmean(radial) <= WRONG_AT_MOST
    confident = fmean(measures["radial, median p, right"]) >= RIGHT_AT_LEAST
    return "reproduced" if low and confident else "partly"


CLAIM = Claim(
    number=5,
    text="Wrong predictions carry a low probability with the radial layer, and often a high one with softmax.",
    paper="no number; histograms",
    rule=(
        "The share of wrong predictions on the MNIST test set with a winning probability above 0.9, at beta 1. "
        "Reproduced: it is at most 0.1 with the radial layer, with softmax it is higher by more than the error over "
        "seeds, and the radial median of right predictions is at least 0.8, so that not simply everything is low. "
        "Partly: only the difference holds. Not reproduced: the difference is within the error."
    ),
    experiments=("fig6",),
    measure=measure,
    verdict=verdict,
)
