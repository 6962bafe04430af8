"""Claim 3: random labels."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, clearly_above
from paper.plan import Results

HEADS = ("softmax", "radial")
SOFTMAX_AT_LEAST, RADIAL_AT_MOST, LOSS_AT_MOST = 0.25, 0.05, 0.02


def measure(results: Mapping[str, Results]) -> Measures:
    """Return shares of memorised wrong labels, and accuracies; the case of high capacity first."""
    numbers, measures = results["fig4"], {}
    for index, case in enumerate(numbers["cases"]):
        for head in HEADS:
            measures[f"{head}, by heart, {case['name']}"] = case[head]["memorised"]
        if index == 0:
            measures |= {f"{head}, test accuracy": case[head]["accuracy"] for head in HEADS}
    return measures | {f"{head}, test accuracy without noise": numbers["without_noise"][head] for head in HEADS}


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    softmax, radial = (
        next(values for name, values in measures.items() if name.startswith(f"{head}, by heart")) for head in HEADS
    )
    better = clearly_above(measures["radial, test accuracy"], measures["softmax, test accuracy"])
    lost = fmean(measures["radial, test accuracy without noise"]) - fmean(measures["radial, test accuracy"])
    overfits = fmean(softmax) >= SOFTMAX_AT_LEAST
    robust = fmean(radial) <= RADIAL_AT_MOST and lost <= LOSS_AT_MOST
    if overfits and robust and better:
        return "reproduced"
    return "partly" if clearly_above(softmax, radial) else "not reproduced"


CLAIM = Claim(
    number=3,
    text="Robust to 10 % random labels where softmax overfits.",
    paper="no number; two pictures",
    rule=(
        "In the first case, that of the highest capacity per point: the share of wrong training labels that a network "
        "gives back, and its accuracy on clean test points. Reproduced: softmax gives back at least 0.25 of them and "
        "radial at most 0.05, radial loses at most 0.02 of the accuracy it has without noise, and it is more accurate "
        "than softmax by more than the error. Partly: softmax gives back more than radial by more than the error. "
        "Not reproduced: otherwise. The other cases show how it depends on points and units."
    ),
    experiments=("fig4",),
    measure=measure,
    verdict=verdict,
)
