"""Predictions of many networks at once: their log-probabilities, the mean, and how far they agree."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openradial.bayes import uncertainty
from openradial.bayes.checks import check_head, check_inputs, check_log_probs
from openradial.bayes.sources import Source, source_of
from openradial.bayes.vectorised import Sizes
from openradial.errors import ShapeError, check_count

Head = Callable[[Tensor], Tensor]
ACTIVATIONS = 2**21  # numbers in the largest layer of a pass: what caches hold
LEAST_PAIRS = 16  # where one network and input are larger than that, caches no longer matter
LEAST_INPUTS = 16  # that share a network in a pass, before more networks do: below that products are too thin
WEIGHTS = 2**25  # numbers drawn at once
NO_HEAD = "if these are outputs, pass the head= that makes log-probabilities of them, RadialLayer or nn.LogSoftmax"
WRONG_HEAD = "pass a head= that gives log-probabilities, as RadialLayer(k, beta) and nn.LogSoftmax(-1) do"


@dataclass(frozen=True, eq=False)
class Prediction:
    """What sampled networks say: ``log_probs (samples, b, k)``. Rows need not sum to one."""

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
        """Probability of each sample's own winner, ``(samples, b)``: the distribution of the winning probability."""
        return self.log_probs.amax(-1).exp()

    @property
    def winning_labels(self) -> Tensor:
        """Each sample's own winner, ``(samples, b)``."""
        return self.log_probs.argmax(-1)

    @property
    def predictive_entropy(self) -> Tensor:
        """See :func:`openradial.bayes.predictive_entropy`; ``(b,)``."""
        return uncertainty.predictive_entropy(self.log_probs)

    @property
    def expected_entropy(self) -> Tensor:
        """See :func:`openradial.bayes.expected_entropy`; ``(b,)``."""
        return uncertainty.expected_entropy(self.log_probs)

    @property
    def mutual_information(self) -> Tensor:
        """See :func:`openradial.bayes.mutual_information`; ``(b,)``."""
        return uncertainty.mutual_information(self.log_probs)

    @property
    def missing_mass(self) -> Tensor:
        """See :func:`openradial.bayes.expected_missing_mass`; ``(b,)``."""
        return uncertainty.expected_missing_mass(self.log_probs)


@torch.no_grad()
def predict(
    network: nn.Module,
    x: Tensor,
    samples: int | None = None,
    *,
    head: Head | None = None,
    seed: int | None = None,
    chunk: int | None = None,
) -> Prediction:
    """Predict with many networks in one vectorised pass.

    The networks are draws from the posterior of a Bayesian network, draws of the masks of an :class:`MCDropout`, or the
    members of an :class:`Ensemble`. The same draws serve all inputs (masks are drawn per input), so that with a seed
    the result for an input depends neither on its batch nor on ``chunk``; that does not hold for masks.

    Args:
        network: in evaluation or training mode, which makes no difference.
        x: inputs ``(b, ...)``.
        samples: number of networks, 100 if not given; an ensemble has as many as it has members.
        head: outputs to log-probabilities, for instance ``RadialLayer(k, beta)``, ``nn.LogSoftmax(-1)`` or a head of
            :mod:`openradial.heads`; None if the network gives log-probabilities itself.
        seed: of the draws; None draws on from torch's generator.
        chunk: pairs of a network and an input that run at once; None keeps the largest layer of a pass within a few
            megabytes.

    >>> from openradial import RadialLayer
    >>> from openradial.bayes import to_bayesian
    >>> net = to_bayesian(nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 3)))
    >>> found = predict(net, torch.zeros(7, 2), samples=20, head=RadialLayer(3, beta=5.0), seed=0)
    >>> found.log_probs.shape, found.probs.shape, found.winning_probs.shape
    (torch.Size([20, 7, 3]), torch.Size([7, 3]), torch.Size([20, 7]))
    """
    if chunk is not None:
        check_count("chunk", chunk)
    source = source_of(network)
    check_inputs(x, network)
    check_head(head)
    count = source.count(samples)
    with _seeded(seed, x.device), source.ready():
        at_once, inputs = _shares(source, x, count, chunk)
        block = max(1, WEIGHTS // source.size)
        parts = [
            torch.cat([_log_probs(source.outputs(drawn, piece), head) for piece in torch.split(x, inputs)], 1)
            for first in range(0, count, block)
            for drawn in source.draw(first, min(first + block, count), at_once)
        ]
    return Prediction(torch.cat(parts))


def _log_probs(o: Tensor, head: Head | None) -> Tensor:
    if o.ndim != 3:
        raise ShapeError(f"the network must give outputs of shape (b, k), got {tuple(o.shape[1:])}")
    rows = o.flatten(0, 1)  # heads know batches of one dimension
    if head is not None:
        rows = getattr(head, "log_probs", head)(rows)
    check_log_probs(rows, o.shape[0] * o.shape[1], NO_HEAD if head is None else WRONG_HEAD)
    return rows.reshape(*o.shape[:2], rows.shape[-1])


def _shares(source: Source, x: Tensor, count: int, chunk: int | None) -> tuple[int, int]:
    """How many networks and how many inputs make one pass."""
    if chunk is None:
        with Sizes() as sizes, suppress(Exception):  # what is wrong shows later, with the shape of all inputs
            source.network(x[:1])
        chunk = max(LEAST_PAIRS, ACTIVATIONS // sizes.most)
    inputs = min(chunk, max(1, len(x)), max(LEAST_INPUTS, chunk // count))
    return min(count, chunk // inputs), inputs


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Random numbers of a seed; afterwards torch's generators go on as if nothing had been drawn."""
    if seed is None:
        yield
        return
    check_count("seed", seed, least=0)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
