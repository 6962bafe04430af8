import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.errors import HeadError, OptionError
from openradial.heads import SoftmaxHead
from openradial.heads.softmax import best_temperature, entropy_score, msp_score

rows = st.integers(0, 99).map(
    lambda seed: 5 * torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
)
temperatures = st.floats(0.2, 50)


def naive_probs(row, temperature):
    weights = [math.exp(x / temperature) for x in row]
    return [w / sum(weights) for w in weights]


def naive_score(row, score, temperature):
    if score == "max_logit":
        return -max(row)
    if score == "energy":
        return -temperature * math.log(sum(math.exp(x / temperature) for x in row))
    probs = naive_probs(row, temperature)
    return 1 - max(probs) if score == "msp" else -sum(p * math.log(p) for p in probs)


def naive_nll(o, y, temperature):
    return -sum(math.log(naive_probs(row, temperature)[k]) for row, k in zip(o, y, strict=True)) / len(o)


@given(o=rows, temperature=temperatures)
def test_log_probabilities_are_those_of_softmax_with_the_temperature(o, temperature):
    expected = [[math.log(p) for p in naive_probs(row, temperature)] for row in o.tolist()]
    np.testing.assert_allclose(SoftmaxHead(3, temperature=temperature).log_probs(o), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("score", ["msp", "max_logit", "energy", "entropy"])
@given(o=rows, temperature=temperatures)
def test_scores_equal_their_definition(score, o, temperature):
    expected = [naive_score(row, score, temperature) for row in o.tolist()]
    found = SoftmaxHead(3, score, temperature).unknown_score(o)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


@given(o=rows)
def test_the_loss_is_the_cross_entropy_whatever_the_temperature(o):
    y = [0, 1, 2, 0, 1, 2]
    for temperature in (1.0, 7.0, "fit"):
        loss = SoftmaxHead(3, temperature=temperature).loss(o, torch.tensor(y))
        assert loss.item() == pytest.approx(naive_nll(o.tolist(), y, 1.0), rel=1e-9)


def test_the_msp_score_of_two_equal_outputs_is_one_half():
    assert SoftmaxHead(2).unknown_score(torch.tensor([[7.0, 7.0]])).tolist() == [0.5]
    assert SoftmaxHead(4).unknown_score(torch.zeros(1, 4)).tolist() == [0.75]


def test_the_energy_of_equal_outputs_is_minus_their_value_and_the_logarithm_of_their_number():
    score = SoftmaxHead(4, "energy").unknown_score(torch.full((1, 4), 3.0))
    assert score.item() == pytest.approx(-3 - math.log(4))


@pytest.mark.parametrize("score", ["msp", "max_logit", "energy", "entropy"])
def test_extreme_outputs_overflow_nowhere(score):
    o = torch.tensor([[1e4, -1e4], [-1e4, -1e4], [1e4, 1e4], [1e4, 1e4 - 1]])
    head = SoftmaxHead(2, score)
    assert head.log_probs(o).isfinite().all()
    assert head.unknown_score(o).tolist() == pytest.approx(
        {
            "msp": [0.0, 0.5, 0.5, 1 / (1 + math.e)],
            "max_logit": [-1e4, 1e4, -1e4, -1e4],
            "entropy": [0.0, math.log(2), math.log(2), math.log1p(1 / math.e) + 1 / (1 + math.e)],
            "energy": [-1e4, 1e4 - math.log(2), -1e4 - math.log(2), -1e4 - math.log1p(1 / math.e)],
        }[score],
        rel=1e-6,
    )


def test_sure_inputs_keep_their_order():
    """In float32, 1 - p is 0 for both."""
    o = torch.tensor([[30.0, 0.0], [40.0, 0.0]])
    assert (1 - o.softmax(1).amax(1)).tolist() == [0, 0]
    expected = pytest.approx([math.exp(-30), math.exp(-40)], rel=1e-5, abs=0)
    assert msp_score(o).tolist() == expected
    assert SoftmaxHead(2).unknown_score(o).tolist() == expected


def test_the_entropy_of_confident_outputs_keeps_its_digits_and_a_probability_of_zero_adds_nothing():
    o = torch.tensor([[30.0, 0.0], [40.0, 0.0]])
    expected = [(gap + 1) * math.exp(-gap) for gap in (30, 40)]  # -p log p of the second, and of 1 - p next to 1
    assert entropy_score(o).tolist() == pytest.approx(expected, rel=1e-5, abs=0)
    assert entropy_score(torch.tensor([[0.0, -torch.inf], [2.0, 2.0]])).tolist() == pytest.approx([0.0, math.log(2)])


def test_the_msp_score_of_one_class_is_zero():
    assert SoftmaxHead(1).unknown_score(torch.tensor([[3.0]])).tolist() == [0.0]
    assert SoftmaxHead(1).unknown_score(torch.tensor([[torch.nan]])).isnan().all()


def confused(n=200, k=5, seed=0):
    """Outputs too sure of themselves: some of them are wrong."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(k, (n,), generator=rng)
    return 4 * torch.randn(n, k, generator=rng, dtype=torch.float64) + 6 * torch.eye(k)[y], y


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_no_other_temperature_makes_held_out_data_more_likely(seed, factor):
    o, y = confused(seed=seed)
    best = best_temperature(factor * o, y)
    least = naive_nll((factor * o).tolist(), y.tolist(), best)
    for near in (0.9, 0.999, 1.001, 1.1):
        assert naive_nll((factor * o).tolist(), y.tolist(), near * best) > least


def test_the_temperature_follows_the_scale_of_the_outputs_and_not_their_level():
    o, y = confused()
    expected = best_temperature(o, y)
    assert best_temperature(100 * o, y) == pytest.approx(100 * expected, rel=1e-9)
    assert best_temperature(o + 1e4, y) == pytest.approx(expected, rel=1e-6)


def test_the_temperature_of_two_classes_is_the_one_worked_out_by_hand():
    """With gaps of 2 and three of four right, T solves sigmoid(2 / T) = 3 / 4."""
    o = torch.tensor([[2.0, 0.0]] * 4)
    assert best_temperature(o, torch.tensor([0, 0, 0, 1])) == pytest.approx(2 / math.log(3), rel=1e-9)


@pytest.mark.parametrize("gap", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("right", [501, 600, 999])
def test_the_temperature_is_found_from_barely_informed_to_almost_always_right(gap, right):
    o = torch.tensor([[gap, 0.0]], dtype=torch.float64).expand(1000, 2)
    y = (torch.arange(1000) >= right).long()
    assert best_temperature(o, y) == pytest.approx(gap / math.log(right / (1000 - right)), rel=1e-6)


@pytest.mark.parametrize("k", [10, 100, 1000])
@pytest.mark.parametrize("wrong", [1, 20, 100])
def test_the_temperature_is_found_among_many_classes_where_newtons_steps_leave_the_range(k, wrong):
    """Outputs are 1 for one class, else 0: T solves e^(1/T) / (e^(1/T) + k - 1) = the share of right ones."""
    y = torch.arange(200) % k
    o = torch.eye(k)[torch.where(torch.arange(200) < wrong, (y + 1) % k, y)]
    expected = 1 / math.log((200 - wrong) / wrong * (k - 1))
    assert best_temperature(o, y) == pytest.approx(expected, rel=1e-9)


def test_a_few_mistakes_of_very_different_size_have_a_temperature_too():
    o = torch.tensor([[1e-6, 0.0], [1e6, 0.0], [1e6, 0.0]], dtype=torch.float64)
    best = best_temperature(o, torch.tensor([1, 0, 0]))
    assert math.isfinite(best)
    assert best > 0


def test_fit_keeps_the_temperature_and_uses_it():
    o, y = confused()
    head = SoftmaxHead(5, temperature="fit").fit(o, y)
    assert head.fitted_temperature.item() == best_temperature(o, y)
    assert head.settings()["temperature"] == "fit"
    torch.testing.assert_close(head.log_probs(o), (o / best_temperature(o, y)).log_softmax(1))


def test_a_given_temperature_is_not_fitted():
    o, y = confused()
    head = SoftmaxHead(5, temperature=2.0).fit(o, y)
    assert head.fitted_temperature is None
    torch.testing.assert_close(head.log_probs(o), (o / 2).log_softmax(1))


def test_the_class_needs_no_temperature():
    o, _ = confused()
    assert torch.equal(SoftmaxHead(5, temperature="fit").predict(o), o.argmax(1))


def test_without_a_mistake_there_is_no_best_temperature():
    message = (
        "the temperature needs examples on both sides, but all 2 are classified correctly and the best temperature is "
        "0; fit on more held-out data or give the temperature as a number"
    )
    with pytest.raises(HeadError, match=f"^{re.escape(message)}$"):
        SoftmaxHead(2, temperature="fit").fit(torch.eye(2), torch.tensor([0, 1]))


@pytest.mark.parametrize("o", [torch.eye(2), torch.eye(2)[[0, 0]]])
def test_outputs_that_say_nothing_about_the_labels_have_no_best_temperature(o):
    message = (
        "the temperature needs outputs that are larger for the right class than on average, but they are not and the "
        "best temperature is infinite; check that the labels belong to the outputs"
    )
    with pytest.raises(HeadError, match=f"^{re.escape(message)}$"):
        SoftmaxHead(2, temperature="fit").fit(o, torch.tensor([1, 0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "logit"}, "score must be one of 'msp', 'max_logit', 'energy', 'entropy', got 'logit'"),
        ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0.0"),
        ({"temperature": "auto"}, "temperature must be a number above 0 or 'fit', got 'auto'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}"):
        SoftmaxHead(3, **options)
