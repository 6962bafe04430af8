"""The promise as a statistic: over many random splits of real data, the rate is the one asked for."""

import numpy as np
import pytest

from openradial.conformal import PredictionSets, Rejector
from tests.conformal.digit_scores import digit_distances, random_split, standard_error

SPLITS = 300
N = 399  # so that each rate below is a whole number of 400ths, and the promise is an equality

every_rate = pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])


def known_scores(decimals=None):
    distances, y = digit_distances()
    scores = distances.min(1) if decimals is None else distances.min(1).round(decimals)
    return scores, distances.argmin(1), y


def rates_over_splits(rate, scores, seed=0):
    random = np.random.default_rng(seed)
    for _ in range(SPLITS):
        fitting, others = random_split(len(scores), N, random)
        yield Rejector(rate).fit(scores[fitting]).rejects(scores[others]).mean()


@every_rate
def test_the_mean_false_reject_rate_is_the_one_asked_for(rate):
    scores, _, _ = known_scores()
    assert len(np.unique(scores)) == len(scores)
    rates = list(rates_over_splits(rate, scores))
    binomial_error = np.sqrt(rate * (1 - rate) * (1 / N + 1 / (len(scores) - N)) / SPLITS)
    assert abs(np.mean(rates) - rate) < 3 * binomial_error
    assert standard_error(rates) < 1.3 * binomial_error


@every_rate
@pytest.mark.parametrize("decimals", [0, -1])
def test_with_ties_the_rate_is_at_most_the_one_asked_for(rate, decimals):
    scores, _, _ = known_scores(decimals)
    assert len(np.unique(scores)) < len(scores) / 20
    rates = list(rates_over_splits(rate, scores))
    assert np.mean(rates) <= rate + 3 * standard_error(rates)


@every_rate
def test_thinned_scores_keep_the_promise(rate, monkeypatch):
    monkeypatch.setattr("openradial.conformal.calibration.KEEP", 40)
    rates = list(rates_over_splits(rate, known_scores()[0]))
    assert 0 < np.mean(rates) <= rate + 3 * standard_error(rates)


def test_calibrated_by_predicted_class_each_predicted_class_keeps_the_rate():
    scores, predicted, _ = known_scores()
    random, rate = np.random.default_rng(0), 0.1
    per_class, together = [], []
    for _ in range(SPLITS):
        fitting, others = random_split(len(scores), 700, random)
        rejector = Rejector(rate, per_class=True).fit(scores[fitting], predicted[fitting])
        rejected = rejector.rejects(scores[others], predicted[others])
        per_class.append([rejected[predicted[others] == digit].mean() for digit in range(10)])
        together.append(rejected.mean())
    errors = np.std(per_class, axis=0, ddof=1) / SPLITS**0.5
    assert (np.mean(per_class, axis=0) <= rate + 3 * errors).all()
    assert (np.mean(per_class, axis=0) > rate - 0.03).all()
    assert np.mean(together) <= rate + 3 * standard_error(together)


def test_calibrated_by_true_class_what_was_predicted_rightly_keeps_the_rate():
    scores, predicted, y = known_scores()
    random, rate = np.random.default_rng(0), 0.1
    per_class = []
    for _ in range(SPLITS):
        fitting, others = random_split(len(scores), 700, random)
        rejector = Rejector(rate, per_class=True).fit(scores[fitting], y[fitting])
        rejected = rejector.rejects(scores[others], predicted[others])
        right_but_rejected = rejected & (predicted[others] == y[others])
        per_class.append([right_but_rejected[y[others] == digit].mean() for digit in range(10)])
    errors = np.std(per_class, axis=0, ddof=1) / SPLITS**0.5
    assert (np.mean(per_class, axis=0) <= rate + 3 * errors).all()


def test_one_threshold_for_all_does_not_keep_the_rate_of_each_class():
    scores, predicted, _ = known_scores()
    fitting, others = random_split(len(scores), 700, np.random.default_rng(0))
    rejected = Rejector(0.1).fit(scores[fitting]).rejects(scores[others])
    rates = [rejected[predicted[others] == digit].mean() for digit in range(10)]
    assert max(rates) > 0.2


@every_rate
@pytest.mark.parametrize("decimals", [12, 0])
def test_sets_hold_the_true_class_as_often_as_asked(rate, decimals):
    distances, y = digit_distances()
    distances, random = distances.round(decimals), np.random.default_rng(0)
    misses, empty = [], []
    for _ in range(SPLITS):
        fitting, others = random_split(len(y), N, random)
        sets = PredictionSets(rate).fit(distances[fitting], y[fitting]).sets(distances[others])
        misses.append(1 - sets[np.arange(len(others)), y[others]].mean())
        empty.append((~sets.any(1)).mean())
    assert np.mean(misses) <= rate + 3 * standard_error(misses)
    assert decimals == 0 or np.mean(misses) >= rate - 3 * standard_error(misses)
    assert 0 < np.mean(empty) <= np.mean(misses)


def test_sets_per_class_hold_the_true_class_of_every_class_as_often_as_asked():
    distances, y = digit_distances()
    random, rate = np.random.default_rng(0), 0.1
    misses = []
    for _ in range(SPLITS):
        fitting, others = random_split(len(y), 700, random)
        sets = PredictionSets(rate, per_class=True).fit(distances[fitting], y[fitting]).sets(distances[others])
        missed = ~sets[np.arange(len(others)), y[others]]
        misses.append([missed[y[others] == digit].mean() for digit in range(10)])
    errors = np.std(misses, axis=0, ddof=1) / SPLITS**0.5
    assert (np.mean(misses, axis=0) <= rate + 3 * errors).all()
    assert (np.mean(misses, axis=0) > rate - 0.03).all()
