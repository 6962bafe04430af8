import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.conformal import PredictionSets
from tests.conformal.digit_scores import digit_distances


def naive_sets(calibration, labels, distances, rate, per_class):
    """One class of one input after the other, from the definition of the p-value."""
    own = [row[label] for row, label in zip(calibration, labels, strict=True)]
    sets = []
    for row in distances:
        inside = []
        for k, distance in enumerate(row):
            known = [d for d, label in zip(own, labels, strict=True) if label == k] if per_class else own
            p = (1 + sum(d >= distance for d in known)) / (len(known) + 1)
            inside.append(p > rate)
        sets.append(inside)
    return sets


@given(
    seed=st.integers(0, 10**6),
    rate=st.sampled_from([0.1, 0.25, 0.5]),
    per_class=st.booleans(),
)
def test_sets_are_those_of_the_definition(seed, rate, per_class):
    random = np.random.default_rng(seed)
    distances, asked = random.integers(0, 9, (40, 3)), random.integers(0, 9, (10, 3))
    labels = np.concatenate([np.repeat([0, 1, 2], 9), random.integers(0, 3, 13)])
    sets = PredictionSets(rate, per_class).fit(distances, labels)
    expected = naive_sets(distances.tolist(), labels.tolist(), asked.tolist(), rate, per_class)
    assert sets.sets(asked).tolist() == expected
    assert ((sets.p_values(asked) > rate) == np.array(expected)).all()


def test_the_empty_set_is_possible_and_so_are_several_classes():
    distances, y = digit_distances()
    sets = PredictionSets(0.05).fit(distances[:600], y[:600]).sets(distances[600:])
    sizes = sets.sum(1)
    assert sizes.min() == 0
    assert sizes.max() > 1


def test_novel_inputs_get_the_empty_set():
    distances, y = digit_distances()
    sets = PredictionSets(0.05).fit(distances[:600], y[:600])
    assert not sets.sets(distances[600:] + 100).any()


@pytest.mark.parametrize("per_class", [False, True])
def test_bad_distances_let_no_class_in(per_class):
    distances, y = digit_distances()
    sets = PredictionSets(0.1, per_class).fit(distances, y)
    near = np.zeros((3, 10))
    near[0] = np.nan
    near[1, :5] = np.inf
    assert sets.sets(near).tolist() == [[False] * 10, [False] * 5 + [True] * 5, [True] * 10]


def test_the_kind_of_the_result_is_that_of_the_distances():
    distances, y = digit_distances()
    sets = PredictionSets(0.1).fit(torch.tensor(distances, dtype=torch.float32), torch.tensor(y))
    given = torch.tensor(distances[:5], dtype=torch.float32)
    assert isinstance(sets.sets(given), torch.Tensor)
    assert sets.sets(given).dtype == torch.bool
    assert isinstance(sets.p_values(given.numpy()), np.ndarray)
    assert np.array_equal(sets.sets(given).numpy(), sets.sets(given.tolist()))
    assert sets.sets(given[:0]).shape == (0, 10)


@pytest.mark.parametrize("per_class", [False, True])
def test_another_rate_gives_the_sets_that_were_fitted_for_it(per_class):
    distances, y = digit_distances()
    sets = PredictionSets(0.1, per_class).fit(distances[:900], y[:900])
    for rate in (0.02, 0.05, 0.3):
        other = PredictionSets(rate, per_class).fit(distances[:900], y[:900])
        assert np.array_equal(sets.sets(distances[900:], error_rate=rate), other.sets(distances[900:]))
    assert sets.error_rate == 0.1


def test_thresholds_are_those_of_the_classes():
    distances = np.arange(1.0, 39.0)[:, None] * [1.0, 10.0]
    labels = [0] * 19 + [1] * 19
    per_class = PredictionSets(0.1, per_class=True).fit(distances, labels)
    assert per_class.classes == (0, 1)
    assert per_class.thresholds() == {0: 18.0, 1: 370.0}
    assert PredictionSets(0.1).fit(distances, labels).threshold() == 360.0
    assert repr(per_class) == "PredictionSets(error_rate=0.1, per_class=True)"


def test_the_set_of_an_input_does_not_depend_on_the_others():
    distances, y = digit_distances()
    sets = PredictionSets(0.1, per_class=True).fit(distances[:900], y[:900])
    alone = np.concatenate([sets.sets(row[None]) for row in distances[900:940]])
    assert np.array_equal(sets.sets(distances[900:940]), alone)
