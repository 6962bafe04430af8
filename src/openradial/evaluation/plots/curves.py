"""Plot the curves of a report: arrays in, matplotlib Axes out."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from openradial.evaluation.plots.answers import KNOWN_COLOR, NOVEL_COLOR
from openradial.metrics import OscrCurve, ReliabilityBins, RiskCoverage, RocCurve

Array = NDArray[np.floating[Any]]
T = TypeVar("T")
# colours of Okabe and Ito, safe for colour-blind readers; lines also differ in their dashes
NOVEL_COLORS = (NOVEL_COLOR, "#CC79A7", "#009E73", "#D55E00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1)))
POINTS = 400  # of a curve, evenly spaced: more are invisible and only enlarge the file
BINS = 40


def plot_scores(known: Array, novel: Mapping[str, Array], threshold: float, ax: Axes) -> Axes:
    """Plot histograms of unknown scores in % of each set; scores above the threshold are rejected."""
    finite = np.concatenate([each[np.isfinite(each)] for each in (known, *novel.values())])
    low, high = np.quantile(finite, [0.0, 0.98]) if len(finite) else (0.0, 1.0)
    high = max(high, low + 1e-6, threshold if np.isfinite(threshold) else low)
    edges = np.linspace(low, high + 0.05 * (high - low), BINS + 1)
    colors = [KNOWN_COLOR, *_colors(novel)]
    for (name, scores), color in zip({"known": known, **novel}.items(), colors, strict=False):
        values = np.clip(scores, edges[0], np.nextafter(edges[-1], -np.inf))  # larger scores count in the last bar
        share = np.full(len(values), 100 / len(values))
        look: dict[str, Any] = {"facecolor": to_rgba(color, 0.35), "edgecolor": color, "linewidth": 1.2}
        ax.hist(values, edges.tolist(), weights=share, histtype="stepfilled", label=name, **look)
    if np.isfinite(threshold):
        ax.axvline(threshold, color="0.5", linestyle="--", linewidth=1.2, label="threshold")
    ax.set(xlabel="unknown score (larger is more unknown)", ylabel="share of the set (%)", xlim=(edges[0], edges[-1]))
    ax.legend(frameon=False)
    return ax


def plot_roc(curves: Mapping[str, RocCurve], ax: Axes) -> Axes:
    """Plot the share of accepted known inputs against the share of accepted novel inputs."""
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle=":")
    for (name, curve), color, dash in _styled(curves):
        ax.plot(*_thinned(100 * curve.fpr, 100 * curve.tpr), color=color, linestyle=dash, label=name)
    ax.set(xlabel="novel inputs accepted (%)", ylabel="known inputs accepted (%)", xlim=(-1, 101), ylim=(-1, 101))
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_oscr(curves: Mapping[str, OscrCurve], ax: Axes) -> Axes:
    """Plot the share of known inputs accepted with the correct class against accepted novel inputs."""
    for (name, curve), color, dash in _styled(curves):
        ax.plot(*_thinned(100 * curve.fpr, 100 * curve.ccr), color=color, linestyle=dash, label=name)
    ax.set(xlabel="novel inputs accepted (%)", ylabel="known, accepted and correct (%)", xlim=(-1, 101), ylim=(-1, 101))
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_reliability(bins: Mapping[str, ReliabilityBins], ax: Axes) -> Axes:
    """Plot accuracy against confidence; on the diagonal, probabilities are calibrated.

    The area of a point grows with the number of its predictions.
    """
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle=":")
    colors = (KNOWN_COLOR, NOVEL_COLOR)
    for (name, each), color in zip(bins.items(), colors, strict=False):
        filled = each.counts > 0
        x, y, count = 100 * each.confidence[filled], 100 * each.accuracy[filled], each.counts[filled]
        ax.plot(x, y, color=color, linewidth=1, label=name)
        ax.scatter(x, y, s=6 + 80 * count / each.counts.sum(), color=color)
    ax.set(xlabel="probability of the nearest class (%)", ylabel="correct (%)", xlim=(-3, 103), ylim=(-3, 103))
    ax.legend(frameon=False)
    return ax


def plot_risk_coverage(curves: Mapping[str, RiskCoverage], ax: Axes) -> Axes:
    """Plot the error rate of the accepted inputs against coverage; the most confident inputs are accepted first."""
    for (name, curve), color in zip(curves.items(), (KNOWN_COLOR, NOVEL_COLOR), strict=False):
        ax.plot(*_thinned(100 * curve.coverage, 100 * curve.risk), color=color, label=name)
    ax.set(xlabel="accepted (%)", ylabel="errors among the accepted (%)", xlim=(-1, 101))
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    return ax


def plot_rates(rates: Array, known: Array, novel: Mapping[str, Array], ax: Axes) -> Axes:
    """Plot the shares of known and novel inputs called unknown against the requested false-reject rate."""
    ax.plot(100 * rates, 100 * rates, color="0.5", linewidth=1, linestyle=":", label="requested")
    ax.plot(100 * rates, 100 * known, color=KNOWN_COLOR, label="known")
    for (name, detected), color, dash in _styled(novel):
        ax.plot(100 * rates, 100 * detected, color=color, linestyle=dash, label=name)
    ax.set(xlabel="requested false-reject rate (%)", ylabel="called unknown (%)", ylim=(-1, 101))
    ax.legend(frameon=False)
    return ax


def _colors(novel: Mapping[str, object]) -> list[str]:
    return [NOVEL_COLORS[i % len(NOVEL_COLORS)] for i in range(len(novel))]


def _styled(curves: Mapping[str, T]) -> list[tuple[tuple[str, T], str, Any]]:
    dashes = [DASHES[i % len(DASHES)] for i in range(len(curves))]
    return list(zip(curves.items(), _colors(curves), dashes, strict=True))


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """Return at most POINTS points of a curve, including both ends."""
    if len(x) <= POINTS:
        return x, y
    kept = np.unique(np.linspace(0, len(x) - 1, POINTS).astype(int))
    return x[kept], y[kept]
