"""Networks to sample from in a prediction: a posterior, a deep ensemble, or dropout that stays on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from openradial.bayes.layers import check_network
from openradial.bayes.posterior import posterior
from openradial.bayes.vectorised import run_stacked
from openradial.errors import OptionError, check_count
from openradial.nn.replace import DROPOUTS

SAMPLES = 100  # default number of networks


class Ensemble(nn.Module):
    """Several trained networks of one architecture (Lakshminarayanan et al. 2017), for :func:`predict`.

    Calling it returns the outputs of all members, ``(members, b, k)``.

    >>> Ensemble([nn.Linear(2, 3) for _ in range(5)])(torch.zeros(7, 2)).shape
    torch.Size([5, 7, 3])
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if isinstance(members, nn.Module) and not isinstance(members, nn.ModuleList):
            raise OptionError(
                f"an ensemble needs a list of networks, got one {type(members).__name__}; pass [net, ...]"
            )
        members = list(members)
        for member in members:
            check_network(member)
        if not members:
            raise OptionError("an ensemble needs at least one network, got none")
        shapes = [{name: tensor.shape for name, tensor in _slots(member)} for member in members]
        if odd := next((i for i, each in enumerate(shapes) if each != shapes[0]), None):
            raise OptionError(
                f"all networks of an ensemble must have the same architecture, got another one at index {odd}"
            )
        self.members = nn.ModuleList(members)

    def __len__(self) -> int:
        return len(self.members)

    def stacked(self, first: int, last: int, at_once: int) -> Iterator[dict[str, Tensor]]:
        """Yield parameters and buffers of some members at a time, stacked by name."""
        for start in range(first, last, at_once):
            states = [dict(_slots(member)) for member in list(self.members)[start : min(start + at_once, last)]]
            yield {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members])


def _slots(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter and buffer by the first name of its module; a layer that is used twice comes once."""
    for path, module in network.named_modules():
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


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
        dropouts = [module for module in network.modules() if isinstance(module, DROPOUTS)]
        if not any(module.p > 0 for module in dropouts):
            raise OptionError(
                "the network has no dropout layer that drops anything, so every sample would be the same; "
                "train one with dropout, as in build('mnist_radial_dropout', 10)"
            )
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        o: Tensor = self.network(x)
        return o


@dataclass(frozen=True)
class NetworkSamples:
    """Networks of one architecture, some at a time."""

    network: nn.Module
    count: int
    size: int  # numbers that differ between two networks
    # what distinguishes the networks from a first one to before a last one, for some of them at a time
    draw: Callable[[int, int, int], Iterable[Any]]
    run: Callable[[nn.Module, Any, Tensor], Tensor] = run_stacked  # outputs of drawn networks, (s, b, k)
    active: tuple[type[nn.Module], ...] = ()  # layers that run in training mode


def samples_of(network: nn.Module, samples: int | None) -> NetworkSamples:
    """Return the networks that a Bayesian network, ensemble or dropout network represents."""
    check_network(network)
    if isinstance(network, Ensemble):
        if samples not in (None, len(network)):
            raise OptionError(
                f"an ensemble has as many samples as members, {len(network)}, got samples={samples!r}; "
                "leave samples out"
            )
        size = sum(parameter.numel() for parameter in network.members[0].parameters())
        return NetworkSamples(network.members[0], len(network), max(1, size), network.stacked)
    count = SAMPLES if samples is None else samples
    check_count("samples", count)
    if isinstance(network, MCDropout):
        return NetworkSamples(network.network, count, 1, _masks, _run_repeated, DROPOUTS)
    q = posterior(network)

    def draw(first: int, last: int, at_once: int) -> Iterable[dict[str, Tensor]]:
        # drawn together, so that the weights do not depend on how many of them run at once
        return map(q.named, torch.split(q.draw(last - first), at_once))

    return NetworkSamples(network, count, len(q.mean), draw)


def _masks(first: int, last: int, at_once: int) -> list[int]:
    """Return numbers of networks; their masks are drawn when they run."""
    return [min(at_once, last - start) for start in range(first, last, at_once)]


def _run_repeated(network: nn.Module, count: int, x: Tensor) -> Tensor:
    """Repeat each input for each network, so that masks differ between networks and between inputs."""
    o: Tensor = network(x.repeat(count, *(1,) * (x.ndim - 1)))  # (s * b, k)
    return o.view(count, len(x), *o.shape[1:])
