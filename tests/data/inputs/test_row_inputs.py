import numpy as np
import pytest
import torch

from openradial.data.inputs import PointInputs, SequenceInputs, TextInputs
from openradial.errors import DataError, OptionError


@pytest.mark.parametrize("raw", [[[1.0, 2.0, 3.0]], [1.0, 2.0], [["a", "b"]], [[1.0], [1.0, 2.0]]])
def test_points_of_another_shape_are_refused(raw):
    with pytest.raises(DataError, match="points must"):
        PointInputs(2).prepare(raw)


def test_sequences_are_padded_and_standardised():
    inputs = SequenceInputs(2, mean=(1.0, 0.0), std=(2.0, 1.0))
    x = inputs.prepare([[[1, 2], [3, 4]], [[5, 6]]])
    assert x.shape == (2, 2, 2)
    np.testing.assert_array_equal(inputs.transform(x), [[[0, 2], [1, 4]], [[2, 6], [np.nan, np.nan]]])


@pytest.mark.parametrize("raw", [[[1.0, 2.0]], [[]], [[["a", "b"]]]])
def test_a_broken_sequence_is_refused(raw):
    with pytest.raises(DataError, match=r"^a sequence must"):
        SequenceInputs(2).prepare(raw)


def test_settings_of_sequences_are_checked():
    with pytest.raises(OptionError, match=r"std must be 1 or 2 finite numbers \(std above 0\), got \(0.0,\)"):
        SequenceInputs(2, std=(0.0,))


def test_a_text_is_text():
    inputs = TextInputs(("profit",))
    assert inputs.prepare("Profit!").tolist() == [[2]]
    with pytest.raises(DataError, match=r"^a text must be a str, got bytes; decode it first$"):
        inputs.prepare([b"profit"])
    with pytest.raises(DataError, match=r"^tokens must lie in 0..2, the words of this vocabulary, got 7..7; encode"):
        inputs.check(torch.tensor([[7]]))


@pytest.mark.parametrize("raw", [[["1_0", "2"]], [["1", "2"], ["3", "_4"]]])
def test_texts_with_underscores_are_no_numbers(raw):
    with pytest.raises(DataError, match="points must hold numbers"):
        PointInputs(2).prepare(raw)
    assert PointInputs(2).prepare([["10", "2"]]).tolist() == [[10.0, 2.0]]
