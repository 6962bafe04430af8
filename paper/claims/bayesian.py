"""Claim 4: the uncertainty of Bayesian networks far away."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, clearly_above
from paper.plan import Results

SOFTMAX_AT_LEAST, RADIAL_AT_MOST, ACCURATE = 0.5, 0.05, 0.9
RADIAL, SOFTMAX = "radial, beta 5", "softmax"
WORDS = {
    "confident": "far points with p > 0.9",
    "spread": "deviation over samples",
    "winning": "mean winning probability",
    "accuracy": "accuracy",
}


def measure(results: Mapping[str, Results]) -> Measures:
    """Return the confidence and spread of Bayesian networks on far-away rings."""
    first, told = results["fig2"]["told"], results["fig5"]["told"]
    measures: Measures = {}
    others = [kind for kind in told if kind not in (RADIAL, SOFTMAX)]
    for kinds in ((SOFTMAX, RADIAL), others):
        for key, words in WORDS.items():
            measures |= {f"{kind}, {words}": told[kind][key] for kind in kinds}
    learned = [share for share, value in zip(first["confident"], first["accuracy"], strict=True) if value >= ACCURATE]
    if learned:
        measures[f"the paper's softmax network, {len(learned)} seeds that learned, far points with p > 0.9"] = learned
    return measures


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    radial, softmax = (measures[f"{kind}, far points with p > 0.9"] for kind in (RADIAL, SOFTMAX))
    learned = all(fmean(measures[f"{kind}, accuracy"]) >= ACCURATE for kind in (RADIAL, SOFTMAX))
    confident = fmean(softmax) >= SOFTMAX_AT_LEAST and fmean(radial) <= RADIAL_AT_MOST
    spread = [measures[f"{kind}, deviation over samples"] for kind in (RADIAL, SOFTMAX)]
    if learned and confident and clearly_above(*spread):
        return "reproduced"
    return "partly" if learned and (confident or clearly_above(softmax, radial)) else "not reproduced"


CLAIM = Claim(
    number=4,
    text="Bayesian networks with softmax underestimate the uncertainty far away, those with the radial layer do not.",
    paper="no number; distributions of one point, broader with the radial layer",
    rule=(
        "On rings of far-away points, radii 2, 3 and 5: the share of points that the mean over samples calls with "
        "p > 0.9, and the standard deviation of the winning probability over samples. Reproduced: the share is at "
        "least 0.5 for softmax and at most 0.05 for radial (beta 5), the deviation is larger for radial than for "
        'softmax by more than the error (the paper\'s "broader"), and the accuracy of both on the training points is '
        "at least 0.9. Partly: both learned and the shares hold, or softmax calls more by more than the error, but "
        "the rest fails. Not reproduced: otherwise. Both heads have the same network (3 × 50 units); other beta and "
        "the paper's network with 2 units before softmax are shown beside it."
    ),
    experiments=("fig2", "fig5"),
    measure=measure,
    verdict=verdict,
)
