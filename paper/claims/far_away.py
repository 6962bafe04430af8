"""Claim 2: inputs far from all training data."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, clearly_above
from paper.plan import Results

SOFTMAX_AT_LEAST, RADIAL_AT_MOST, ACCURATE = 0.5, 0.05, 0.95


def measure(results: Mapping[str, Results]) -> Measures:
    """Return shares of rings of far-away points predicted with p > 0.9, and areas for several beta."""
    first, third = results["fig1"], results["fig3"]
    learned = [share for share, value in zip(first["called"], first["accuracy"], strict=True) if value >= ACCURATE]
    measures: Measures = {}
    for ring in third["rings"]:
        for head in ("softmax", "radial"):
            measures[f"{head}, far points with p > 0.9, {ring['name']}"] = ring[head]
    for kind, accuracies in third["accuracy"].items():
        measures[f"{kind}, test accuracy"] = accuracies
    for beta, areas in zip(third["betas"], third["areas"], strict=True):
        measures[f"radial, area with p > 0.5, beta {beta:g}"] = areas
    if learned:
        measures[f"the paper's softmax network, {len(learned)} seeds that learned"] = learned
    return measures


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    softmax = [values for name, values in measures.items() if name.startswith("softmax, far")]
    radial = [values for name, values in measures.items() if name.startswith("radial, far")]
    areas = [values for name, values in measures.items() if name.startswith("radial, area")]
    learned = all(fmean(values) >= ACCURATE for name, values in measures.items() if name.endswith("accuracy"))
    confident = all(fmean(values) >= SOFTMAX_AT_LEAST for values in softmax)
    silent = all(fmean(values) <= RADIAL_AT_MOST for values in radial)
    tighter = all(_falls(values) for values in zip(*areas, strict=True))
    if learned and confident and silent and tighter:
        return "reproduced"
    apart = all(clearly_above(a, b) for a, b in zip(softmax, radial, strict=True))
    return "partly" if learned and apart and tighter else "not reproduced"


def _falls(values: Sequence[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(values))


CLAIM = Claim(
    number=2,
    text="Far-away inputs: softmax is confident, radial is not; the larger beta, the tighter.",
    paper="no number; a picture of one point",
    rule=(
        "The share of a ring of far-away points that a network calls with p > 0.9, on rings of several radii, and with "
        "fewer epochs, other noise and other turns of the spiral. Reproduced: the mean over seeds is at least 0.5 for "
        "softmax and at most 0.05 for radial (beta 5) on every ring, the area that radial calls with p > 0.5 is "
        "smaller for every larger beta in every seed, and all have a mean test accuracy of at least 0.95. Partly: one "
        "of the two limits fails, but on every ring softmax calls more than radial by more than the error. Not "
        "reproduced: otherwise. Both heads have the same network (3 × 50 units); the paper's with 2 units before "
        "softmax is shown beside it. Fewer epochs were added after a first run; they can only make the claim harder to "
        "reproduce."
    ),
    experiments=("fig1", "fig3"),
    measure=measure,
    verdict=verdict,
)
