"""Optimisers, learning rate schedules and weight averages, as the settings name them."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn, optim
from torch.optim.swa_utils import AveragedModel

from openradial.training.settings import Settings


def make_optimiser(parameters: Iterable[nn.Parameter], settings: Settings) -> optim.Optimizer:
    """Return the optimiser that the settings name."""
    rate, decay, momentum = settings.learning_rate, settings.weight_decay, settings.momentum
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    fused = {parameter.device.type for parameter in trained} <= {"cpu", "cuda"}  # one kernel for all tensors
    if settings.optimiser == "sgd":
        return optim.SGD(trained, rate, momentum=momentum, weight_decay=decay, fused=fused)
    if settings.optimiser == "rmsprop":
        return optim.RMSprop(trained, rate, alpha=settings.decay, momentum=momentum, weight_decay=decay, foreach=True)
    kind = optim.Adam if settings.optimiser == "adam" else optim.AdamW
    return kind(trained, rate, betas=settings.betas, weight_decay=decay, fused=fused)


def learning_rate_factor(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """Return the factor of the learning rate at a step: the schedule after a linear warm-up.

    >>> settings = Settings(epochs=10, schedule="cosine", warmup_epochs=1)
    >>> [round(learning_rate_factor(settings, step, 10), 2) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = settings.warmup_epochs * steps_per_epoch
    if step < warmup:
        return (step + 1) / (warmup + 1) if warmup < 1 else min(1.0, (step + 1) / warmup)
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "step":
        return float(settings.step_factor ** (step // steps_per_epoch // settings.step_epochs))
    done = (step - warmup) / max(1.0, settings.epochs * steps_per_epoch - warmup)  # share of the steps, in [0, 1)
    return 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


@contextmanager
def averaged_weights(net: nn.Module, average: AveragedModel) -> Iterator[None]:
    """Load the averaged weights into ``net``, and restore the current ones at the end."""
    current = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    net.load_state_dict(average.module.state_dict())
    try:
        yield
    finally:
        net.load_state_dict(current)
