import numpy as np
import pytest
from scipy import stats

from openradial.conformal import Rejector, false_reject_report
from tests.conformal.digit_scores import digit_distances


def test_the_report_counts_and_bounds():
    scores = digit_distances()[0].min(1)
    rejector = Rejector(0.05).fit(scores[:600])
    report = false_reject_report(scores[600:], rejector)
    rejected = int(rejector.rejects(scores[600:]).sum())
    interval = stats.binomtest(rejected, 597).proportion_ci(0.95, method="exact")
    assert (report.asked, report.rejected, report.examples, report.confidence) == (0.05, rejected, 597, 0.95)
    assert report.measured == rejected / 597
    assert (report.low, report.high) == pytest.approx(tuple(interval))
    assert report.is_kept


def test_another_rate_and_confidence_can_be_asked_for():
    scores = digit_distances()[0].min(1)
    report = false_reject_report(scores[600:], Rejector(0.05).fit(scores[:600]), false_reject_rate=0.2, confidence=0.5)
    assert (report.asked, report.confidence) == (0.2, 0.5)
    assert 0.15 < report.low < report.measured < report.high < 0.25


def test_other_data_than_the_calibrated_shows():
    scores = digit_distances()[0].min(1)
    report = false_reject_report(1.3 * scores[600:], Rejector(0.05).fit(scores[:600]))
    assert not report.is_kept
    assert report.low > 0.05


def test_per_class_the_report_takes_labels():
    distances, _ = digit_distances()
    scores, predicted = distances.min(1), distances.argmin(1)
    rejector = Rejector(0.1, per_class=True).fit(scores[:900], predicted[:900])
    report = false_reject_report(scores[900:], rejector, predicted[900:])
    assert report.rejected == rejector.rejects(scores[900:], predicted[900:]).sum()


def test_the_report_says_it_in_one_line():
    report = false_reject_report(np.arange(50.0), Rejector(0.1).fit(np.arange(99.0)))
    assert str(report) == "false-reject rate: asked 0.1, measured 0 (0 of 50; 95 % interval 0 to 0.07112)"
