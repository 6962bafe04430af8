import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial import functional
from openradial.errors import OptionError
from openradial.heads import CACHead

seeds = st.integers(0, 99)
magnitudes = st.floats(0.5, 20)


def distance(row, point):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(row, point, strict=True)))


def anchors(num_classes, magnitude):
    return [[magnitude if i == j else 0.0 for i in range(num_classes)] for j in range(num_classes)]


def naive_loss(o, y, magnitude, weight):
    """The tuplet term and the weighed anchor term, one class at a time."""
    total = 0.0
    for row, k in zip(o, y, strict=True):
        d = [distance(row, c) for c in anchors(len(row), magnitude)]
        others = sum(math.exp(d[k] - d[j]) for j in range(len(row)) if j != k)
        total += math.log(1 + others) + weight * d[k]
    return total / len(o)


def naive_softmin(d):
    least = min(d)
    weights = [math.exp(least - x) for x in d]
    return [w / sum(weights) for w in weights]


def naive_score(row, centres):
    """The smallest of the distances weighed by 1 - softmin."""
    d = [distance(row, c) for c in centres]
    return min(x * (1 - s) for x, s in zip(d, naive_softmin(d), strict=True))


def naive_centres(o, y, num_classes, magnitude):
    centres = anchors(num_classes, magnitude)
    for j in range(num_classes):
        correct = [row for row, k in zip(o, y, strict=True) if k == j and row.index(max(row)) == j]
        if correct:
            centres[j] = [sum(column) / len(correct) for column in zip(*correct, strict=True)]
    return centres


def examples(n=30, k=4, magnitude=10.0, seed=0):
    """Outputs around the anchors, some nearer to a wrong one."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(k, (n,), generator=rng)
    noise = 0.4 * magnitude * torch.randn(n, k, dtype=torch.float64, generator=rng)
    return magnitude * torch.eye(k, dtype=torch.float64)[y] + noise, y


@given(magnitude=magnitudes, weight=st.floats(0, 2), seed=seeds)
def test_the_loss_equals_the_paper(magnitude, weight, seed):
    o, y = examples(magnitude=magnitude, seed=seed)
    expected = naive_loss(o.tolist(), y.tolist(), magnitude, weight)
    assert CACHead(4, magnitude, weight).loss(o, y).item() == pytest.approx(expected, rel=1e-9)


@given(magnitude=magnitudes, seed=seeds)
def test_centres_and_scores_equal_those_of_the_authors(magnitude, seed):
    o, y = examples(magnitude=magnitude, seed=seed)
    head = CACHead(4, magnitude).fit(o, y)
    centres = naive_centres(o.tolist(), y.tolist(), 4, magnitude)
    np.testing.assert_allclose(head.centres, centres, rtol=1e-9, atol=1e-12)
    expected = [naive_score(row, centres) for row in o.tolist()]
    np.testing.assert_allclose(head.unknown_score(o), expected, rtol=1e-7, atol=1e-13)


@pytest.mark.parametrize("is_fitted", [False, True])
@given(magnitude=magnitudes, seed=seeds)
def test_log_probabilities_are_the_log_softmin_of_the_distances(is_fitted, magnitude, seed):
    o, y = examples(magnitude=magnitude, seed=seed)
    head, points = CACHead(4, magnitude), anchors(4, magnitude)
    if is_fitted:
        head.fit(o, y)
        points = head.centres.tolist()
    expected = [[math.log(s) for s in naive_softmin([distance(row, p) for p in points])] for row in o.tolist()]
    np.testing.assert_allclose(head.log_probs(o), expected, rtol=1e-7, atol=1e-12)


@given(magnitude=magnitudes, seed=seeds)
def test_our_score_is_the_distance_to_the_nearest_anchor_fitted_or_not(magnitude, seed):
    o, y = examples(magnitude=magnitude, seed=seed)
    expected = [min(distance(row, p) for p in anchors(4, magnitude)) for row in o.tolist()]
    head = CACHead(4, magnitude, score="distance")
    np.testing.assert_allclose(head.unknown_score(o), expected, rtol=1e-9)
    before = head.log_probs(o)
    np.testing.assert_allclose(head.fit(o, y).unknown_score(o), expected, rtol=1e-9)
    assert torch.equal(head.log_probs(o), before)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_every_other_class_is_a_negative_the_last_one_too(k):
    """On the anchor of j with target y: d_j is 0 and all other distances are sqrt(2) * magnitude."""
    side = math.sqrt(2) * 3
    for y in range(k):
        for j in set(range(k)) - {y}:
            o = 3.0 * torch.eye(k, dtype=torch.float64)[j : j + 1]
            expected = math.log(1 + (k - 2) + math.exp(side)) + 0.1 * side
            assert CACHead(k, 3.0).loss(o, torch.tensor([y])).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_the_target_is_not_its_own_negative(k):
    """On the own anchor only the k - 1 others add to the 1; with the target among them it would be a 2."""
    expected = math.log1p((k - 1) * math.exp(-math.sqrt(2) * 3))
    loss = CACHead(k, 3.0).loss(3.0 * torch.eye(k, dtype=torch.float64), torch.arange(k))
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_nearest_wrong_class_weighs_most_wherever_it_is():
    """Swapping two wrong classes changes nothing; moving towards either raises the loss equally."""
    head, y = CACHead(4), torch.tensor([1])
    o = torch.tensor([[2.0, 10.0, 3.0, 6.0]], dtype=torch.float64)
    for swap in ([3, 1, 2, 0], [2, 1, 0, 3], [0, 1, 3, 2]):
        torch.testing.assert_close(head.loss(o[:, swap], y), head.loss(o, y))


@pytest.mark.parametrize("is_fitted", [False, True])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_far_outputs_lose_no_digits_in_float32(size, is_fitted):
    """In float32, a difference of two distances of a million is known to 0.06."""
    o, y = size * torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 5
    head = CACHead(5).fit(*examples(k=5)) if is_fitted else CACHead(5)
    torch.testing.assert_close(head.log_probs(o), head.log_probs(o.double()).float(), rtol=1e-5, atol=2e-5)
    assert head.loss(o, y).item() == pytest.approx(head.loss(o.double(), y).item(), rel=1e-6)


@pytest.mark.parametrize("distance", [0.0, 1e-5, 1e-2])
def test_next_to_a_centre_the_score_keeps_its_digits_in_float32(distance):
    head = CACHead(4, magnitude=2.0).fit(*examples(magnitude=2.0))
    o = head.centres.float() + distance * torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    head.float()
    expected = [naive_score(row, head.centres.double().tolist()) for row in o.double().tolist()]
    np.testing.assert_allclose(head.unknown_score(o), expected, rtol=2e-5, atol=1e-12)


def test_autocast_changes_no_answer():
    o, y = examples()
    head, o = CACHead(4).fit(o, y), o.float()
    with torch.autocast("cpu", torch.bfloat16):
        found = head.log_probs(o), head.unknown_score(o)
    assert torch.equal(found[0], head.log_probs(o))
    assert torch.equal(found[1], head.unknown_score(o))


def test_log_probabilities_have_finite_gradients_on_a_centre():
    head = CACHead(4).fit(*examples())
    o = head.centres.clone().requires_grad_()
    head.log_probs(o).diagonal().sum().backward()
    assert o.grad.isfinite().all()


def test_large_distances_overflow_nowhere():
    o = torch.tensor([[0.0, 1e6], [0.0, 1e30], [-1e30, -1e30]], requires_grad=True)
    head = CACHead(2, magnitude=1e3)
    loss = head.loss(o, torch.tensor([0, 0, 1]))
    assert loss.isfinite()
    loss.backward()
    assert o.grad.isfinite().all()
    assert head.log_probs(o).isfinite().all()


def test_many_classes_take_no_matrix_of_anchors():
    """N * K * K numbers would be 32 GB here."""
    o = torch.randn(8, 32_000, requires_grad=True)
    CACHead(32_000).loss(o, torch.arange(8)).backward()
    assert o.grad.isfinite().all()


def test_gradients_are_those_of_the_plain_formula():
    o, y = examples(seed=3)
    o.requires_grad_()
    d = (o.unsqueeze(1) - 10 * torch.eye(4, dtype=torch.float64)).norm(dim=2)
    own = d.gather(1, y.unsqueeze(1))
    others = (own - d).exp().scatter(1, y.unsqueeze(1), 0.0).sum(1)
    (expected,) = torch.autograd.grad((1 + others).log().mean() + 0.1 * own.mean(), o)
    (found,) = torch.autograd.grad(CACHead(4).loss(o, y), o)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_class_without_a_correct_example_keeps_its_anchor_and_is_named():
    o = torch.tensor([[9.0, 0.0, 0.0], [11.0, 2.0, 0.0], [3.0, 1.0, 0.0]])
    head = CACHead(3).fit(o, torch.tensor([0, 0, 1]))
    assert head.centres.tolist() == [[10.0, 1.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]]
    assert head.counts.tolist() == [2, 0, 0]
    assert head.missing_classes == [1, 2]
    assert head.unknown_score(o).isfinite().all()
    assert CACHead(3, score="distance").missing_classes == []


def test_the_authors_score_on_an_anchor_is_zero_and_midway_it_is_half_the_distance():
    head = CACHead(2).fit(10 * torch.eye(2), torch.arange(2))
    score = head.unknown_score(torch.tensor([[10.0, 0.0], [5.0, 5.0]]))
    assert score.tolist() == pytest.approx([0.0, math.sqrt(50) / 2])


def test_overshooting_an_anchor_is_nearly_known_to_the_authors_and_unknown_to_us():
    o, beyond = 10 * torch.eye(4), torch.tensor([[1000.0, 0.0, 0.0, 0.0]])
    authors, ours = (CACHead(4, score=score).fit(o, torch.arange(4)) for score in ("authors", "distance"))
    d, other = 990.0, math.hypot(1000, 10)
    rest = 3 * math.exp(d - other)
    assert authors.unknown_score(beyond).item() == pytest.approx(d * rest / (1 + rest), rel=1e-5)
    assert authors.unknown_score(beyond).item() < 0.2
    assert (authors.unknown_score(beyond) > authors.unknown_score(o)).all()
    assert ours.unknown_score(beyond).item() == 990.0


def test_the_smallest_product_is_that_of_the_nearest_centre():
    o, y = examples(seed=5)
    head = CACHead(4).fit(o, y)
    d = functional.radial_distances(o, prototypes=head.centres)
    products = d * (1 - (-d).softmax(1))
    torch.testing.assert_close(head.unknown_score(o), products.amin(1))
    assert torch.equal(head.predict(o), products.argmin(1))


def test_without_anchor_weight_the_tuplet_term_is_left():
    o, y = torch.tensor([[5.0, 5.0]]), torch.tensor([0])
    assert CACHead(2, anchor_weight=0).loss(o, y).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"magnitude": 0}, "magnitude must be a finite number above 0, got 0"),
        ({"anchor_weight": -0.1}, "anchor_weight must be a finite number of at least 0, got -0.1"),
        ({"score": "radial"}, "score must be one of 'authors', 'distance', got 'radial'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        CACHead(3, **options)
