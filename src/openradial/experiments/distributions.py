"""The distribution of the winning probability, as a small picture inside another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def inset_histogram(ax: "Axes", probs: Sequence[float], color: str | None = None) -> "Axes":
    """A histogram of winning probabilities of samples, in the upper right corner."""
    from openradial.plots.colors import SOFTMAX

    inset: Axes = ax.inset_axes((0.55, 0.58, 0.42, 0.36))
    weights = [100 / len(probs)] * len(probs)
    inset.hist(probs, bins=20, range=(0, 1), weights=weights, color=color or SOFTMAX)
    inset.set(xlim=(0, 1), ylim=(0, 105), xticks=(0, 0.5, 1), yticks=(0, 50, 100))
    inset.set_xlabel("winning probability", fontsize=7, labelpad=1)
    inset.set_ylabel("samples (%)", fontsize=7, labelpad=1)
    inset.tick_params(labelsize=7, length=2)
    inset.patch.set_alpha(0.9)
    return inset
