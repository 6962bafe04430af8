import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import tolerance
from torch import nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_sequence

from openradial.errors import DTypeError, OptionError, ShapeError
from openradial.models import SequenceClassifier, TextCNN, build
from openradial.models.sequences import in_one_piece

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
recurrent_forms = pytest.mark.parametrize(
    ("cell", "layers"),
    [(cell, layers) for cell in CELLS for layers in (1, 2)],
)


def padded(sequences, length, fill=torch.nan):
    return torch.stack([pad(s, [0, 0] * (s.ndim - 1) + [0, length - len(s)], value=fill) for s in sequences])


def torch_twin(model, cell, layers):
    """PyTorch's own network with the weights of ours."""
    twin = CELLS[cell](model.channels, 6, layers, batch_first=True).double()
    for i, layer in enumerate(model.layers):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(twin, f"{name}_l{i}").data = getattr(layer, name).data
    return twin


@recurrent_forms
def test_features_equal_the_last_states_of_packed_sequences(cell, layers):
    torch.manual_seed(0)
    model = SequenceClassifier(4, channels=3, hidden=6, cell=cell, layers=layers).double().eval()
    sequences = [torch.randn(length, 3).double() for length in (5, 1, 7, 3)]

    _, end = torch_twin(model, cell, layers)(pack_sequence(sequences, enforce_sorted=False))
    states = end[0] if cell == "lstm" else end  # (layers, b, h)
    torch.testing.assert_close(model.forward_features(padded(sequences, 9)), states[-1])


@pytest.mark.parametrize("cell", CELLS)
def test_a_seed_gives_the_start_of_pytorchs_own_layer(cell):
    torch.manual_seed(0)
    ours = SequenceClassifier(4, channels=3, hidden=6, cell=cell).layers[0]
    torch.manual_seed(0)
    theirs = CELLS[cell](3, 6)
    assert torch.equal(ours.weight_ih, theirs.weight_ih_l0)
    assert torch.equal(ours.bias_hh, theirs.bias_hh_l0)


@recurrent_forms
@settings(max_examples=20)
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), more=st.integers(0, 5))
def test_sequences_depend_on_neither_padding_nor_the_batch(cell, layers, lengths, more):
    torch.manual_seed(0)
    model = SequenceClassifier(4, channels=3, hidden=6, cell=cell, layers=layers).double().eval()
    sequences = [torch.randn(length, 3).double() for length in lengths]
    alone = torch.cat([model(sequence[None]) for sequence in sequences])
    torch.testing.assert_close(model(padded(sequences, max(lengths) + more)), alone)


@settings(max_examples=20)
@given(lengths=st.lists(st.integers(0, 8), min_size=1, max_size=4), more=st.integers(0, 7))
def test_texts_depend_on_neither_padding_nor_the_batch(lengths, more):
    torch.manual_seed(0)
    model = TextCNN(4, vocabulary=20, embedding=5, filters=3).double().eval()
    texts = [torch.randint(1, 20, (length,)) for length in lengths]
    alone = torch.cat([model(text[None]) for text in texts])
    torch.testing.assert_close(model(padded(texts, max(lengths) + more, fill=0)), alone)


def test_gradients_do_not_depend_on_padding():
    torch.manual_seed(0)
    model = SequenceClassifier(4, channels=3, hidden=6, layers=2).double()
    sequences = [torch.randn(length, 3).double() for length in (4, 2)]
    found = []
    for length in (4, 9):
        model.zero_grad()
        model(padded(sequences, length)).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(*found)


def test_the_features_of_an_empty_sequence_are_zero():
    model = SequenceClassifier(4, channels=3)
    x = torch.randn(2, 5, 3)
    x[1] = torch.nan
    assert model.forward_features(x)[0].any()
    assert not model.forward_features(x)[1].any()
    assert not model.forward_features(torch.empty(2, 0, 3)).any()


def test_the_features_of_an_empty_text_are_zero():
    model = TextCNN(4, vocabulary=20, embedding=5, filters=3).eval()
    assert not model.forward_features(torch.zeros(2, 5, dtype=torch.int64)).any()
    assert not model.forward_features(torch.empty(2, 0, dtype=torch.int64)).any()


def test_a_gap_in_one_sequence_shows_in_its_outputs_alone():
    x = torch.randn(2, 5, 3)
    x[0, 2] = torch.nan
    o = SequenceClassifier(4, channels=3)(x)
    assert o[0].isnan().all()
    assert o[1].isfinite().all()


def test_the_padding_vector_is_ignored_even_when_a_file_gives_it_values():
    torch.manual_seed(0)
    model = TextCNN(4, vocabulary=20).eval()
    with torch.no_grad():
        model.embedding.weight[0] = 100.0
    close = tolerance(5 * 100 + 300)  # at most five vectors of 100 numbers, then 300 features; all are of size one
    torch.testing.assert_close(model(torch.tensor([[3, 4, 0, 0]])), model(torch.tensor([[3, 4]])), **close)


def test_text_convolutions_equal_kims_definition():
    torch.manual_seed(0)
    model = TextCNN(4, vocabulary=20, embedding=5, filters=3, sizes=(2, 4)).double().eval()
    tokens = [7, 3, 9]
    expected = []
    for layer in model.convolutions:
        size = layer.kernel_size[0]
        empty = [torch.zeros(5).double()] * (size - 1)
        steps = torch.stack([*empty, *model.embedding.weight[tokens], *empty])
        for weight, bias in zip(layer.weight, layer.bias, strict=True):  # (d, size)
            answers = [(steps[i : i + size].T * weight).sum() + bias for i in range(len(steps) - size + 1)]
            expected.append(max(*answers, torch.zeros(())))
    torch.testing.assert_close(model.forward_features(torch.tensor([tokens]))[0], torch.stack(expected))


def test_weights_in_one_piece_are_the_same_weights():
    tensors = [torch.randn(3, 2, requires_grad=True), torch.randn(4, requires_grad=True)]
    pieces = in_one_piece(tensors)
    assert all(torch.equal(a, b) for a, b in zip(pieces, tensors, strict=True))
    assert pieces[0].untyped_storage().data_ptr() == pieces[1].untyped_storage().data_ptr()
    sum(piece.square().sum() for piece in pieces).backward()
    torch.testing.assert_close(tensors[1].grad, 2 * tensors[1].detach())


@pytest.mark.parametrize(
    ("name", "options", "x", "error", "message"),
    [
        (
            "gru",
            {"channels": 3},
            torch.zeros(2, 5, 4),
            ShapeError,
            "expected sequences of shape (b, t, 3), got (2, 5, 4)",
        ),
        ("gru", {"channels": 3}, torch.zeros(5, 3), ShapeError, "expected sequences of shape (b, t, 3), got (5, 3)"),
        (
            "gru",
            {"channels": 3},
            torch.zeros(2, 5, 3, dtype=torch.int64),
            DTypeError,
            "expected floating-point inputs, got torch.int64; convert them with x.float()",
        ),
        (
            "text_cnn",
            {"vocabulary": 10},
            torch.zeros(5, dtype=torch.int64),
            ShapeError,
            "expected token ids of shape (b, t), got (5,)",
        ),
        (
            "text_cnn",
            {"vocabulary": 10},
            torch.zeros(2, 5),
            DTypeError,
            "expected token ids of type int64, got torch.float32; convert them with x.long()",
        ),
        (
            "text_cnn",
            {"vocabulary": 10},
            torch.tensor([[3, 12]]),
            OptionError,
            "vocabulary=10 allows the ids 0 to 9, got 12; build the network with a larger vocabulary or map rare "
            "words to one id",
        ),
        (
            "text_cnn",
            {"vocabulary": 10},
            torch.tensor([[3, -1]]),
            OptionError,
            "vocabulary=10 allows the ids 0 to 9, got -1; build the network with a larger vocabulary or map rare "
            "words to one id",
        ),
    ],
)
def test_wrong_inputs_are_described(name, options, x, error, message):
    with pytest.raises(error) as caught:
        build(name, 4, **options)(x)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SequenceClassifier(4, channels=0), "channels must be a whole number of at least 1, got 0"),
        (lambda: SequenceClassifier(4, channels=3, hidden=0), "hidden must be a whole number of at least 1, got 0"),
        (lambda: SequenceClassifier(4, channels=3, cell="rnn"), "cell must be one of 'gru', 'lstm', got 'rnn'"),
        (lambda: TextCNN(4, vocabulary=1), "vocabulary must be a whole number of at least 2, got 1"),
        (
            lambda: TextCNN(4, vocabulary=9, sizes=()),
            "sizes must name at least one filter size, got none; Kim uses (3, 4, 5)",
        ),
        (
            lambda: TextCNN(4, vocabulary=9, sizes=(0,)),
            "sizes must be a tuple of whole numbers of at least 1, got (0,)",
        ),
    ],
)
def test_a_bad_setting_is_named(make, message):
    with pytest.raises(OptionError) as caught:
        make()
    assert str(caught.value) == message
