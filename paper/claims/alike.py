"""Claim 1: radial networks train as well as softmax networks."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, error_of
from paper.plan import Results


def measure(results: Mapping[str, Results]) -> Measures:
    """Return test accuracies on MNIST, by head and settings."""
    numbers = results["tab1"]["mnist"]
    return {f"{head}, {recipe} settings": numbers[recipe][head] for recipe in numbers for head in ("softmax", "radial")}


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    pairs = [(values, measures[f"radial, {name.removeprefix('softmax, ')}"]) for name, values in softmax_of(measures)]
    holds = [as_good(radial, softmax) for softmax, radial in pairs]
    return "reproduced" if all(holds) else "partly" if any(holds) else "not reproduced"


def softmax_of(measures: Mapping[str, Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    return [(name, values) for name, values in measures.items() if name.startswith("softmax, ")]


def as_good(values: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether the mean is not below the other by more than the larger error; never so with a single run.

    >>> as_good([0.96, 0.98], [0.97, 0.99]), as_good([0.5, 0.51], [0.97, 0.99]), as_good([0.9], [0.9])
    (True, False, False)
    """
    errors = [error for error in (error_of(values), error_of(others)) if error is not None]
    return len(errors) == 2 and fmean(values) >= fmean(others) - max(errors)


CLAIM = Claim(
    number=1,
    text="Radial networks train as well as softmax networks: their accuracies are alike.",
    paper="MNIST: softmax 0.9878, radial 0.9880; ImageNet, top-1: radial 0.761 and 0.787, softmax 0.745",
    rule=(
        "Test accuracy on MNIST over seeds, with the stated settings and with those that reach the stated accuracy. "
        "Radial is as good if its mean is not below that of softmax by more than the run-to-run error, the larger of "
        "both. Reproduced: so in both settings. Partly: in one of them. Not reproduced: in none."
    ),
    experiments=("tab1",),
    measure=measure,
    verdict=verdict,
)
