"""Claim 8: the length a of the prototypes does not change the accuracy; the loss is noisier with a larger one."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, error_of
from paper.plan import Results

ACCURACY, NOISE = "accuracy, a = ", "noise of the loss, a = "


def measure(results: Mapping[str, Results]) -> Measures:
    """Return the test accuracy on MNIST and noise of the loss, for each a."""
    numbers = results["sup4"]["mnist"]
    measures = {f"{ACCURACY}{a}": each["accuracy"] for a, each in numbers.items()}
    return measures | {f"{NOISE}{a}": each["noise"] for a, each in numbers.items()}


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    first, *others = (values for name, values in measures.items() if name.startswith(ACCURACY))
    equal = all(_alike(first, values) for values in others)
    noise = [fmean(values) for name, values in measures.items() if name.startswith(NOISE)]
    noisier = all(later > earlier for earlier, later in pairwise(noise))
    return "reproduced" if equal and noisier else "partly" if equal or noisier else "not reproduced"


def _alike(values: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether the means differ by no more than the larger error; never so with a single run."""
    errors = [error for error in (error_of(values), error_of(others)) if error is not None]
    return len(errors) == 2 and abs(fmean(values) - fmean(others)) <= max(errors)


CLAIM = Claim(
    number=8,
    text="The length a of the prototypes does not change the accuracy; the larger a, the noisier the loss.",
    paper="no number; curves for a = 1 and a = 5",
    rule=(
        "MNIST with a = 1, 2, 5, 50 and 100. Reproduced: for each a the mean accuracy differs from that of a = 1 by "
        "no more than the error over seeds, the larger of both, and the noise of the loss (its deviation from its "
        "moving average in the second half of training) grows with each larger a. Partly: one of the two holds. Not "
        "reproduced: none."
    ),
    experiments=("sup4",),
    measure=measure,
    verdict=verdict,
)
