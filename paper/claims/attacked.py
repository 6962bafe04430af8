"""Claim 7: less prone to FGSM, and how much of that survives an attack that knows the head."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict, clearly_above
from paper.plan import Results

EPSILONS = (0.2, 0.1, 0.3)  # the middle one first: a report may show only the first numbers
SURVIVES = 0.5


def measure(results: Mapping[str, Results]) -> Measures:
    """Return the accuracy under FGSM through the training loss and under the worst of PGD, by head and epsilon."""
    fgsm, worst = results["fig8"], results["attack"]
    measures: Measures = {}
    for epsilon in EPSILONS:
        at, also = fgsm["epsilons"].index(epsilon), worst["epsilons"].index(epsilon)
        for head in ("softmax", "radial"):
            measures[f"{head}, FGSM {epsilon:g}"] = [curve[at] for curve in fgsm["accuracy"][head]]
        for head in ("softmax", "radial"):
            measures[f"{head}, worst PGD {epsilon:g}"] = [seed["pgd"]["worst"][also] for seed in worst["heads"][head]]
    return measures | {"share of the advantage that survives": [surviving(measures)]}


def surviving(measures: Mapping[str, Sequence[float]]) -> float:
    """Return the mean lead of radial under the worst attack as a share of that under FGSM; 0 without a lead."""
    before, after = (
        fmean(fmean(measures[f"radial, {way} {e:g}"]) - fmean(measures[f"softmax, {way} {e:g}"]) for e in EPSILONS)
        for way in ("FGSM", "worst PGD")
    )
    return after / before if before > 0 else 0.0


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    leads = [clearly_above(measures[f"radial, FGSM {e:g}"], measures[f"softmax, FGSM {e:g}"]) for e in EPSILONS]
    if not all(leads):
        return "not reproduced"
    return "reproduced" if surviving(measures) >= SURVIVES else "partly"


CLAIM = Claim(
    number=7,
    text="Radial networks are less prone to FGSM; and to attacks that know the head.",
    paper="no number; curves of accuracy against epsilon",
    rule=(
        "Accuracy on MNIST at epsilon 0.1, 0.2 and 0.3. The lead holds if radial is above softmax by more than the "
        "error over seeds at all three, each attacked by FGSM through its own loss. Reproduced: the lead holds, and "
        "at least half of it, averaged over the three, survives the worst of PGD through all losses. Partly: the lead "
        "holds under FGSM alone. Not reproduced: otherwise."
    ),
    experiments=("fig8", "attack"),
    measure=measure,
    verdict=verdict,
)
