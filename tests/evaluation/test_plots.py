import numpy as np
from matplotlib.figure import Figure

from openradial.evaluation import plots as drawing
from openradial.metrics import risk_coverage_curve, roc_curve


def axes():
    return Figure().subplots()


def test_the_drawn_curves_are_the_given_ones():
    curve = roc_curve([0.1, 0.2, 0.4], [0.3, 0.9])
    line = drawing.plot_roc({"novel": curve}, axes()).lines[-1]
    assert (line.get_xdata() == 100 * curve.fpr).all()
    assert (line.get_ydata() == 100 * curve.tpr).all()
    risk = risk_coverage_curve([0.1, 0.2, 0.3], [True, False, True])
    line = drawing.plot_risk_coverage({"known": risk}, axes()).lines[0]
    assert (line.get_ydata() == 100 * risk.risk).all()


def test_a_long_curve_keeps_its_ends():
    random = np.random.default_rng(0)
    curve = roc_curve(random.normal(size=5000), random.normal(1, 1, size=5000))
    line = drawing.plot_roc({"novel": curve}, axes()).lines[-1]
    x, y = line.get_xdata(), line.get_ydata()
    assert len(x) <= drawing.POINTS
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 100, 100)


def test_histograms_are_shares_and_count_what_lies_beyond():
    known, novel = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, np.inf])
    ax = drawing.plot_scores(known, {"novel": novel}, 3.5, axes())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["known", "novel", "threshold"]
    for patch in ax.patches:
        heights = patch.get_xy()[:, 1]
        assert heights.max() >= 25


def test_more_novel_sets_than_colours_are_drawn():
    curve = roc_curve([0.1], [0.3])
    assert len(drawing.plot_roc({str(i): curve for i in range(8)}, axes()).lines) == 9
