import copy
import decimal
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.spatial import distance as scipy_distance

from openradial.errors import HeadError, OptionError
from openradial.heads import OpenMaxHead, load_head, openmax, save_head
from tests.rounding import tolerance

seeds = st.integers(0, 199)
every_form = pytest.mark.parametrize("form", ["shifted", "raw"])
every_distance = pytest.mark.parametrize("distance", ["euclidean", "cosine", "combined"])


def examples(n=60, k=4, seed=0, dtype=torch.float64):
    """Outputs that mostly are largest on their class."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % k
    o = 2 * torch.randn(n, k, dtype=torch.float64, generator=rng) + 6 * torch.eye(k, dtype=torch.float64)[y] - 1
    return o.to(dtype), y


def inputs(n=30, k=4, seed=1, size=5.0):
    return size * torch.randn(n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(means, smallest=0.0, **options):
    """A head whose distances d have the cdf 1 - exp(-(d - smallest + 1))."""
    k = len(means)
    tensors = {"means": torch.tensor(means, dtype=torch.float64), "counts": torch.full((k,), 9)}
    tensors["smallest"] = torch.full((k,), smallest, dtype=torch.float64)
    tensors |= {"shape": torch.ones(k, dtype=torch.float64), "log_scale": torch.zeros(k, dtype=torch.float64)}
    return OpenMaxHead(k, **options).restore(tensors)


def naive_distance(a, b, kind):
    euclidean, cosine = scipy_distance.euclidean(a, b), scipy_distance.cosine(a, b)
    return {"euclidean": euclidean, "cosine": cosine, "combined": euclidean / 200 + cosine}[kind]


def exact_search(objective, start, args, disp):
    return optimize.fmin(objective, start, args=args, disp=disp, xtol=1e-10, ftol=1e-14)


def naive_model(o, y, num_classes, tail, kind):
    """Algorithm 1 of the paper with libMR's translation: mean and Weibull distribution of each class."""
    models = []
    for k in range(num_classes):
        mine = [row for row, label in zip(o, y, strict=True) if label == k and np.argmax(row) == k]
        mean = np.mean(mine, axis=0)
        far = sorted(naive_distance(row, mean, kind) for row in mine)[-tail:]
        models.append((mean, stats.weibull_min(*stats.weibull_min.fit(far, floc=far[0] - 1, optimizer=exact_search))))
    return models


def naive_probabilities(row, models, alpha, kind, form):
    """Algorithm 2 of the paper: unknown first. ``form`` says where activations are counted from."""
    ranked = list(np.argsort(row)[::-1])
    v = np.array(row)
    if form == "shifted":
        v = v - max([np.mean(row), *(row[j] for j in ranked[alpha:])])
    revised, unknown = v.copy(), 0.0
    for rank, j in enumerate(ranked[:alpha]):
        mean, weibull = models[j]
        w = 1 - (alpha - rank) / alpha * weibull.cdf(naive_distance(row, mean, kind))
        if form == "raw" or v[j] > 0:
            revised[j] = v[j] * w
            unknown += v[j] * (1 - w)
    powers = np.exp(np.array([unknown, *revised]))
    return powers / powers.sum()


@every_form
@every_distance
@pytest.mark.parametrize("alpha", [1, 3, 10])
def test_the_probabilities_are_those_of_the_papers_algorithm(form, distance, alpha):
    (o, y), x = examples(), inputs()
    head = OpenMaxHead(4, tail=6, alpha=alpha, distance=distance, form=form).fit(o, y)
    if form == "shifted":
        o, x = o - o.mean(1, keepdim=True), x - x.mean(1, keepdim=True)
    models = naive_model(o.numpy(), y.tolist(), 4, 6, distance)
    expected = np.array([naive_probabilities(row, models, alpha, distance, form) for row in x.numpy()])
    np.testing.assert_allclose(head.log_probs(x).exp(), expected[:, 1:], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(head.unknown_log_prob(x).exp(), expected[:, 0], rtol=1e-5, atol=1e-8)
    odds = np.log(expected[:, 0]) - np.log(expected[:, 1:].sum(1))
    np.testing.assert_allclose(head.unknown_score(x), odds, rtol=1e-4, atol=1e-6)


def test_a_case_by_hand_in_the_raw_form():
    head = by_hand([[3.0, 0.0], [0.0, 4.0]], alpha=2, form="raw")
    first, second = 1 - math.exp(-1), 1 - math.exp(-(5 + 1))  # distances 0 and 5
    unknown, revised = 3 * first, 3 * (1 - first)
    expected = torch.tensor([unknown, revised, 0.0], dtype=torch.float64).softmax(0)
    o = torch.tensor([[3.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(head.log_probs(o)[0].exp(), expected[1:])
    torch.testing.assert_close(head.unknown_log_prob(o).exp(), expected[:1])
    o = torch.tensor([[3.0, 4.0]], dtype=torch.float64)  # distances 4 and 3: class 1 has rank 0
    far = [1 - math.exp(-5), 1 - math.exp(-4)]
    revised = [3 * (1 - far[0] / 2), 4 * (1 - far[1])]
    expected = torch.tensor([7 - sum(revised), *revised], dtype=torch.float64).softmax(0)
    torch.testing.assert_close(head.log_probs(o)[0].exp(), expected[1:])
    assert second > 0.99


def test_a_case_by_hand_in_the_shifted_form():
    head = by_hand([[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0], [-1.0, -1.0, 2.0]], alpha=1)
    o = torch.tensor([[7.0, 4.0, 1.0]], dtype=torch.float64)  # 3, 0, -3 without the mean; counted from the second
    far = 1 - math.exp(-(math.sqrt(1 + 1 + 4) + 1))
    expected = torch.tensor([3 * far, 3 * (1 - far), 0.0, -3.0], dtype=torch.float64).softmax(0)
    torch.testing.assert_close(head.log_probs(o)[0].exp(), expected[1:])
    torch.testing.assert_close(head.unknown_log_prob(o).exp(), expected[:1])


@every_form
def test_nothing_is_taken_from_an_input_nearer_than_every_tail(form):
    head = by_hand(torch.eye(3).tolist(), smallest=1e3, form=form)
    o = inputs(k=3)
    counted = o if form == "raw" else o - o.mean(1, keepdim=True)
    torch.testing.assert_close(head.log_probs(o), F.pad(counted, (1, 0)).log_softmax(1)[:, 1:])
    torch.testing.assert_close(head.predict(o), o.argmax(1))


@given(seed=seeds, form=st.sampled_from(["shifted", "raw"]), alpha=st.integers(1, 5))
def test_classes_and_unknown_sum_to_one(seed, form, alpha):
    head = OpenMaxHead(4, alpha=alpha, form=form).fit(*examples(seed=seed))
    x = inputs(seed=seed)
    torch.testing.assert_close(head.log_probs(x).exp().sum(1) + head.unknown_log_prob(x).exp(), torch.ones(30).double())


@given(seed=seeds, shift=st.floats(-100, 100), alpha=st.integers(1, 6))
def test_adding_a_number_to_all_outputs_changes_nothing(seed, shift, alpha):
    (o, y), x = examples(seed=seed), inputs(seed=seed)
    head = OpenMaxHead(4, alpha=alpha, distance="combined").fit(o, y)
    moved = OpenMaxHead(4, alpha=alpha, distance="combined").fit(o + shift * y.unsqueeze(1), y)
    torch.testing.assert_close(moved.log_probs(x + shift), head.log_probs(x), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(moved.unknown_score(x + shift), head.unknown_score(x), rtol=1e-8, atol=1e-8)


def test_the_raw_form_depends_on_the_zero_of_the_outputs():
    head = OpenMaxHead(4, form="raw").fit(*examples())
    assert not torch.allclose(head.log_probs(inputs() + 10), head.log_probs(inputs()), atol=0.1)


@given(seed=seeds, alpha=st.integers(1, 3))
def test_the_shifted_form_raises_no_activation(seed, alpha):
    head, o = OpenMaxHead(4, alpha=alpha).fit(*examples(seed=seed)), inputs(seed=seed)
    last = o.argmin(1, keepdim=True)  # never revised
    gain = (head.log_probs(o) - head.log_probs(o).gather(1, last)) - (o - o.gather(1, last))
    assert (gain <= 1e-9).all()


def test_the_raw_form_calls_far_away_negative_outputs_known():
    head, o = by_hand([[5.0, 0.0], [0.0, 5.0]], alpha=2, form="raw"), torch.tensor([[-8.0, -9.0]])
    assert head.unknown_score(o) < -12  # -8 is raised to 0 and the unknown lowered to -12.5


@given(seed=seeds, farther=st.floats(1, 100), alpha=st.integers(1, 5))
def test_a_winning_class_that_is_farther_away_leaves_no_less_to_the_unknown(seed, farther, alpha):
    head, o = OpenMaxHead(4, alpha=alpha).fit(*examples(seed=seed)), inputs(1, seed=seed)
    winner = o.argmax(1)
    away = copy.deepcopy(head)
    centred = o - o.mean(1, keepdim=True)
    away.means[winner] = centred + farther * (head.means[winner] - centred)
    assert away.unknown_log_prob(o) >= head.unknown_log_prob(o) - 1e-12
    assert away.unknown_score(o) >= head.unknown_score(o) - 1e-12


@every_form
@every_distance
def test_swapping_classes_swaps_results(form, distance):
    (o, y), x, order = examples(), inputs(), torch.tensor([2, 0, 3, 1])
    head = OpenMaxHead(4, alpha=3, distance=distance, form=form).fit(o, y)
    swapped = OpenMaxHead(4, alpha=3, distance=distance, form=form).fit(o[:, order], order.argsort()[y])
    torch.testing.assert_close(swapped.log_probs(x[:, order]), head.log_probs(x)[:, order])
    torch.testing.assert_close(swapped.unknown_score(x[:, order]), head.unknown_score(x))


@every_form
@every_distance
@pytest.mark.parametrize("k", [3, 37, 1000])
def test_a_row_has_the_same_answer_alone_and_in_a_batch(form, distance, k):
    head = OpenMaxHead(k, tail=3, distance=distance, form=form).fit(*examples(2 * k + 5, k, dtype=torch.float32))
    x = torch.cat([inputs(20, k), torch.full((1, k), 1e30, dtype=torch.float64)])
    for answer in (head.log_probs, head.unknown_score, head.unknown_log_prob):
        alone = torch.cat([answer(row) for row in x.split(1)])
        torch.testing.assert_close(answer(x), alone, **tolerance(4 * k, torch.float64))  # four sums over the classes


def test_a_clear_winner_next_to_its_mean_is_known_however_far_the_other_classes_are():
    o = torch.tensor([[13.0, 4.0, 1.0, -1.0, -4.0, -9.0]])
    means = 13 * torch.eye(6) - 13 / 6
    means[0] = o[0] - o.mean()
    head = by_hand(means.tolist(), smallest=9.0)
    assert head.unknown_score(o) < -5
    assert head.predict(o) == 0


@every_form
def test_an_input_far_from_all_classes_is_unknown(form):
    head = OpenMaxHead(4, form=form).fit(*examples())
    o = torch.tensor([[300.0, 200.0, 0.0, 0.0]])
    assert head.unknown_log_prob(o).exp() > 0.999


@every_form
def test_scores_tell_inputs_apart_whose_unknown_probability_rounds_to_one(form):
    head = OpenMaxHead(4, form=form).fit(*examples())
    o = torch.arange(100.0, 200.0).unsqueeze(1) * torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    assert (head.unknown_log_prob(o) == 0).all()
    assert (head.unknown_score(o).diff() > 0).all()


@every_form
@every_distance
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_very_large_outputs_have_finite_answers(form, distance, dtype):
    head = OpenMaxHead(3, distance=distance, form=form).fit(*examples(k=3))
    signs = torch.cartesian_prod(*3 * [torch.tensor([-1.0, 0.0, 0.1, 1.0])]).to(dtype)
    for size in (1e4, 1e30, torch.finfo(dtype).max):
        o = size * signs
        for answer in (head.log_probs(o), head.unknown_score(o), head.unknown_log_prob(o)):
            assert answer.dtype == dtype
            assert answer.isfinite().all()
    infinite = torch.tensor([[math.inf, 0.0, -math.inf], [math.inf, math.inf, math.inf]], dtype=dtype)
    assert head.log_probs(infinite).isfinite().all()


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_very_large_outputs_are_unknown_whatever_their_signs(size):
    head = OpenMaxHead(3).fit(*examples(k=3))
    o = size * torch.tensor([[1.0, 0.1, 0.1], [1.0, -1.0, 1.0], [-1.0, 1.0, -1.0], [-3.0, -2.0, -1.0]])
    assert (head.unknown_log_prob(o) == 0).all()


def test_outputs_up_to_the_largest_number_can_be_learned_from():
    o, y = examples(dtype=torch.float64)
    head = OpenMaxHead(4, distance="combined").fit(1e306 * o, y)
    assert all(value.isfinite().all() for value in head.tensors().values())
    assert head.log_probs(1e306 * inputs()).isfinite().all()


@every_form
@every_distance
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_examples_per_class_are_enough(form, distance, count):
    o, y = 5 * torch.eye(4).repeat(count, 1) + inputs(4 * count, seed=3, size=0.3), torch.arange(4).repeat(count)
    head = OpenMaxHead(4, distance=distance, form=form).fit(o, y)
    assert all(value.isfinite().all() for value in head.tensors().values())
    assert head.log_probs(inputs()).isfinite().all()
    assert head.unknown_score(inputs()).isfinite().all()


def test_equal_examples_are_learned_from_and_zero_outputs_have_an_answer():
    head = OpenMaxHead(2, distance="combined").fit(torch.eye(2).repeat(5, 1), torch.arange(2).repeat(5))
    assert head.shape.tolist() == [1.0, 1.0]
    torch.testing.assert_close(head.log_probs(torch.zeros(1, 2)).exp(), torch.full((1, 2), 1 / 3))


@every_form
def test_a_class_without_a_correct_example_is_named_and_not_revised(form):
    o, y = examples()
    o[y == 2] = o[y == 2].roll(1, 1)  # each is now taken for class 3
    head = OpenMaxHead(4, form=form).fit(o, y)
    assert head.missing_classes == [2]
    assert head.counts[2] == 0
    x = torch.tensor([[-50.0, -50.0, 150.0, -50.0], [0.0, 0.0, 90.0, 80.0]])
    assert head.log_probs(x).isfinite().all()
    assert head.predict(x[:1]) == 2
    assert head.unknown_score(x)[0] < -100


def test_only_correct_examples_are_learned_from():
    o, y = examples()
    right = o.argmax(1) == y
    assert not right.all()
    head, other = OpenMaxHead(4).fit(o, y), OpenMaxHead(4).fit(o[right], y[right])
    assert head.counts.tolist() == torch.bincount(y[right], minlength=4).tolist()
    assert torch.equal(head.log_probs(inputs()), other.log_probs(inputs()))


def test_no_correct_example_at_all_is_refused():
    message = (
        "OpenMaxHead learns from correctly classified examples, got none among 2; check that the labels belong to the "
        "outputs and that the network is trained"
    )
    with pytest.raises(HeadError, match=f"^{re.escape(message)}$"):
        OpenMaxHead(2).fit(torch.eye(2), torch.tensor([1, 0]))


def test_fitting_in_blocks_is_fitting_at_once(monkeypatch):
    expected = OpenMaxHead(4, distance="combined").fit(*examples())
    monkeypatch.setattr(openmax, "SUMMED", 4 * 7)
    monkeypatch.setattr(openmax, "MEASURED", 1)
    for name, value in OpenMaxHead(4, distance="combined").fit(*examples()).tensors().items():
        torch.testing.assert_close(value, getattr(expected, name), rtol=1e-12, atol=1e-12)


@every_distance
def test_distances_next_to_a_far_away_mean_keep_their_digits(distance):
    offset = torch.tensor([[1e6, 2e6, -1e6]], dtype=torch.float64)
    step = 2.0**-10 * torch.tensor([[1.0, -2.0, 2.0]], dtype=torch.float64)
    head = OpenMaxHead(3, distance=distance, form="raw")
    with decimal.localcontext(prec=60):
        a, b = ([decimal.Decimal(value) for value in row[0].tolist()] for row in (offset, offset + step))
        cosine = float(1 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt())  # 4e-19
    expected = {"euclidean": 3 * 2.0**-10, "cosine": cosine, "combined": 3 * 2.0**-10 / 200 + cosine}[distance]
    assert head._distances(offset + step, offset).item() == pytest.approx(expected, rel=1e-6, abs=0)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_gradients_are_those_of_finite_differences():
    head, x = OpenMaxHead(4, alpha=3, distance="combined").fit(*examples()), inputs(5, size=2.0).requires_grad_()
    assert torch.autograd.gradcheck(head.log_probs, x)
    assert torch.autograd.gradcheck(head.unknown_score, x)


def test_one_class_and_more_ranks_than_classes_are_allowed():
    head = OpenMaxHead(1, alpha=3).fit(torch.rand(9, 1), torch.zeros(9, dtype=torch.int64))
    torch.testing.assert_close(head.log_probs(torch.rand(5, 1)).exp(), torch.full((5, 1), 0.5))


def test_the_loss_is_the_cross_entropy():
    o, y = examples()
    assert torch.equal(OpenMaxHead(4).loss(o, y), F.cross_entropy(o, y))


def test_before_its_fit_it_predicts_like_the_softmax_but_knows_no_probabilities():
    head, x = OpenMaxHead(4), inputs()
    assert torch.equal(head.predict(x), x.argmax(1))
    message = "OpenMaxHead must be fitted first: call fit(outputs, labels) with known data"
    for call in (head.log_probs, head.unknown_score, head.unknown_log_prob):
        with pytest.raises(HeadError, match=f"^{re.escape(message)}$"):
            call(x)
    with pytest.raises(HeadError, match=f"^{re.escape(message)}$"):
        _ = head.missing_classes


def test_a_file_keeps_every_setting_and_every_bit(tmp_path):
    head = OpenMaxHead(4, tail=7, alpha=3, distance="combined", form="raw").fit(*examples())
    save_head(head, tmp_path / "head.safetensors")
    loaded = load_head(tmp_path / "head.safetensors")
    assert loaded.settings() == {"num_classes": 4, "tail": 7, "alpha": 3, "distance": "combined", "form": "raw"}
    assert torch.equal(loaded.log_probs(inputs()), head.log_probs(inputs()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tail": 1}, "tail must be a whole number of at least 2, got 1"),
        ({"alpha": 0}, "alpha must be a whole number of at least 1, got 0"),
        ({"distance": "manhattan"}, "distance must be one of 'euclidean', 'cosine', 'combined', got 'manhattan'"),
        ({"form": "centred"}, "form must be one of 'shifted', 'raw', got 'centred'"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        OpenMaxHead(3, **options)
