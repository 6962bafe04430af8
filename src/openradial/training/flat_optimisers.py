"""The steps of torch.optim on one matrix: all parameters of a network in a row, all networks below each other.

A step is a handful of operations for any number of networks. Apart from rounding it is what the optimiser of
:func:`openradial.training.optimisers.make_optimiser` does to each network alone.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from openradial.training.settings import Settings

EPSILON = 1e-8  # that of torch.optim

Update = Callable[[Tensor, float], None]


def make_update(parameters: Tensor, settings: Settings) -> Update:
    """A function of gradient and learning rate that changes ``parameters`` in place; it may use up the gradient."""
    kinds = {"sgd": _SGD, "rmsprop": _RMSprop, "adam": _Adam, "adamw": _AdamW}
    return kinds[settings.optimiser](parameters, settings).step


def clip_rows(gradient: Tensor, norm: float) -> None:
    """Shorten each row to at most ``norm``, as :func:`torch.nn.utils.clip_grad_norm_` does for one network."""
    lengths = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    gradient.mul_(torch.clamp_max(norm / (lengths + 1e-6), 1.0))


def _roots(squares: Tensor, out: Tensor) -> Tensor:
    """Square roots; of zero, which dead units have, MKL takes twenty times as long as of the smallest normal number."""
    return torch.clamp_min(squares, torch.finfo(squares.dtype).tiny, out=out).sqrt_()


class _SGD:
    def __init__(self, parameters: Tensor, settings: Settings) -> None:
        self.parameters, self.settings = parameters, settings
        self.velocity = torch.zeros_like(parameters) if settings.momentum else None

    def step(self, gradient: Tensor, rate: float) -> None:
        self._pull(gradient)
        self.parameters.sub_(self._moved(gradient), alpha=rate)

    def _pull(self, gradient: Tensor) -> None:
        """Weight decay as part of the gradient."""
        if self.settings.weight_decay:
            gradient.add_(self.parameters, alpha=self.settings.weight_decay)

    def _moved(self, direction: Tensor) -> Tensor:
        if self.velocity is None:
            return direction
        return self.velocity.mul_(self.settings.momentum).add_(direction)


class _RMSprop(_SGD):
    def __init__(self, parameters: Tensor, settings: Settings) -> None:
        super().__init__(parameters, settings)
        self.squares, self.scratch = torch.zeros_like(parameters), torch.empty_like(parameters)

    def step(self, gradient: Tensor, rate: float) -> None:
        self._pull(gradient)
        self.squares.mul_(self.settings.decay).addcmul_(gradient, gradient, value=1 - self.settings.decay)
        size = _roots(self.squares, self.scratch).add_(EPSILON)
        if self.velocity is None:
            self.parameters.addcdiv_(gradient, size, value=-rate)
        else:
            self.parameters.sub_(self.velocity.mul_(self.settings.momentum).addcdiv_(gradient, size), alpha=rate)


class _Adam(_SGD):
    def __init__(self, parameters: Tensor, settings: Settings) -> None:
        super().__init__(parameters, settings)
        self.means, self.squares = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self.scratch = torch.empty_like(parameters)
        self.steps = 0

    def step(self, gradient: Tensor, rate: float) -> None:
        self._pull(gradient)
        self._follow(gradient, rate)

    def _follow(self, gradient: Tensor, rate: float) -> None:
        keep_mean, keep_square = self.settings.betas
        self.steps += 1
        self.means.lerp_(gradient, 1 - keep_mean)
        self.squares.mul_(keep_square).addcmul_(gradient, gradient, value=1 - keep_square)
        size = _roots(self.squares, self.scratch).div_(math.sqrt(1 - keep_square**self.steps)).add_(EPSILON)
        self.parameters.addcdiv_(self.means, size, value=-rate / (1 - keep_mean**self.steps))


class _AdamW(_Adam):
    def step(self, gradient: Tensor, rate: float) -> None:
        if self.settings.weight_decay:
            self.parameters.mul_(1 - rate * self.settings.weight_decay)
        self._follow(gradient, rate)
