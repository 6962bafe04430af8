"""The objective of a Bayesian network: its divergence from the prior, divided among the batches, plus its loss."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from openradial.bayes.layers import given
from openradial.bayes.posterior import posterior
from openradial.bayes.prediction import run_with
from openradial.errors import OptionError, ShapeError, check_count
from openradial.nn.objective import BatchSource, Loss, Metric, correct


class Elbo(NamedTuple):
    """The mini-batch objective ``loss = kl_weight * kl + nll`` with its two parts, and the outputs it came from."""

    loss: Tensor
    nll: Tensor  # summed over the examples of the batch
    kl: Tensor  # summed over the weights, not yet weighted
    outputs: Tensor  # (b, ...) of the last draw


def kl_weight(batches: int, batch: int | None = None) -> float:
    r"""Return the share of the divergence that a mini-batch carries; the shares of an epoch sum to 1.

    ``1 / batches``, the paper's :math:`1/M`; or, if ``batch`` is its number in the epoch from 1 to ``batches``,
    Blundell's :math:`2^{M-i} / (2^M - 1)`: the prior first, the data later.

    >>> kl_weight(4), [round(kl_weight(4, i), 3) for i in (1, 2, 3, 4)]
    (0.25, [0.533, 0.267, 0.133, 0.067])
    """
    check_count("batches", batches)
    if batch is None:
        return 1 / batches
    check_count("batch", batch)
    if batch > batches:
        raise OptionError(f"batch must be at most batches = {batches}, got {batch}; batches are counted from 1")
    return float(2.0**-batch / (1 - 2.0**-batches))


def elbo(
    network: nn.Module, x: Tensor, y: Tensor, loss: Loss, *, batches: int, batch: int | None = None, samples: int = 1
) -> Elbo:
    r"""Return the objective of the paper for one mini-batch, estimated with newly drawn weights.

    .. math:: \frac{1}{M} D_{KL}[q(w) \| p(w)] - \sum_i \log p(y_i \mid x_i; w)

    Args:
        loss: of outputs and targets, averaged over the examples: minus the mean of :math:`\log p`, such as
            :class:`~openradial.RadialLoss` or ``nn.CrossEntropyLoss``.
        batches: the paper's M; with a batch of 50 of 2,000 examples, 40.
        batch: number of this batch, from 1, for Blundell's weights; see :func:`kl_weight`.
        samples: draws of the weights to average over.
    """
    check_count("samples", samples)
    weight = kl_weight(batches, batch)
    q = posterior(network)
    kls, nlls = [], []
    for _ in range(samples):
        noise = q.noise()
        drawn = q.named(q.weights(noise), per_example=network.training)
        o = run_with(network, given(drawn), x)
        nlls.append(loss(o, y) * len(y))
        kls.append(q.kl(noise))
    kl, nll = sum(kls[1:], kls[0]) / samples, sum(nlls[1:], nlls[0]) / samples
    return Elbo(weight * kl + nll, nll, kl, o)


@dataclass(frozen=True)
class ElboObjective:
    """:func:`elbo` for :func:`openradial.training.fit`, divided by the size of a batch.

    The log has the two parts of the loss, ``nll`` and ``kl``, both per example: ``loss = nll + kl``. Metrics are those
    of one draw of the weights; :func:`predict` averages over many. Outputs have two more columns, the two parts,
    because that is how a training loop passes them on; metrics never see them.

    Args:
        loss: of outputs and targets, averaged over the examples.
        batches: mini-batches per epoch, of all processes together: the paper's M.
        batch_size: examples per mini-batch, of all processes together.
        counter: the training batches as a :class:`BatchCounter`, for Blundell's weights; None for the paper's.
        samples: draws of the weights per step.
    """

    loss: Loss
    batches: int
    batch_size: int
    counter: "BatchCounter | None" = None
    samples: int = 1
    measured: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": correct})

    def __post_init__(self) -> None:
        for name in ("batches", "batch_size", "samples"):
            check_count(name, getattr(self, name))

    @property
    def metrics(self) -> dict[str, Metric]:
        """The two parts of the loss, then the metrics of outputs."""
        parts: dict[str, Metric] = {"nll": lambda o, y: o[:, -2], "kl": lambda o, y: o[:, -1]}
        return parts | {
            name: lambda o, y, metric=metric: metric(o[:, :-2], y) for name, metric in self.measured.items()
        }

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        batch = self.counter.batch if self.counter is not None and model.training else None
        part = elbo(model, x, y, self.loss, batches=self.batches, batch=batch, samples=self.samples)
        nll, kl = part.nll / len(y), part.kl * (kl_weight(self.batches, batch) / self.batch_size)
        if part.outputs.ndim != 2:
            raise ShapeError(f"the network must give outputs of shape (b, k), got {tuple(part.outputs.shape)}")
        columns = torch.stack([nll, kl]).detach().expand(len(y), 2)
        return nll + kl, torch.cat([part.outputs, columns], 1)


class BatchCounter:
    """Batches that record the number of the last one in the epoch, from 1; also where an epoch is resumed.

    Blundell's weights depend on that number: give the counter to :class:`ElboObjective` and, instead of the batches, to
    :func:`openradial.training.fit`.
    """

    def __init__(self, source: BatchSource) -> None:
        self.source, self.labels = source, source.labels
        self.batch: int | None = None

    def __len__(self) -> int:
        return len(self.source)

    def epoch(self, epoch: int, *, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        for batch, (x, y) in enumerate(self.source.epoch(epoch, start_batch=start_batch), start_batch + 1):
            self.batch = batch
            yield x, y
