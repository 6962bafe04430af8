"""Claim 6: novel classes carry a low probability."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.claims.claim import Claim, Measures, Verdict
from paper.plan import Results

TOLD_APART, BETTER_THAN_CHANCE = 0.8, 0.65


def measure(results: Mapping[str, Results]) -> Measures:
    """Return medians of the winning probability and AUROC, by head."""
    names = {"median_known": "median p, known", "median_novel": "median p, novel", "auroc": "AUROC"}
    return {
        f"{head}, {title}": [each[name] for each in results["fig7"]["heads"][head]]
        for head in ("radial", "softmax")
        for name, title in names.items()
    }


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    known, novel = (fmean(measures[f"radial, median p, {part}"]) for part in ("known", "novel"))
    told = fmean(measures["radial, AUROC"])
    if told >= TOLD_APART and novel <= known / 2:
        return "reproduced"
    return "partly" if told >= BETTER_THAN_CHANCE and novel < known else "not reproduced"


CLAIM = Claim(
    number=6,
    text="Novel classes carry a low probability with the radial layer, known ones a high one.",
    paper="no number; histograms on ImageNet",
    rule=(
        "Winning probabilities of the radial network on photographs of known and novel classes, with beta calibrated "
        "on held-out known images. Reproduced: the AUROC of known against novel is at least 0.8 and the median of "
        "novel images is at most half of that of known ones. Partly: the AUROC is at least 0.65 and the median of "
        "novel images is the lower one. Not reproduced: otherwise. Neither the data nor the networks are the paper's."
    ),
    experiments=("fig7",),
    measure=measure,
    verdict=verdict,
)
