"""Where the networks of a prediction come from: a posterior, the masks of dropout, or an ensemble."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from openradial.bayes.checks import check_network
from openradial.bayes.ensembles import DROPOUTS, Ensemble, MCDropout
from openradial.bayes.gaussian import posterior
from openradial.bayes.vectorised import evaluating, run_stacked
from openradial.errors import OptionError, check_count

SAMPLES = 100  # networks, if nobody says how many


class Source(ABC):
    """Networks of one architecture, some at a time."""

    network: nn.Module
    size: int  # numbers that differ between two networks

    def count(self, samples: int | None) -> int:
        """How many networks there shall be."""
        count = SAMPLES if samples is None else samples
        check_count("samples", count)
        return count

    def ready(self) -> AbstractContextManager[None]:
        """The mode in which the networks run."""
        return evaluating(self.network)

    @abstractmethod
    def draw(self, first: int, last: int, at_once: int) -> Iterator[Any]:
        """What distinguishes the networks ``first`` to ``last - 1``, for ``at_once`` of them at a time."""

    @abstractmethod
    def outputs(self, drawn: Any, x: Tensor) -> Tensor:
        """Outputs of the networks that were drawn, ``(b, ...) -> (s, b, k)``."""


class Weights(Source):
    """Draws from the posterior of a Bayesian network."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.posterior = network, posterior(network)
        self.size = len(self.posterior.mean)

    def draw(self, first: int, last: int, at_once: int) -> Iterator[dict[str, Tensor]]:
        # drawn together, so that the weights do not depend on how many of them run at once
        yield from map(self.posterior.named, torch.split(self.posterior.draw(last - first), at_once))

    def outputs(self, drawn: dict[str, Tensor], x: Tensor) -> Tensor:
        return run_stacked(self.network, drawn, x)


class Members(Source):
    """The members of an ensemble."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble, self.network = ensemble, ensemble.members[0]
        self.size = max(1, sum(parameter.numel() for parameter in self.network.parameters()))

    def count(self, samples: int | None) -> int:
        if samples not in (None, len(self.ensemble)):
            raise OptionError(
                f"an ensemble has as many samples as members, {len(self.ensemble)}, got samples={samples!r}; "
                "leave samples out"
            )
        return len(self.ensemble)

    def draw(self, first: int, last: int, at_once: int) -> Iterator[dict[str, Tensor]]:
        for start in range(first, last, at_once):
            yield self.ensemble.stacked(start, min(start + at_once, last))

    def outputs(self, drawn: dict[str, Tensor], x: Tensor) -> Tensor:
        return run_stacked(self.network, drawn, x)


class Masks(Source):
    """Draws of the masks of dropout: each input is there once per network, and masks differ between inputs anyway."""

    size = 1

    def __init__(self, dropout: MCDropout) -> None:
        self.network = dropout.network

    def ready(self) -> AbstractContextManager[None]:
        return evaluating(self.network, active=DROPOUTS)

    def draw(self, first: int, last: int, at_once: int) -> Iterator[int]:
        yield from (min(at_once, last - start) for start in range(first, last, at_once))

    def outputs(self, drawn: int, x: Tensor) -> Tensor:
        o: Tensor = self.network(x.repeat(drawn, *(1,) * (x.ndim - 1)))  # (s * b, k)
        return o.view(drawn, len(x), *o.shape[1:])


def source_of(network: nn.Module) -> Source:
    """The networks that a network stands for."""
    check_network(network)
    if isinstance(network, Ensemble):
        return Members(network)
    return Masks(network) if isinstance(network, MCDropout) else Weights(network)
