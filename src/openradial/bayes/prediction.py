r"""Predictions of many networks at once: their log-probabilities, the mean, and how much they disagree.

Each sample gives ``k`` probabilities. What they lack to 1, the *missing mass*, is the probability of "none of these"
and counts as a separate category, number ``k``:

.. math:: p_{k} = 1 - \sum_{j<k} p_j

Where radial probabilities without a cut-off sum to more than one (see :func:`openradial.functional.safe_beta`), nothing
is missing and they are divided by their sum. Entropies are in nats and at most ``log(k + 1)``. For softmax nothing is
missing, and they are the usual ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as TF
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from openradial.bayes.layers import check_network
from openradial.bayes.posterior import Posterior, posterior
from openradial.errors import DTypeError, OptionError, ShapeError, check_count
from openradial.nn.hidden import evaluating
from openradial.nn.replace import DROPOUTS

ACTIVATIONS = 2**21  # numbers in the largest layer of a pass: they fit into the cache
LEAST_PAIRS = 16  # fewest pairs of a network and an input in a pass
LEAST_INPUTS = 16  # fewest inputs that share a network in a pass: below that products are too thin
WEIGHTS = 2**25  # numbers drawn at once
NO_HEAD = "if these are outputs, pass the head= that turns them into log-probabilities, such as RadialHead(k, beta)"
WRONG_HEAD = "pass a head= that gives log-probabilities, as RadialHead(k, beta) and nn.LogSoftmax(-1) do"


def with_missing_mass(log_probs: Tensor) -> Tensor:
    """Return probabilities that sum to one, the missing mass last: ``(..., k) -> (..., k + 1)``.

    >>> with_missing_mass(torch.tensor([[0.5, 0.25], [0.9, 0.9]]).log())
    tensor([[0.5000, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.0000]])
    """
    if log_probs.ndim < 1:
        raise ShapeError("log_probs must have the shape (..., k), got ()")
    if not log_probs.is_floating_point():
        raise DTypeError(f"log_probs must be floating point, got {log_probs.dtype}")
    probs = log_probs.exp()
    total = probs.sum(-1, keepdim=True)
    probs = probs / total.clamp_min(1)
    return torch.cat([probs, (1 - total).clamp_min(0)], -1)


def predictive_entropy(log_probs: Tensor) -> Tensor:
    """Return the entropy of the mean over samples, ``(samples, b, k) -> (b,)``: the total uncertainty.

    >>> predictive_entropy(torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]]]).log())  # either class 0 or none of them
    tensor([0.6931])
    """
    return entropy(_probs_of_samples(log_probs).mean(0))


def expected_entropy(log_probs: Tensor) -> Tensor:
    """Return the mean entropy of the samples, ``(samples, b, k) -> (b,)``: what more data would not reduce."""
    return entropy(_probs_of_samples(log_probs)).mean(0)


def mutual_information(log_probs: Tensor) -> Tensor:
    """Return how much the samples disagree, ``(samples, b, k) -> (b,)``.

    It is the predictive entropy minus the expected one; never negative, and zero where all samples agree.
    """
    probs = _probs_of_samples(log_probs)
    return (entropy(probs.mean(0)) - entropy(probs).mean(0)).clamp_min(0)


def expected_missing_mass(log_probs: Tensor) -> Tensor:
    """Return the mean probability of "none of these", ``(samples, b, k) -> (b,)``; larger is more unknown."""
    return _probs_of_samples(log_probs)[..., -1].mean(0)


def entropy(probs: Tensor) -> Tensor:
    """Return the entropy in nats of probabilities that sum to one, ``(..., k) -> (...)``."""
    parts: Tensor = torch.special.entr(probs)
    return parts.sum(-1)


def _probs_of_samples(log_probs: Tensor) -> Tensor:
    if log_probs.ndim != 3 or not len(log_probs):
        raise ShapeError(f"log_probs must have the shape (samples, b, k), got {tuple(log_probs.shape)}")
    return with_missing_mass(log_probs)


@dataclass(frozen=True, eq=False)
class SampledPrediction:
    """Predictions of sampled networks: ``log_probs (samples, b, k)``. Rows need not sum to one."""

    log_probs: Tensor

    @property
    def probs(self) -> Tensor:
        """Mean over the samples, ``(b, k)``."""
        return self.log_probs.exp().mean(0)

    @property
    def labels(self) -> Tensor:
        """Most probable class of the mean, ``(b,)``."""
        return self.probs.argmax(-1)

    @property
    def winning_probs(self) -> Tensor:
        """Largest probability of each sample, ``(samples, b)``: the distribution of the winning probability."""
        return self.log_probs.amax(-1).exp()

    @property
    def predictive_entropy(self) -> Tensor:
        """See :func:`openradial.bayes.predictive_entropy`; ``(b,)``."""
        return predictive_entropy(self.log_probs)

    @property
    def expected_entropy(self) -> Tensor:
        """See :func:`openradial.bayes.expected_entropy`; ``(b,)``."""
        return expected_entropy(self.log_probs)

    @property
    def mutual_information(self) -> Tensor:
        """See :func:`openradial.bayes.mutual_information`; ``(b,)``."""
        return mutual_information(self.log_probs)

    @property
    def missing_mass(self) -> Tensor:
        """See :func:`openradial.bayes.expected_missing_mass`; ``(b,)``."""
        return expected_missing_mass(self.log_probs)


class MCDropout(nn.Module):
    """A trained network with dropout whose masks stay on in :func:`predict` (Gal and Ghahramani 2016).

    Calling it runs the network. Only dropout layers count: ``functional.dropout`` inside a ``forward`` does not stay
    on.

    >>> MCDropout(nn.Sequential(nn.Linear(2, 50), nn.Dropout(0.5), nn.Linear(50, 3)))(torch.zeros(7, 2)).shape
    torch.Size([7, 3])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        check_network(network)
        if not any(module.p > 0 for module in network.modules() if isinstance(module, DROPOUTS)):
            message = "the network has no dropout layer that drops anything, so every sample would be the same"
            raise OptionError(f"{message}; train one with dropout, as in build('mnist_radial_dropout', 10)")
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        o: Tensor = self.network(x)
        return o


@torch.no_grad()
def predict(
    network: nn.Module | Sequence[nn.Module],
    x: Tensor,
    samples: int = 100,
    *,
    head: Any = None,
    seed: int | None = None,
    chunk: int | None = None,
) -> SampledPrediction:
    """Predict with many networks in one vectorised pass.

    The networks are draws from the posterior of a Bayesian network, draws of the masks of an :class:`MCDropout`, or a
    list of trained networks, a deep ensemble (Lakshminarayanan et al. 2017). The same draws serve all inputs (masks are
    drawn per input), so that with a seed the result for an input depends neither on its batch nor on ``chunk``; that
    does not hold for masks.

    Args:
        network: in evaluation or training mode, which makes no difference.
        samples: number of networks; an ensemble has as many as it has members.
        head: outputs to log-probabilities: a head of :mod:`openradial.heads`, or a function such as
            ``nn.LogSoftmax(-1)``; None if the network returns log-probabilities.
        seed: of the draws; None uses torch's global generator.
        chunk: pairs of a network and an input that run at once; None keeps the largest layer of a pass within a few
            megabytes.
    """
    if chunk is not None:
        check_count("chunk", chunk)
    check_count("samples", samples)
    _check_head(head)
    if isinstance(network, Sequence | nn.ModuleList):
        return _predict_ensemble(list(network), x, head)
    check_network(network)
    _check_inputs(x, network)
    net, is_dropout = (network.network, True) if isinstance(network, MCDropout) else (network, False)
    q = None if is_dropout else posterior(net)
    with _seeded(seed, x.device), evaluating(net, active=DROPOUTS if is_dropout else ()):
        at_once, inputs = _shares(net, x, samples, chunk)
        parts = []
        for drawn in _draws(q, samples, at_once):
            run = _run_repeated if isinstance(drawn, int) else run_stacked
            parts.append(torch.cat([_log_probs(run(net, drawn, rows), head) for rows in torch.split(x, inputs)], 1))  # type: ignore[arg-type]
    return SampledPrediction(torch.cat(parts))


def _predict_ensemble(members: list[nn.Module], x: Tensor, head: Any) -> SampledPrediction:
    if not members:
        raise OptionError("an ensemble needs at least one network, got none")
    parts = []
    for member in members:
        check_network(member)
        _check_inputs(x, member)
        with evaluating(member):
            parts.append(_log_probs(member(x)[None], head))
    return SampledPrediction(torch.cat(parts))


def _draws(q: Posterior | None, samples: int, at_once: int) -> Iterator[dict[str, Tensor] | int]:
    """Yield drawn weights of some networks at a time; of masks their number, because they are drawn in a pass."""
    if q is None:
        yield from (min(at_once, samples - start) for start in range(0, samples, at_once))
        return
    block = max(1, WEIGHTS // len(q.mean))  # drawn together, so that weights do not depend on how many run at once
    for first in range(0, samples, block):
        yield from map(q.named, torch.split(q.draw(min(block, samples - first)), at_once))


def _run_repeated(network: nn.Module, count: int, x: Tensor) -> Tensor:
    """Repeat each input for each network, so that masks differ between networks and between inputs."""
    o: Tensor = network(x.repeat(count, *(1,) * (x.ndim - 1)))  # (s * b, k)
    return o.view(count, len(x), *o.shape[1:])


def _log_probs(o: Tensor, head: Any) -> Tensor:
    if o.ndim != 3:
        raise ShapeError(f"the network must give outputs of shape (b, k), got {tuple(o.shape[1:])}")
    rows = o.flatten(0, 1)  # heads take batches of one dimension
    if head is not None:
        rows = getattr(head, "log_probs", head)(rows)
    count, way_out = o.shape[0] * o.shape[1], NO_HEAD if head is None else WRONG_HEAD
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        got = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise DTypeError(f"log-probabilities must be a floating-point tensor, got {got}; {way_out}")
    if rows.ndim != 2 or len(rows) != count:
        raise ShapeError(f"log-probabilities must have the shape ({count}, k), got {tuple(rows.shape)}; {way_out}")
    if (rows > max(1e-6, 2 * torch.finfo(rows.dtype).eps)).any():  # rounding may leave a little above 0
        raise ShapeError(f"log-probabilities are never above 0, got {float(rows.max()):g}; {way_out}")
    return rows.reshape(*o.shape[:2], rows.shape[-1])


def _shares(network: nn.Module, x: Tensor, count: int, chunk: int | None) -> tuple[int, int]:
    """Return the numbers of networks and of inputs in one pass."""
    if chunk is None:
        with Sizes() as sizes, suppress(Exception):  # errors show later, with the shape of all inputs
            network(x[:1])
        chunk = max(LEAST_PAIRS, ACTIVATIONS // sizes.most)
    inputs = min(chunk, max(1, len(x)), max(LEAST_INPUTS, chunk // count))
    return min(count, chunk // inputs), inputs


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Draw random numbers from a seed; torch's generators continue as if nothing had been drawn."""
    with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=seed is not None):
        if seed is not None:
            check_count("seed", seed, least=0)
            torch.manual_seed(seed)
        yield


def _check_head(head: object) -> None:
    """Raise unless ``head`` is None, a head, or a function of outputs."""
    if isinstance(head, type):
        name = head.__name__
        raise OptionError(f"head must be an object, got the class {name}; make one first, as in head={name}(...)")
    if head is not None and not callable(head):
        message = f"head must be a head or a function of outputs, got {type(head).__name__}"
        raise OptionError(f"{message}; use RadialHead(k, beta) or nn.LogSoftmax(-1)")


def _check_inputs(x: object, network: nn.Module) -> None:
    """Raise unless ``x`` is a tensor, and of the network's type if both are floating point."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"x must be a torch.Tensor, got {type(x).__name__}; convert it with torch.as_tensor")
    expected = next((parameter.dtype for parameter in network.parameters()), x.dtype)
    if x.dtype == expected or not (x.is_floating_point() and expected.is_floating_point):
        return
    if not torch.is_autocast_enabled(x.device.type):  # which makes them fit
        raise DTypeError(f"x must have the type of the network, {expected}, got {x.dtype}; use x.to({expected})")


def run_with(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of a network with other weights."""
    # a layer that is used twice has two names; with tie_weights torch would restore the wrong weights
    o: Tensor = functional_call(network, dict(weights), (x,), tie_weights=False)
    return o


def run_stacked(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs for a stack of weights, ``(s, ...)`` each, ``(b, ...) -> (s, b, ...)``.

    Networks that vmap refuses (recurrent ones, decisions that depend on values) run one after the other.
    """
    try:
        return _run_vmap(network, weights, x)
    except RuntimeError:
        if not _is_refused(network, weights, x):
            raise  # out of memory, say
    count = len(next(iter(weights.values())))
    rows = [{name: weight[i] for name, weight in weights.items()} for i in range(count)]
    return torch.stack([run_with(network, row, x) for row in rows])


def _run_vmap(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    with _FastPooling(), sdpa_kernel(SDPBackend.MATH):
        o: Tensor = vmap(partial(run_with, network), in_dims=(0, None))(weights, x)
    return o


def _is_refused(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> bool:
    """Return whether vmap fails even for one network and one input, which run without it."""
    run_with(network, {name: weight[0] for name, weight in weights.items()}, x[:1])  # raises what the network raises
    try:
        _run_vmap(network, {name: weight[:1] for name, weight in weights.items()}, x[:1])
    except RuntimeError:
        return True
    return False


class _FastPooling(TorchFunctionMode):
    """Replaces the pooling of torch, which takes most of the time of a small convolutional network."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (max_pool2d if func is TF.max_pool2d else func)(*args, **(kwargs or {}))


class Sizes(TorchFunctionMode):
    """Records the size of the largest tensor that was computed."""

    most = 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not isinstance(result, nn.Parameter):
            self.most = max(self.most, result.numel())
        return result


def max_pool2d(x: Tensor, kernel_size: Any, stride: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Pool without overlap as maxima of slices: torch also computes the indices, which takes most of its time."""
    high, wide = kernel_size if isinstance(kernel_size, tuple) else (kernel_size, kernel_size)
    usual = {"padding": (0, (0, 0)), "dilation": (1, (1, 1)), "ceil_mode": (False,), "return_indices": (False,)}
    plain = not args and all(value in usual[name] for name, value in kwargs.items())
    if not plain or stride not in (None, kernel_size, (high, wide)):
        return TF.max_pool2d(x, kernel_size, stride, *args, **kwargs)
    height, width = x.shape[-2] // high * high, x.shape[-1] // wide * wide
    rows = reduce(torch.maximum, [x[..., i:height:high, :width] for i in range(high)])
    return reduce(torch.maximum, [rows[..., i::wide] for i in range(wide)])
