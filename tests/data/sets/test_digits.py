import sys

import pytest
import torch
from sklearn.datasets import load_digits

from openradial.data.sets.digits import digits
from openradial.errors import MissingError, OptionError


def test_both_splits_together_are_the_whole_set_once():
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1442, 355)
    whole = torch.from_numpy(load_digits().images).to(torch.uint8).flatten(1).tolist()
    assert sorted(torch.cat([train.inputs, test.inputs]).flatten(1).tolist()) == sorted(whole)


def test_every_fifth_of_each_digit_is_for_testing():
    data = load_digits()
    seen, expected = [0] * 10, []
    for label in data.target:
        seen[label] += 1
        expected.append(seen[label] % 5 == 0)
    test = digits("test")
    assert torch.equal(test.inputs[:, 0].double(), torch.from_numpy(data.images[expected]))
    assert test.labels.tolist() == data.target[expected].tolist()


def test_values_are_the_sets_own():
    found = digits()
    assert found.inputs.dtype == torch.uint8
    assert found.inputs.shape[1:] == (1, 8, 8)
    assert (found.inputs.min(), found.inputs.max()) == (0, 16)


def test_without_scikit_learn_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingError, match=r"the digits set needs the package sklearn, .*'openradial\[sklearn\]'"):
        digits()


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'dev'"):
        digits("dev")
