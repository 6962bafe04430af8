import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from openradial.bayes import BayesGRU, BayesLSTM, BayesRNN, posterior
from openradial.bayes.prediction import run_stacked, run_with

KINDS = [BayesGRU, BayesLSTM, BayesRNN]
every_kind = pytest.mark.parametrize("kind", KINDS)
FORMS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"bias": False, "batch_first": True},
    {"num_layers": 2, "batch_first": True},
]


def last(state):
    return state[0] if isinstance(state, tuple) else state


@every_kind
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_in_evaluation_a_layer_is_the_plain_one_with_its_means(kind, options):
    layer = kind(4, 5, **options).eval()
    plain = kind.plain(4, 5, **options)
    plain.load_state_dict({name: layer.state_dict()[name] for name in plain.state_dict()})
    x = torch.randn(3, 6, 4)
    states, end = layer(x)
    expected, expected_end = plain(x)
    assert torch.equal(states, expected)
    assert torch.equal(last(end), last(expected_end))


@every_kind
def test_packed_and_single_sequences_and_states_work_as_in_the_plain_layer(kind):
    layer = kind(4, 5, batch_first=True).eval()
    plain = kind.plain(4, 5, batch_first=True)
    plain.load_state_dict({name: layer.state_dict()[name] for name in plain.state_dict()})
    x, lengths = torch.randn(3, 6, 4), torch.tensor([2, 6, 4])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    for form in (packed, x[0]):
        found, end = layer(form)
        expected, expected_end = plain(form)
        if form is packed:
            found, expected = pad_packed_sequence(found)[0], pad_packed_sequence(expected)[0]
        assert torch.equal(found, expected)
        assert torch.equal(last(end), last(expected_end))
    start = torch.randn(1, 3, 5)
    state = (start, start) if kind is BayesLSTM else start
    assert torch.equal(layer(x, state)[0], plain(x, state)[0])


@every_kind
def test_one_draw_serves_all_steps_and_examples(kind):
    layer = kind(4, 5, num_layers=2, batch_first=True, sigma=0.5)
    o, _ = layer(torch.ones(1, 6, 4).expand(3, 6, 4))
    torch.testing.assert_close(o, o[:1].expand_as(o))
    again, _ = layer(torch.ones(3, 6, 4))
    assert (o != again).all()


@every_kind
def test_nothing_that_was_drawn_stays_on_the_layer(kind):
    layer = kind(4, 5)
    layer(torch.randn(6, 3, 4))[0].sum().backward()
    copied = copy.deepcopy(layer)
    own = dict(layer.named_parameters())
    assert all(weight is own[name] for name, weight in zip(layer._flat_weights_names, layer._flat_weights, strict=True))
    assert all(torch.equal(own[name], parameter) for name, parameter in copied.named_parameters())
    assert all(parameter.grad is not None for parameter in layer.parameters())


class Last(nn.Module):
    """The last state of a recurrent layer, to outputs."""

    def __init__(self, layer, packed=False):
        super().__init__()
        self.layer, self.packed = layer, packed

    def forward(self, x):
        if self.packed:
            x = pack_padded_sequence(x, torch.full((len(x),), x.shape[1]), batch_first=True)
        return last(self.layer(x)[1])[-1]


@every_kind
@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_a_stack_of_recurrent_networks_gives_what_each_gives_alone(kind, packed):
    net = Last(kind(4, 5, batch_first=True, sigma=0.3), packed).eval()
    q = posterior(net)
    weights, x = q.draw(3), torch.randn(2, 6, 4)
    alone = torch.stack([run_with(net, q.named(row), x) for row in weights])
    torch.testing.assert_close(run_stacked(net, q.named(weights), x), alone, rtol=1e-5, atol=1e-6)
