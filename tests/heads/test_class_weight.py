import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from openradial.errors import OptionError
from openradial.heads.class_weight import balanced_weights, checked_class_weight, given_weights, weights_to_try

COUNTS = torch.tensor([3, 1, 6])


def test_balanced_weights_are_those_of_scikit_learn():
    y = np.repeat([0, 1, 2], COUNTS)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=y)
    assert balanced_weights(COUNTS).tolist() == pytest.approx(expected)
    assert (balanced_weights(COUNTS) * COUNTS).tolist() == pytest.approx([10 / 3] * 3)
    assert balanced_weights(COUNTS, "sqrt").tolist() == pytest.approx(expected**0.5)


def test_a_class_without_examples_has_weight_one():
    assert balanced_weights(torch.tensor([2, 0, 2])).tolist() == [1, 1, 1]
    assert balanced_weights(torch.tensor([1, 0, 3])).tolist() == [2, 1, 2 / 3]


@pytest.mark.parametrize("value", [[1, 2, 3], (1.0, 2.0, 3.0), np.array([1, 2, 3]), torch.tensor([1.0, 2.0, 3.0])])
def test_numbers_of_any_kind_are_taken(value):
    kept = checked_class_weight(value, 3)
    assert kept == (1.0, 2.0, 3.0)
    assert given_weights(kept).tolist() == [1, 2, 3]
    assert given_weights(kept).dtype == torch.float64


@pytest.mark.parametrize("value", [None, "balanced", "sqrt", "auto"])
def test_words_and_none_are_kept(value):
    assert checked_class_weight(value, 3) == value
    assert given_weights(value) is None


@pytest.mark.parametrize(
    "value", [[1.0, 2.0], [], 2.0, {"a": 1.0, "b": 1.0, "c": 1.0}, np.ones((2, 3)), torch.tensor(1.0)]
)
def test_another_number_of_weights_is_refused(value):
    with pytest.raises(
        OptionError, match=r"^class_weight must be None, 'balanced', 'sqrt', 'auto' or 3 numbers, got \w+$"
    ):
        checked_class_weight(value, 3)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_weights_that_are_not_positive_are_refused(wrong):
    with pytest.raises(OptionError, match=r"^class_weight must be a finite number above 0, got"):
        checked_class_weight([1.0, wrong, 2.0], 3)


def test_another_word_is_refused():
    with pytest.raises(OptionError, match="class_weight must be one of 'balanced', 'sqrt', 'auto', got 'even'"):
        checked_class_weight("even", 3)


def test_the_weights_to_try():
    assert weights_to_try(None, COUNTS) == [None]
    assert weights_to_try((1.0, 2.0, 3.0), COUNTS)[0].tolist() == [1, 2, 3]
    assert torch.equal(weights_to_try("balanced", COUNTS)[0], balanced_weights(COUNTS))
    assert torch.equal(weights_to_try("sqrt", COUNTS)[0], balanced_weights(COUNTS).sqrt())
    plain, balanced = weights_to_try("auto", COUNTS)
    assert plain is None
    assert torch.equal(balanced, balanced_weights(COUNTS))
