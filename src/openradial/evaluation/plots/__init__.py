"""Plots of a report: arrays in, matplotlib Axes out."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any, Literal, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from openradial.classifier.predictions import Floats
from openradial.evaluation.plots import colors
from openradial.evaluation.plots.colors import KNOWN_COLOR, NOVEL_COLOR, NOVEL_COLORS
from openradial.metrics import OscrCurve, ReliabilityBins, RiskCoverage, RocCurve

__all__ = ["KNOWN_COLOR", "NOVEL_COLOR", "colors", "plot_oscr", "plot_rates", "plot_reliability"]
__all__ += ["plot_risk_coverage", "plot_roc", "plot_scores"]

T = TypeVar("T")
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1)))
PAIR = (KNOWN_COLOR, NOVEL_COLORS[0])  # known, known and novel
POINTS = 400  # of a curve, evenly spaced: more are invisible and only enlarge the file
BINS = 40


def plot_scores(known: Floats, novel: Mapping[str, Floats], threshold: float, ax: Axes) -> Axes:
    """Plot histograms of unknown scores in % of each set; scores above the threshold are rejected."""
    finite = np.concatenate([each[np.isfinite(each)] for each in (known, *novel.values())])
    low, high = np.quantile(finite, [0.0, 0.98]) if len(finite) else (0.0, 1.0)
    high = max(high, low + 1e-6, threshold if np.isfinite(threshold) else low)
    edges = np.linspace(low, high + 0.05 * (high - low), BINS + 1)
    for (name, scores), color, _ in [(("known", known), KNOWN_COLOR, "-"), *_styled(novel)]:
        values = np.clip(scores, edges[0], np.nextafter(edges[-1], -np.inf))  # larger scores count in the last bar
        share = np.full(len(values), 100 / len(values))
        look: dict[str, Any] = {"facecolor": to_rgba(color, 0.35), "edgecolor": color, "linewidth": 1.2}
        ax.hist(values, edges.tolist(), weights=share, histtype="stepfilled", label=name, **look)
    if np.isfinite(threshold):
        ax.axvline(threshold, color="0.5", linestyle="--", linewidth=1.2, label="threshold")
    return _finished(ax, "unknown score (larger is more unknown)", "share of the set (%)", xlim=(edges[0], edges[-1]))


def plot_roc(curves: Mapping[str, RocCurve], ax: Axes) -> Axes:
    """Plot the share of accepted known inputs against the share of accepted novel inputs."""
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle=":")
    return _accepted(curves, "known inputs accepted (%)", ax)


def plot_oscr(curves: Mapping[str, OscrCurve], ax: Axes) -> Axes:
    """Plot the share of known inputs accepted with the correct class against accepted novel inputs."""
    return _accepted(curves, "known, accepted and correct (%)", ax)


def _accepted(curves: Mapping[str, RocCurve] | Mapping[str, OscrCurve], ylabel: str, ax: Axes) -> Axes:
    for (name, (_, fpr, known)), color, dash in _styled(curves):
        ax.plot(*_thinned(100 * fpr, 100 * known), color=color, linestyle=dash, label=name)
    return _finished(ax, "novel inputs accepted (%)", ylabel, "lower right", xlim=(-1, 101), ylim=(-1, 101))


def plot_reliability(bins: Mapping[str, ReliabilityBins], ax: Axes) -> Axes:
    """Plot accuracy against confidence; on the diagonal, probabilities are calibrated.

    The area of a point grows with the number of its predictions.
    """
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle=":")
    for (name, each), color in zip(bins.items(), PAIR, strict=False):
        filled = each.counts > 0
        x, y, count = 100 * each.confidence[filled], 100 * each.accuracy[filled], each.counts[filled]
        ax.plot(x, y, color=color, linewidth=1, label=name)
        ax.scatter(x, y, s=6 + 80 * count / each.counts.sum(), color=color)
    return _finished(ax, "probability of the nearest class (%)", "correct (%)", xlim=(-3, 103), ylim=(-3, 103))


def plot_risk_coverage(curves: Mapping[str, RiskCoverage], ax: Axes) -> Axes:
    """Plot the error rate of the accepted inputs against coverage; the most confident inputs are accepted first."""
    for (name, curve), color in zip(curves.items(), PAIR, strict=False):
        ax.plot(*_thinned(100 * curve.coverage, 100 * curve.risk), color=color, label=name)
    ax.set_ylim(bottom=0)
    return _finished(ax, "accepted (%)", "errors among the accepted (%)", xlim=(-1, 101))


def plot_rates(rates: Floats, known: Floats, novel: Mapping[str, Floats], ax: Axes) -> Axes:
    """Plot the shares of known and novel inputs called unknown against the requested false-reject rate."""
    ax.plot(100 * rates, 100 * rates, color="0.5", linewidth=1, linestyle=":", label="requested")
    ax.plot(100 * rates, 100 * known, color=KNOWN_COLOR, label="known")
    for (name, detected), color, dash in _styled(novel):
        ax.plot(100 * rates, 100 * detected, color=color, linestyle=dash, label=name)
    return _finished(ax, "requested false-reject rate (%)", "called unknown (%)", ylim=(-1, 101))


def _finished(ax: Axes, xlabel: str, ylabel: str, loc: Literal["best", "lower right"] = "best", **limits: Any) -> Axes:
    ax.set(xlabel=xlabel, ylabel=ylabel, **limits)
    ax.legend(frameon=False, loc=loc)
    return ax


def _styled(curves: Mapping[str, T]) -> list[tuple[tuple[str, T], str, Any]]:
    """Return the curves of novel sets, each with its colour and dashes."""
    return list(zip(curves.items(), cycle(NOVEL_COLORS), cycle(DASHES), strict=False))


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return at most POINTS points of a curve, including both ends."""
    if len(x) <= POINTS:
        return x, y
    kept = np.unique(np.linspace(0, len(x) - 1, POINTS).astype(int))
    return x[kept], y[kept]
