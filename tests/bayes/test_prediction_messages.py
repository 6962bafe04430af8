import re

import pytest
import torch
from torch import nn

from openradial.bayes import BayesEmbedding, BayesLinear, MCDropout, freeze, predict, to_bayesian
from openradial.errors import DTypeError, OptionError, ShapeError
from openradial.heads import RadialHead

NO_MODULE = "expected an nn.Module, got str; pass the network itself"
WAY_OUT = "pass a head= that gives log-probabilities, as RadialHead(k, beta) and nn.LogSoftmax(-1) do"
X = torch.zeros(7, 2)
LOG_SOFTMAX = nn.LogSoftmax(-1)


def ask(x=X, head=LOG_SOFTMAX, network=None):
    return predict(BayesLinear(2, 3) if network is None else network, x, 5, head=head, seed=0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: to_bayesian("x"), OptionError, NO_MODULE),
        (lambda: freeze("x"), OptionError, NO_MODULE),
        (lambda: ask(network="x"), OptionError, NO_MODULE),
        (lambda: MCDropout("x"), OptionError, NO_MODULE),
        (lambda: predict([nn.Linear(2, 3), "x"], X, head=LOG_SOFTMAX), OptionError, NO_MODULE),
        (lambda: predict([], X), OptionError, "an ensemble needs at least one network, got none"),
        (
            lambda: to_bayesian(nn.Linear),
            OptionError,
            "expected a network, got the class Linear; pass an object of it",
        ),
        (
            lambda: ask(X.numpy()),
            DTypeError,
            "x must be a torch.Tensor, got ndarray; convert it with torch.as_tensor",
        ),
        (
            lambda: ask(X.double()),
            DTypeError,
            "x must have the type of the network, torch.float32, got torch.float64; use x.to(torch.float32)",
        ),
        (
            lambda: ask(head=RadialHead),
            OptionError,
            "head must be an object, got the class RadialHead; make one first, as in head=RadialHead(...)",
        ),
        (
            lambda: ask(head="radial"),
            OptionError,
            "head must be a head or a function of outputs, got str; use RadialHead(k, beta) or nn.LogSoftmax(-1)",
        ),
        (
            lambda: ask(head=lambda o: torch.full_like(o, 0.25)),
            ShapeError,
            f"log-probabilities are never above 0, got 0.25; {WAY_OUT}",
        ),
        (
            lambda: ask(head=lambda o: -o.square().sum(-1)),
            ShapeError,
            f"log-probabilities must have the shape (35, k), got (35,); {WAY_OUT}",
        ),
        (
            lambda: ask(head=lambda o: o.argmax(-1, keepdim=True)),
            DTypeError,
            f"log-probabilities must be a floating-point tensor, got torch.int64; {WAY_OUT}",
        ),
        (
            lambda: ask(head=lambda o: (o, o)),
            DTypeError,
            f"log-probabilities must be a floating-point tensor, got tuple; {WAY_OUT}",
        ),
    ],
)
def test_wrong_input_is_answered_with_one_sentence(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_softmax_that_is_no_logarithm_is_noticed_in_every_type(dtype):
    with pytest.raises(ShapeError, match="log-probabilities are never above 0"):
        ask(X.to(dtype), nn.Softmax(-1), BayesLinear(2, 3).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_may_leave_a_little_above_0(dtype):
    found = ask(X.to(dtype), lambda o: torch.full_like(o, torch.finfo(dtype).eps), BayesLinear(2, 3).to(dtype))
    assert found.log_probs.shape == (5, 7, 3)


def test_an_ensemble_may_come_as_a_module_list():
    members = nn.ModuleList([nn.Linear(2, 3), nn.Linear(2, 3)])
    assert predict(members, X, head=LOG_SOFTMAX).log_probs.shape == (2, 7, 3)


def test_whole_numbers_are_inputs_of_an_embedding():
    network = nn.Sequential(BayesEmbedding(9, 4), nn.Flatten(), BayesLinear(8, 3))
    assert ask(X.long(), network=network).probs.shape == (7, 3)


def test_autocast_makes_types_fit():
    with torch.autocast("cpu", torch.bfloat16):
        assert ask(X.bfloat16()).probs.shape == (7, 3)
