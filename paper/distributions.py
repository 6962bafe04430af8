"""The distribution of the winning probability, as a small picture inside another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


CORNERS = ((0.55, 0.58), (0.55, 0.17), (0.14, 0.58), (0.14, 0.17))  # of the picture, as shares: the first is the best
SIZE = (0.42, 0.36)
LABELS = (0.13, 0.15)  # left of it and below


def inset_histogram(
    ax: "Axes", probs: Sequence[float], color: str | None = None, beside: Sequence[Sequence[float]] = ()
) -> "Axes":
    """A histogram of winning probabilities of samples, in the corner where it hides the fewest points of ``beside``."""
    from openradial.evaluation.plots.colors import SOFTMAX

    corner = min(CORNERS, key=lambda corner: _hidden(ax, corner, beside))
    inset: Axes = ax.inset_axes((*corner, *SIZE))
    weights = [100 / len(probs)] * len(probs)
    inset.hist(probs, bins=20, range=(0, 1), weights=weights, color=color or SOFTMAX)
    inset.set(xlim=(0, 1), ylim=(0, 105), xticks=(0, 0.5, 1), yticks=(0, 50, 100))
    inset.set_xlabel("winning probability", fontsize=7, labelpad=1)
    inset.set_ylabel("samples (%)", fontsize=7, labelpad=1)
    inset.tick_params(labelsize=7, length=2)
    inset.patch.set_alpha(0.9)
    return inset


def _hidden(ax: "Axes", corner: tuple[float, float], points: Sequence[Sequence[float]]) -> int:
    """How many points lie behind a histogram in this corner, in the limits that the axes have."""
    count = 0
    for point in points:
        within = True
        for value, (low, high), start, size, label in zip(
            point, (ax.get_xlim(), ax.get_ylim()), corner, SIZE, LABELS, strict=True
        ):
            within &= start - label <= (value - low) / (high - low) <= start + size
        count += within
    return count
