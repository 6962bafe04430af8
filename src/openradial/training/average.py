"""Weights averaged over the steps of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """An exponential moving average of a network's parameters; buffers are copied as they are."""

    def __init__(self, net: nn.Module, keep: float) -> None:
        self.keep = keep
        self.tensors = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        for name, tensor in net.state_dict().items():
            if tensor.is_floating_point():
                self.tensors[name].lerp_(tensor, 1 - self.keep)
            else:
                self.tensors[name].copy_(tensor)

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)

    @contextmanager
    def in_place(self, net: nn.Module) -> Iterator[None]:
        """Let the network have the averaged weights for a while."""
        own = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
        net.load_state_dict(self.tensors)
        try:
            yield
        finally:
            net.load_state_dict(own)
