"""Make a network Bayesian, and return its mean network."""

import copy
from collections.abc import Iterator
from typing import get_args

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import is_parametrized

from openradial.bayes.layers import KINDS, START, AffineLayer, BayesLayer, Sampling, check_network, trained_names
from openradial.bayes.priors import PAPER_PRIOR, Prior
from openradial.errors import OptionError, check_choice
from openradial.nn.prototypes import Prototypes

FIXED = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, Prototypes)
INDIVISIBLE = (nn.MultiheadAttention,)  # use the weights of their parts without calling them


def to_bayesian(
    network: nn.Module,
    prior: Prior = PAPER_PRIOR,
    *,
    keep_weights: bool = True,
    sigma: float = START,
    sampling: Sampling = "weights",
) -> nn.Module:
    """Return a Bayesian copy of a network: every weight becomes a Gaussian, see :class:`~openradial.bayes.BayesLayer`.

    Linear, convolutional, embedding and recurrent layers are replaced by Bayesian ones; any other layer with parameters
    gets a Gaussian for each of them. Normalisation, PReLU, learned prototypes and frozen parameters
    (``requires_grad=False``) are unchanged, and so are the names of layers and parameters. To convert a part of a
    network only, replace it by ``to_bayesian(part)``.

    Args:
        network: any network; it is not changed.
        keep_weights: the means start at the weights of the network; if False each layer is initialised again.
        sigma: standard deviation with which every weight starts.
        sampling: how linear and convolutional layers draw in training: ``"weights"``, ``"local"`` or ``"flipout"``;
            all other layers draw weights.

    >>> net = nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 3))
    >>> bayesian = to_bayesian(net)
    >>> type(bayesian[0]).__name__, list(bayesian[0].state_dict())
    ('BayesLinear', ['weight', 'bias', 'weight_rho', 'bias_rho'])
    """
    check_network(network)
    check_choice("sampling", sampling, get_args(Sampling))
    twin = copy.deepcopy(network)
    made: dict[Tensor, nn.Parameter] = {}
    layers = dict.fromkeys(_layers(twin))  # each once, wherever it is used
    names_of = {layer: trained_names(layer, recurse=isinstance(layer, INDIVISIBLE)) for layer in layers}
    if not any(names_of.values()):
        raise OptionError(f"the {type(network).__name__} has no trained weights that could become random")
    for layer, names in names_of.items():
        if not names:
            continue
        if not keep_weights:
            if not callable(reset := getattr(layer, "reset_parameters", None)):
                raise OptionError(f"a {type(layer).__name__} has no reset_parameters to start again; keep its weights")
            reset()
        kind = type(layer)
        if kind not in KINDS:  # a layer of another package
            doc = f"``{kind.__name__}`` with Gaussian weights, see :class:`BayesLayer`."
            type(f"Bayes{kind.__name__}", (BayesLayer, kind), {"__doc__": doc})
        layer.__class__ = KINDS[kind]
        assert isinstance(layer, BayesLayer)
        layer.make_random(names, prior, sigma, sampling if isinstance(layer, AffineLayer) else "weights", made)
    return twin


def freeze(network: nn.Module) -> nn.Module:
    """Return the mean network: a copy with plain layers, whose weights are the means.

    >>> from openradial.bayes import BayesLinear
    >>> freeze(BayesLinear(2, 3))
    Linear(in_features=2, out_features=3, bias=True)
    """
    check_network(network)
    twin = copy.deepcopy(network)
    for layer in list(twin.modules()):
        if isinstance(layer, BayesLayer):
            for name in layer.random:
                path, _, last = name.rpartition(".")
                delattr(layer.get_submodule(path), f"{last}_rho")
            for extra in ("prior", "random", "start", "sampling"):
                layer.__dict__.pop(extra, None)
            layer.__class__ = layer.plain  # type: ignore[assignment]
    return twin


def _layers(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers that have parameters which may become random."""
    if isinstance(network, FIXED):
        return
    if isinstance(network, BayesLayer):
        raise OptionError(f"the network is Bayesian already: it has a {type(network).__name__}; freeze it first")
    if is_parametrized(network):
        message = f"a {type(network).__name__} computes its weights from others"
        raise OptionError(f"{message}; make them plain first with torch.nn.utils.parametrize.remove_parametrizations")
    if isinstance(network, nn.RNNBase) and type(network) not in KINDS:
        raise OptionError(f"expected nn.GRU, nn.LSTM or nn.RNN, got {type(network).__name__}, a layer made from them")
    if any(True for _ in network.parameters(recurse=False)):
        yield network
    for child in () if isinstance(network, INDIVISIBLE) else network.children():
        yield from _layers(child)
