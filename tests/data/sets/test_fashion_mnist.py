import pytest

from openradial.data.sets.fashion_mnist import fashion_mnist
from openradial.errors import OptionError


def test_the_set_is_the_one_of_the_literature(fetched):
    train, test = fetched(fashion_mnist, "train"), fetched(fashion_mnist, "test")
    assert train.inputs.shape == (60_000, 1, 28, 28)
    assert train.counts().tolist() == [6000] * 10
    assert test.counts().tolist() == [1000] * 10
    scaled = train.inputs.double() / 255
    assert scaled.mean().item() == pytest.approx(0.2860, abs=5e-5)
    assert scaled.std().item() == pytest.approx(0.3530, abs=5e-5)
    assert [test.classes[label] for label in test.labels[:4]] == ["Ankle boot", "Pullover", "Trouser", "Trouser"]


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'val'"):
        fashion_mnist("val")
