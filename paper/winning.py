"""The winning probability of many predictions: histograms and medians as JSON holds them, and how they are drawn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from openradial.heads import Head

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 40
RIGHT, WRONG, NOVEL = "right", "wrong", "novel"


@torch.no_grad()
def winning_probs(head: Head, o: Tensor) -> Tensor:
    """Return the probability of the most probable class, ``(b, k) -> (b,)``."""
    log_probs: Tensor = head.log_probs(o)
    return log_probs.double().exp().amax(-1)


def histogram(probs: Tensor) -> list[int]:
    """Return counts of probabilities in equal bins from 0 to 1.

    >>> [index for index, count in enumerate(histogram(torch.tensor([0.0, 0.49, 1.0]))) if count]
    [0, 19, 39]
    """
    return [int(count) for count in torch.histc(probs.float(), BINS, 0, 1).tolist()]


def median(probs: Tensor) -> float:
    """Return the median, rounded as far as it is shown."""
    return round(float(probs.median()), 5)


def share_above(probs: Tensor, limit: float) -> float:
    """Return the share of probabilities above a limit; 0 where there are none."""
    return float((probs > limit).sum()) / max(1, len(probs))


def summed(histograms: Sequence[Sequence[int]]) -> list[int]:
    """Return the sum of several histograms.

    >>> summed([[1, 2], [3, 4]])
    [4, 6]
    """
    return [sum(counts) for counts in zip(*histograms, strict=True)]


def draw_shares(ax: "Axes", counts: Sequence[int], color: str, label: str, *, hatch: str | None = None) -> None:
    """Draw a histogram as shares of its group, so that groups of different size can be compared; log scale."""
    from matplotlib.colors import to_rgba

    total = max(1, sum(counts))
    edges = [index / len(counts) for index in range(len(counts) + 1)]
    ax.stairs(
        [100 * count / total for count in counts],
        edges,
        fill=True,
        facecolor=to_rgba(color, 0.45),
        edgecolor=color,
        linewidth=1.2,
        hatch=hatch,
        label=f"{label} ({total:,})",
    )
    ax.set_yscale("log")
    ax.set(xlim=(0, 1), xlabel="winning probability")
