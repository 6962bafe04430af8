"""The posterior: all random weights of a network as one Gaussian, its draws and its divergence from the prior."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from openradial.bayes.layers import BayesLayer, Sampling, tensor_of
from openradial.bayes.priors import Prior, sigma_of
from openradial.errors import OptionError


class RandomWeight(NamedTuple):
    """One parameter of a network that is random, with its names: layers can share it."""

    names: tuple[str, ...]
    shape: torch.Size
    dtype: torch.dtype
    prior: Prior
    sampling: Sampling


@dataclass(frozen=True, eq=False)
class Posterior:
    """The Gaussian over the ``n`` random weights of a network, one after the other: ``mean (n,)``, ``sigma (n,)``.

    Everything is a function of these two and of the drawn noise, ``(n,)``; there is no state, so that copies, saved
    files, ``torch.func`` and several passes in one graph all work.
    """

    parts: tuple[RandomWeight, ...]
    mean: Tensor
    rho: Tensor
    sigma: Tensor
    counted: Tensor | None  # (n,) 0 for weights that stay at their mean; None if all are random

    def noise(self) -> Tensor:
        """Return standard normal noise for one draw, ``(n,)``."""
        return torch.randn(self.mean.shape, dtype=self.mean.dtype, device=self.mean.device)

    def weights(self, noise: Tensor) -> Tensor:
        """Return the weights of one or several draws, ``(..., n) -> (..., n)``."""
        return torch.addcmul(self.mean, self.sigma, noise)

    def draw(self, count: int) -> Tensor:
        """Return the weights of ``count`` draws, ``(count, n)``, without gradient and without further memory."""
        drawn = torch.randn(count, *self.mean.shape, dtype=self.mean.dtype, device=self.mean.device)
        return torch.addcmul(self.mean.detach(), self.sigma.detach(), drawn, out=drawn)

    def named(self, weights: Tensor, *, per_example: bool = False) -> dict[str, Tensor]:
        """Return weights ``(..., n)`` by name, for ``functional_call`` of the network in evaluation mode.

        With ``per_example``, layers that draw noise for each example are left out: they draw when they are called.
        """
        pieces = zip(self.parts, torch.split(weights, [part.shape.numel() for part in self.parts], -1), strict=True)
        shaped = [(part, piece.view(*piece.shape[:-1], *part.shape).to(part.dtype)) for part, piece in pieces]
        return {
            name: piece
            for part, piece in shaped
            if not (per_example and part.sampling != "weights")
            for name in part.names
        }

    def kl(self, noise: Tensor) -> Tensor:
        r"""Return the divergence :math:`D_{KL}[q \| p]` from the prior, summed over all weights, estimated at one draw.

        For a :class:`~openradial.bayes.GaussianPrior` it is exact and ``noise`` is not used.
        """
        tensors = [self.mean, self.rho, self.weights(noise), *([] if self.counted is None else [self.counted])]
        priors, terms = list(dict.fromkeys(part.prior for part in self.parts)), []
        sizes = [part.shape.numel() for part in self.parts]
        for prior in priors:
            chosen = [part.prior == prior for part in self.parts]
            selected = (torch.cat([*compress(torch.split(each, sizes), chosen)]) for each in tensors)
            mean, rho, w, *counted = tensors if len(priors) == 1 else selected
            kl = prior.kl(mean, rho, w)
            terms.append((kl * counted[0] if counted else kl).sum())
        return sum(terms[1:], terms[0])


def posterior(network: nn.Module) -> Posterior:
    """Return the Gaussian over all random weights of a network; weights that layers share count once.

    >>> from openradial.bayes import BayesLinear
    >>> q = posterior(nn.Sequential(BayesLinear(2, 50), nn.ReLU(), BayesLinear(50, 3)))
    >>> q.mean.shape, q.kl(q.noise()).shape
    (torch.Size([303]), torch.Size([]))
    """
    weights = list(_random_weights(network))
    if not weights:
        raise OptionError("the network has no random weights; make it Bayesian with to_bayesian(network)")
    parts, means, rhos, masks = zip(*weights, strict=True)
    mean, rho = torch.cat([m.reshape(-1) for m in means]), torch.cat([r.reshape(-1) for r in rhos])
    sigma = sigma_of(rho)
    if all(mask is None for mask in masks):
        return Posterior(parts, mean, rho, sigma, None)
    full = [torch.ones_like(m) if c is None else c.expand(m.shape) for m, c in zip(means, masks, strict=True)]
    counted = torch.cat([mask.reshape(-1) for mask in full])
    return Posterior(parts, mean, rho, sigma * counted, counted)


def _random_weights(network: nn.Module) -> Iterator[tuple[RandomWeight, Tensor, Tensor, Tensor | None]]:
    """Yield each random parameter once, with its mean, its rho and its mask of random weights."""
    uses: dict[int, list[tuple[str, BayesLayer, str]]] = {}
    for path, layer in network.named_modules():
        for name in layer.random if isinstance(layer, BayesLayer) else ():
            full_name = f"{path}.{name}" if path else name
            uses.setdefault(id(tensor_of(layer, name)), []).append((full_name, layer, name))
    for shared in uses.values():
        _, layer, name = shared[0]
        mean, rho = tensor_of(layer, name), tensor_of(layer, f"{name}_rho")
        names = tuple(full_name for full_name, _, _ in shared)
        yield RandomWeight(names, mean.shape, mean.dtype, layer.prior, layer.sampling), mean, rho, layer.counted(name)
