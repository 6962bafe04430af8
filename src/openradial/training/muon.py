"""Muon: momentum whose steps of matrices are made orthogonal (Jordan et al., 2024)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 3


def orthogonal(matrix: Tensor) -> Tensor:
    """Return a matrix with the same singular vectors whose singular values are mostly between 0.7 and 1.2.

    Three steps of the Newton-Schulz iteration. Singular values far below the largest one stay small.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = (matrix.T if is_tall else matrix) / matrix.norm().clamp_min(1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if is_tall else x


class Muon(Optimizer):
    """Steps of Nesterov momentum: of weights made orthogonal, of all other parameters as they are.

    The weights of a convolution are a matrix with one row per output. Those of convolutions without a bias, which a
    normalisation follows, keep their norm: each row has length 1 on average. The rate of a step is then the same
    whatever the scale of the loss, along all directions; so neither a loss with large curvature nor features with a
    large mean make training diverge.

    Args:
        bias_factor: of the learning rate of all parameters that are not the weights of a convolution or affine layer.
        weight_decay: share, per step and unit of learning rate, by which parameters without a fixed norm shrink.
    """

    def __init__(
        self, net: nn.Module, lr: float, *, momentum: float = 0.0, bias_factor: float = 1.0, weight_decay: float = 0.0
    ) -> None:
        layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd)]
        fixed = [layer.weight for layer in layers if layer.bias is None and not isinstance(layer, nn.Linear)]
        of_layers, has_fixed_norm = ({id(weight) for weight in part} for part in ([x.weight for x in layers], fixed))
        groups: dict[tuple[bool, bool], list[Tensor]] = {}
        for parameter in net.parameters():
            if parameter.requires_grad:
                key = id(parameter)
                groups.setdefault((key in of_layers, key in has_fixed_norm), []).append(parameter)
        options: Iterable[dict[str, Any]] = (
            {"params": part, "orthogonal": kind, "fixed_norm": norm, "factor": 1.0 if kind else bias_factor}
            for (kind, norm), part in groups.items()
        )
        super().__init__(options, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one step from the gradients."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                average = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                average.mul_(momentum).add_(parameter.grad)
                change = parameter.grad.add(average, alpha=momentum)
                if group["orthogonal"]:
                    change = orthogonal(change.flatten(1)).reshape(change.shape)
                if group["fixed_norm"]:
                    parameter.mul_(len(parameter) ** 0.5 / parameter.norm().clamp_min(1e-7))
                else:
                    parameter.mul_(1 - rate * group["weight_decay"])
                parameter.add_(change, alpha=-rate)
