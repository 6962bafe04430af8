import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.errors import OptionError
from openradial.heads import DOCHead

alphas = st.floats(0.1, 6)
seeds = st.integers(0, 99)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def naive_thresholds(o, y, num_classes, alpha):
    """As the paper says it, with the mirrored points really made."""
    thresholds = []
    for i in range(num_classes):
        seen = [sigmoid(row[i]) for row, k in zip(o, y, strict=True) if k == i]
        both = seen + [1 + (1 - p) for p in seen]
        sigma = math.sqrt(sum((p - 1) ** 2 for p in both) / len(both)) if both else math.inf
        thresholds.append(max(0.5, 1 - alpha * sigma))
    return thresholds


def naive_decision(row, thresholds):
    p = [sigmoid(x) for x in row]
    return -1 if all(p_i < t_i for p_i, t_i in zip(p, thresholds, strict=True)) else p.index(max(p))


def naive_loss(o, y):
    total = 0.0
    for row, k in zip(o, y, strict=True):
        for i, x in enumerate(row):
            total -= math.log(sigmoid(x)) if i == k else math.log(1 - sigmoid(x))
    return total / len(o)


def examples(n=24, k=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % k
    return 2 * torch.randn(n, k, dtype=torch.float64, generator=rng) + 5 * torch.eye(k)[y] - 1, y


@given(alpha=alphas, seed=seeds)
def test_thresholds_are_those_of_the_mirrored_gaussian(alpha, seed):
    o, y = examples(seed=seed)
    expected = naive_thresholds(o.tolist(), y.tolist(), 3, alpha)
    np.testing.assert_allclose(DOCHead(3, alpha).fit(o, y).thresholds, expected, rtol=1e-9)


@given(alpha=alphas, seed=seeds)
def test_decisions_are_the_papers_and_a_score_above_zero_is_a_rejection(alpha, seed):
    o, y = examples(seed=seed)
    x = 3 * torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    head = DOCHead(3, alpha).fit(o, y)
    thresholds = naive_thresholds(o.tolist(), y.tolist(), 3, alpha)
    expected = [naive_decision(row, thresholds) for row in x.tolist()]
    assert head.decide(x).tolist() == expected
    assert (head.unknown_score(x) > 0).tolist() == [label == -1 for label in expected]


@given(seed=seeds)
def test_the_score_is_how_far_the_best_class_is_below_its_threshold(seed):
    o, y = examples(seed=seed)
    head = DOCHead(3).fit(o, y)
    thresholds = naive_thresholds(o.tolist(), y.tolist(), 3, 3.0)
    expected = [-max(sigmoid(x) - t for x, t in zip(row, thresholds, strict=True)) for row in o.tolist()]
    np.testing.assert_allclose(head.unknown_score(o), expected, rtol=1e-9, atol=1e-12)


@given(seed=seeds)
def test_the_loss_is_the_sum_of_binary_cross_entropies_averaged_over_the_batch(seed):
    o, y = examples(seed=seed)
    assert DOCHead(3).loss(o, y).item() == pytest.approx(naive_loss(o.tolist(), y.tolist()), rel=1e-9)


@given(seed=seeds)
def test_log_probabilities_are_log_sigmoids(seed):
    o, _ = examples(seed=seed)
    expected = [[math.log(sigmoid(x)) for x in row] for row in o.tolist()]
    np.testing.assert_allclose(DOCHead(3).log_probs(o), expected, rtol=1e-9)


def logit(p):
    return math.log(p / (1 - p))


def test_thresholds_worked_out_by_hand():
    """Class 0: 0.9 twice, sigma 0.1. Class 1: 0.9 and 1.0, sigma sqrt(0.005). Class 2: 0.5 once, sigma 0.5."""
    o = torch.full((5, 3), -9.0, dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1, 2])
    for i, p in enumerate([0.9, 0.9, 0.9, 1 - 1e-15, 0.5]):
        o[i, y[i]] = logit(p)
    head = DOCHead(3).fit(o, y)
    assert head.sigma.tolist() == pytest.approx([0.1, math.sqrt(0.005), 0.5])
    assert head.thresholds.tolist() == pytest.approx([0.7, 1 - 3 * math.sqrt(0.005), 0.5])
    assert head.counts.tolist() == [2, 2, 1]


def test_the_deviation_is_taken_about_one_and_not_about_the_mean():
    """All examples at 0.9 have no spread of their own."""
    o = torch.full((10, 1), logit(0.9), dtype=torch.float64)
    assert DOCHead(1).fit(o, torch.zeros(10, dtype=torch.int64)).sigma.item() == pytest.approx(0.1)


def test_an_input_exactly_on_the_threshold_is_accepted():
    head = DOCHead(2).fit(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert head.thresholds.tolist() == [0.5, 0.5]
    below = torch.tensor([[0.0, -1.0], [-1e-6, -1.0]])
    assert head.unknown_score(below)[0] == 0
    assert head.decide(below).tolist() == [0, -1]


def test_an_input_may_be_accepted_by_a_class_that_is_not_the_most_probable():
    """The paper rejects only what all classes reject, then takes the most probable class."""
    o = torch.tensor([[9.0, -9.0], [9.0, -9.0], [-9.0, 0.0], [-9.0, 0.0]])
    head = DOCHead(2).fit(o, torch.tensor([0, 0, 1, 1]))
    assert head.decide(torch.tensor([[1.0, 0.5]])).tolist() == [0]


def test_a_class_without_examples_is_named_and_has_the_lowest_threshold():
    o, y = examples()
    head = DOCHead(5).fit(torch.cat([o, o[:, :2] - 5], 1), y)
    assert head.missing_classes == [3, 4]
    assert head.counts.tolist() == [8, 8, 8, 0, 0]
    assert head.thresholds[3:].tolist() == [0.5, 0.5]
    assert head.unknown_score(torch.randn(9, 5)).isfinite().all()
    assert DOCHead(3).fit(o, y).missing_classes == []


def test_sure_inputs_keep_their_order_in_float32():
    o = torch.tensor([[20.0, -20.0], [-20.0, 20.0]])
    head = DOCHead(2).fit(o, torch.tensor([0, 1]))
    score = head.unknown_score(torch.tensor([[19.0, -9.0], [18.0, -9.0], [17.0, -9.0]]))
    expected = [1 / (1 + math.exp(x)) - 3 / (1 + math.exp(20)) for x in (19, 18, 17)]
    assert score.tolist() == pytest.approx(expected, rel=1e-5, abs=0)


def test_extreme_outputs_overflow_nowhere():
    o = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    head = DOCHead(2).fit(o, torch.tensor([0, 1]))
    assert head.loss(o, torch.tensor([0, 1])) == 0
    wrong = head.loss(o, torch.tensor([1, 0]))
    assert wrong == 2e4
    wrong.backward()
    torch.testing.assert_close(o.grad, torch.tensor([[0.5, -0.5], [-0.5, 0.5]]))
    assert head.decide(o).tolist() == [0, 1]
    assert head.decide(torch.full((1, 2), -1e4)).tolist() == [-1]


def test_two_saturated_sigmoids_are_told_apart_by_their_outputs():
    head, o = DOCHead(2), torch.tensor([[200.0, 300.0]])
    assert head.log_probs(o).tolist() == [[0.0, 0.0]]
    assert head.predict(o).tolist() == [1]


def test_nan_is_rejected():
    o, y = examples()
    assert DOCHead(3).fit(o, y).decide(torch.tensor([[torch.nan, 9.0, 0.0]])).tolist() == [-1]


def test_alpha_must_be_positive():
    with pytest.raises(OptionError, match=re.escape("alpha must be a finite number above 0, got -1")):
        DOCHead(3, alpha=-1)
