import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from openradial.errors import OptionError
from openradial.metrics import brier, confidences, ece, reliability_bins
from tests.metrics.metric_oracles import brier_by_categories, ece_by_bins, extended, open_world

BINS = st.integers(1, 6)


def softmax_case(rows=400, classes=5, seed=0):
    random = np.random.default_rng(seed)
    probs = random.dirichlet(np.full(classes, 0.5), rows)
    labels = np.array([random.choice(classes, p=row) for row in probs])
    return probs, labels


@given(case=open_world(), bins=BINS)
def test_ece_of_equal_widths_is_the_sum_over_bins(case, bins):
    probs, labels, predictions = case
    edges = [i / bins for i in range(bins + 1)]
    found = ece(probs, labels, predictions, bins=bins)
    assert found == pytest.approx(ece_by_bins(probs, labels, predictions, edges))


@given(case=open_world(), bins=BINS)
def test_ece_of_equal_mass_is_the_sum_over_its_bins(case, bins):
    probs, labels, predictions = case
    confidence = sorted(extended(row)[chosen] for row, chosen in zip(probs, predictions, strict=True))
    ends = {confidence[int(np.ceil(len(confidence) * (i + 1) / bins)) - 1] for i in range(bins)}
    found = ece(probs, labels, predictions, bins=bins, binning="mass")
    assert found == pytest.approx(ece_by_bins(probs, labels, predictions, [confidence[0], *sorted(ends)]))


@given(open_world())
def test_the_winner_is_the_most_probable_of_the_classes_and_unknown(case):
    probs, labels, _ = case
    confidence, correct = confidences(probs, labels)
    for row, y, sure, right in zip(probs, labels, confidence, correct, strict=True):
        q = extended(row)
        winner = max(range(len(q)), key=lambda j: q[j])  # the first of equals, "unknown" last
        assert sure == q[winner]
        assert right == (y == (winner if winner < len(row) else -1))


@given(open_world())
def test_brier_is_the_sum_over_the_classes_and_unknown(case):
    probs, labels, _ = case
    assert brier(probs, labels) == pytest.approx(brier_by_categories(probs, labels))


@given(case=open_world(), bins=BINS, binning=st.sampled_from(["width", "mass"]))
def test_the_order_of_examples_does_not_change_calibration(case, bins, binning):
    probs, labels, predictions = case
    turned = ece(probs[::-1], labels[::-1], predictions[::-1], bins=bins, binning=binning)
    assert turned == pytest.approx(ece(probs, labels, predictions, bins=bins, binning=binning))


@given(case=open_world(), bins=BINS, binning=st.sampled_from(["width", "mass"]))
def test_the_bins_hold_every_example_once_and_ece_is_their_sum(case, bins, binning):
    found = reliability_bins(*case, bins=bins, binning=binning)
    assert found.counts.sum() == len(case[0])
    assert np.array_equal(found.counts == 0, np.isnan(found.accuracy))
    assert np.array_equal(found.counts == 0, np.isnan(found.confidence))
    gaps = np.nan_to_num(abs(found.accuracy - found.confidence)) * found.counts / len(case[0])
    assert ece(*case, bins=bins, binning=binning) == pytest.approx(gaps.sum())


@given(case=open_world(), bins=BINS, binning=st.sampled_from(["width", "mass"]))
def test_mean_confidences_lie_in_their_bins(case, bins, binning):
    found = reliability_bins(*case, bins=bins, binning=binning)
    filled = found.counts > 0
    assert np.all(found.lower[filled] - 1e-12 <= found.confidence[filled])
    assert np.all(found.confidence[filled] <= found.upper[filled] + 1e-12)


def test_a_world_that_sums_to_one_is_the_closed_world():
    probs, labels = softmax_case()
    confidence, correct = confidences(probs.astype(np.float32), labels)
    assert np.array_equal(confidence, probs.astype(np.float32).max(1))
    assert np.array_equal(correct, probs.argmax(1) == labels)
    assert ece(probs, labels) == pytest.approx(ece(probs, labels, probs.argmax(1)))


@pytest.mark.parametrize(("binning", "strategy"), [("width", "uniform"), ("mass", "quantile")])
def test_reliability_agrees_with_scikit_learn(binning, strategy):
    probs, labels = softmax_case(classes=2)
    always_first = np.zeros(len(labels), dtype=int)
    found = reliability_bins(probs, labels, always_first, bins=10, binning=binning)
    accuracy, confidence = calibration_curve(labels == 0, probs[:, 0], n_bins=10, strategy=strategy)
    # scikit-learn's quantiles lie between two probabilities, ours are probabilities: one example may change its bin
    tolerance = 1e-12 if binning == "width" else 0.03
    assert np.allclose(found.accuracy[found.counts > 0], accuracy, atol=tolerance)
    assert np.allclose(found.confidence[found.counts > 0], confidence, atol=tolerance)


def test_brier_agrees_with_scikit_learn():
    probs, labels = softmax_case()
    assert brier(probs, labels) == pytest.approx(brier_score_loss(labels, probs, scale_by_half=False))
    two, y = softmax_case(classes=2)
    assert brier(two, y) == pytest.approx(2 * brier_score_loss(y, two[:, 1]))


def test_a_rejection_counts_with_the_mass_that_is_missing():
    probs = [[0.25, 0.25], [0.25, 0.25]]
    assert confidences(probs, labels=[-1, 0], predictions=[-1, -1])[0].tolist() == [0.5, 0.5]
    assert ece(probs, labels=[-1, 0], predictions=[-1, -1]) == 0  # sure by a half, right in half of the cases
    assert ece(probs, labels=[-1, -1], predictions=[-1, -1]) == 0.5
    assert ece(probs, labels=[0, 1], predictions=[-1, -1]) == 0.5


def test_a_sum_above_one_leaves_nothing_for_unknown():
    confidence, correct = confidences([[0.75, 0.75]], labels=[0])
    assert (confidence.tolist(), correct.tolist()) == ([0.75], [True])
    assert brier([[0.75, 0.75]], labels=[0]) == pytest.approx(0.25**2 + 0.75**2)


def test_perfect_probabilities_have_no_error():
    probs, labels = [[1, 0], [0, 1], [0, 0]], [0, 1, -1]
    assert ece(probs, labels) == 0
    assert brier(probs, labels) == 0


def test_equal_confidences_share_a_bin_of_equal_mass():
    found = reliability_bins([[1.0]] * 4 + [[0.75]] * 2, [0] * 6, bins=3, binning="mass")
    assert found.counts.tolist() == [2, 4]
    assert (found.lower.tolist(), found.upper.tolist()) == ([0.75, 0.75], [0.75, 1.0])


def test_a_probability_that_rounding_put_above_one_is_one():
    assert confidences([[1 + 1e-6]], [0])[0].tolist() == [1.0]


def test_what_is_no_number_of_bins_or_binning_is_refused():
    with pytest.raises(OptionError, match="bins must be a whole number of at least 1, got 0"):
        ece([[1.0]], [0], bins=0)
    with pytest.raises(OptionError, match="binning must be one of 'width', 'mass', got 'quantile'"):
        reliability_bins([[1.0]], [0], binning="quantile")
