"""The objective of a Bayesian network: its divergence from the prior, divided among the batches, plus its loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from openradial.bayes.layers import given
from openradial.bayes.posterior import posterior
from openradial.bayes.vectorised import run_with
from openradial.errors import ShapeError, check_count
from openradial.nn.objective import Loss, Metric, correct


class Elbo(NamedTuple):
    """The mini-batch objective ``loss = kl / batches + nll`` with its two parts, and the outputs it came from."""

    loss: Tensor
    nll: Tensor  # summed over the examples of the batch
    kl: Tensor  # summed over the weights, not yet weighted
    outputs: Tensor  # (b, ...) of the last draw


def elbo(network: nn.Module, x: Tensor, y: Tensor, loss: Loss, *, batches: int, samples: int = 1) -> Elbo:
    r"""Return the objective of the paper for one mini-batch, estimated with newly drawn weights.

    .. math:: \frac{1}{M} D_{KL}[q(w) \| p(w)] - \sum_i \log p(y_i \mid x_i; w)

    Args:
        loss: of outputs and targets, averaged over the examples: minus the mean of :math:`\log p`, such as
            :class:`~openradial.RadialLoss` or ``nn.CrossEntropyLoss``.
        batches: the paper's M; with a batch of 50 of 2,000 examples, 40.
        samples: draws of the weights to average over.

    >>> from openradial import RadialLoss
    >>> from openradial.bayes import BayesLinear
    >>> part = elbo(BayesLinear(2, 3), torch.zeros(50, 2), torch.zeros(50).long(), RadialLoss(beta=5.0), batches=40)
    >>> bool(part.loss == part.kl / 40 + part.nll)
    True
    """
    check_count("batches", batches)
    check_count("samples", samples)
    q = posterior(network)
    kls, nlls = [], []
    for _ in range(samples):
        noise = q.noise()
        o = run_with(network, given(q.named(q.weights(noise))), x)
        nlls.append(loss(o, y) * len(y))
        kls.append(q.kl(noise))
    kl, nll = sum(kls[1:], kls[0]) / samples, sum(nlls[1:], nlls[0]) / samples
    return Elbo(kl / batches + nll, nll, kl, o)


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
        samples: draws of the weights per step.

    >>> from openradial import RadialLoss
    >>> objective = ElboObjective(RadialLoss(beta=5.0), batches=40, batch_size=50)
    >>> list(objective.metrics)
    ['nll', 'kl', 'accuracy']
    """

    loss: Loss
    batches: int
    batch_size: int
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
        part = elbo(model, x, y, self.loss, batches=self.batches, samples=self.samples)
        nll, kl = part.nll / len(y), part.kl / (self.batches * self.batch_size)
        if part.outputs.ndim != 2:
            raise ShapeError(f"the network must give outputs of shape (b, k), got {tuple(part.outputs.shape)}")
        columns = torch.stack([nll, kl]).detach().expand(len(y), 2)
        return nll + kl, torch.cat([part.outputs, columns], 1)
