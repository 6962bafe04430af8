"""Networks to compare with: deep ensembles, and dropout that stays on in prediction."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from openradial.bayes.checks import check_network
from openradial.errors import OptionError

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class Ensemble(nn.Module):
    """Several trained networks of one architecture (Lakshminarayanan et al. 2017), for :func:`predict`.

    Called, it gives the outputs of all members, ``(members, b, k)``.

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
        if odd := next((i for i, found in enumerate(shapes) if found != shapes[0]), None):
            raise OptionError(
                f"all networks of an ensemble must have the same architecture, got another one at place {odd}"
            )
        self.members = nn.ModuleList(members)

    def __len__(self) -> int:
        return len(self.members)

    def stacked(self, first: int, last: int) -> dict[str, Tensor]:
        """Parameters and buffers of some members, one stack for each."""
        states = [dict(_slots(member)) for member in list(self.members)[first:last]]
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members])


def _slots(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Each parameter and buffer by the first name of its module; a layer that is used twice is there once."""
    for path, module in network.named_modules():
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


class MCDropout(nn.Module):
    """A trained network with dropout whose masks stay on in :func:`predict` (Gal and Ghahramani 2016).

    Called, it is the network itself. Only dropout layers count: ``functional.dropout`` inside a ``forward`` does not
    know that it should stay on.

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
