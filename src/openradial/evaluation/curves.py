"""The pictures of a report: curves and counts in, matplotlib Axes out."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from openradial.evaluation.plots import KNOWN_COLOR, NOVEL_COLOR
from openradial.metrics import OscrCurve, ReliabilityBins, RiskCoverage, RocCurve

Array = NDArray[np.floating[Any]]
T = TypeVar("T")
# Okabe and Ito's: told apart with every common colour blindness; lines also differ in their dashes
NOVEL_COLORS = (NOVEL_COLOR, "#CC79A7", "#009E73", "#D55E00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1)))
POINTS = 400  # of a curve, evenly spaced: more are not seen, and make the file large
BINS = 40


def plot_scores(known: Array, novel: Mapping[str, Array], threshold: float, ax: Axes) -> Axes:
    """Histograms of unknown-scores, each as shares of its own set; beyond the threshold lies what is rejected."""
    finite = np.concatenate([each[np.isfinite(each)] for each in (known, *novel.values())])
    low, high = np.quantile(finite, [0.0, 0.98]) if len(finite) else (0.0, 1.0)
    high = max(high, low + 1e-6, threshold if np.isfinite(threshold) else low)
    edges = np.linspace(low, high + 0.05 * (high - low), BINS + 1)
    colors = [KNOWN_COLOR, *_colors(novel)]
    for (name, scores), color in zip({"known": known, **novel}.items(), colors, strict=False):
        values = np.clip(scores, edges[0], np.nextafter(edges[-1], -np.inf))  # what is farther counts in the last bar
        share = np.full(len(values), 100 / len(values))
        look: dict[str, Any] = {"facecolor": to_rgba(color, 0.35), "edgecolor": color, "linewidth": 1.2}
        ax.hist(values, edges.tolist(), weights=share, histtype="stepfilled", label=name, **look)
    if np.isfinite(threshold):
        ax.axvline(threshold, color="0.5", linestyle="--", linewidth=1.2, label="threshold")
    ax.set(xlabel="unknown-score (larger is more unknown)", ylabel="share of its set (%)", xlim=(edges[0], edges[-1]))
    ax.legend(frameon=False)
    return ax


def plot_roc(curves: Mapping[str, RocCurve], ax: Axes) -> Axes:
    """The share of known inputs that is accepted against that of novel ones."""
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle=":")
    for (name, curve), color, dash in _styled(curves):
        ax.plot(*_thinned(100 * curve.fpr, 100 * curve.tpr), color=color, linestyle=dash, label=name)
    ax.set(xlabel="novel inputs accepted (%)", ylabel="known inputs accepted (%)", xlim=(-1, 101), ylim=(-1, 101))
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_oscr(curves: Mapping[str, OscrCurve], ax: Axes) -> Axes:
    """The share of known inputs that is accepted and right against that of novel ones that is accepted."""
    for (name, curve), color, dash in _styled(curves):
        ax.plot(*_thinned(100 * curve.fpr, 100 * curve.ccr), color=color, linestyle=dash, label=name)
    ax.set(xlabel="novel inputs accepted (%)", ylabel="known, accepted and right (%)", xlim=(-1, 101), ylim=(-1, 101))
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_reliability(bins: Mapping[str, ReliabilityBins], ax: Axes) -> Axes:
    """How often predictions of each confidence are right; on the diagonal the probability is true.

    The area of a point grows with the number of its predictions.
    """
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle=":")
    colors = (KNOWN_COLOR, NOVEL_COLOR)
    for (name, found), color in zip(bins.items(), colors, strict=False):
        filled = found.counts > 0
        x, y, count = 100 * found.confidence[filled], 100 * found.accuracy[filled], found.counts[filled]
        ax.plot(x, y, color=color, linewidth=1, label=name)
        ax.scatter(x, y, s=6 + 80 * count / found.counts.sum(), color=color)
    ax.set(xlabel="probability of the nearest class (%)", ylabel="right (%)", xlim=(-3, 103), ylim=(-3, 103))
    ax.legend(frameon=False)
    return ax


def plot_risk_coverage(curves: Mapping[str, RiskCoverage], ax: Axes) -> Axes:
    """The share of errors among what is accepted, where the most certain inputs are accepted first."""
    for (name, curve), color in zip(curves.items(), (KNOWN_COLOR, NOVEL_COLOR), strict=False):
        ax.plot(*_thinned(100 * curve.coverage, 100 * curve.risk), color=color, label=name)
    ax.set(xlabel="accepted (%)", ylabel="wrong among the accepted (%)", xlim=(-1, 101))
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    return ax


def plot_rates(rates: Array, known: Array, novel: Mapping[str, Array], ax: Axes) -> Axes:
    """What each false-reject rate that could be asked for does: known inputs rejected, novel ones found."""
    ax.plot(100 * rates, 100 * rates, color="0.5", linewidth=1, linestyle=":", label="as asked")
    ax.plot(100 * rates, 100 * known, color=KNOWN_COLOR, label="known")
    for (name, found), color, dash in _styled(novel):
        ax.plot(100 * rates, 100 * found, color=color, linestyle=dash, label=name)
    ax.set(xlabel="false-reject rate asked for (%)", ylabel="called unknown (%)", ylim=(-1, 101))
    ax.legend(frameon=False)
    return ax


def _colors(novel: Mapping[str, object]) -> list[str]:
    return [NOVEL_COLORS[place % len(NOVEL_COLORS)] for place in range(len(novel))]


def _styled(curves: Mapping[str, T]) -> list[tuple[tuple[str, T], str, Any]]:
    dashes = [DASHES[place % len(DASHES)] for place in range(len(curves))]
    return list(zip(curves.items(), _colors(curves), dashes, strict=True))


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """A curve with fewer points, its ends among them."""
    if len(x) <= POINTS:
        return x, y
    which = np.unique(np.linspace(0, len(x) - 1, POINTS).astype(int))
    return x[which], y[which]
