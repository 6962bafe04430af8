"""Many networks of one architecture as one pass: ``torch.func.vmap`` with some operations in a form that suits it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as TF
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from openradial.bayes.images import Convolutions, max_pool2d
from openradial.bayes.recurrence import gru_cell, lstm_cell, recur, relu_cell, tanh_cell

CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
CELLS = {torch.gru: gru_cell, torch.lstm: lstm_cell, torch.rnn_tanh: tanh_cell, torch.rnn_relu: relu_cell}


def run_with(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Outputs of a network with other weights than its own."""
    # A layer that is used twice has two names. If torch looked for them, it would put back the wrong weights.
    o: Tensor = functional_call(network, dict(weights), (x,), tie_weights=False)
    return o


def run_stacked(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Outputs for a stack of weights, ``(s, ...)`` each, ``(b, ...) -> (s, b, ...)``.

    Networks that vmap refuses (packed sequences, decisions that depend on values) run one after the other.
    """
    try:
        with _Suited(), sdpa_kernel(SDPBackend.MATH):
            o: Tensor = vmap(partial(run_with, network), in_dims=(0, None))(weights, x)
    except RuntimeError as error:
        if "vmap" not in str(error) and "atching rule" not in str(error):
            raise
        count = len(next(iter(weights.values())))
        rows = [{name: weight[i] for name, weight in weights.items()} for i in range(count)]
        o = torch.stack([run_with(network, row, x) for row in rows])
    return o


class _Suited(TorchFunctionMode):
    """Operations that vmap cannot batch, or batches badly, in a form that it can."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in CELLS and isinstance(args[3], bool):  # a tensor is there for packed sequences
            return recur(CELLS[func], *args)
        if func is TF.linear and len(args) == 3:
            x, weight, bias = args
            return x @ weight.mT if bias is None else (x @ weight.mT).add_(bias)  # vmap's own takes two more passes
        if func in CONVOLUTIONS and len(args) == 7 and not kwargs:
            return Convolutions.apply(func, *args)  # type: ignore[no-untyped-call]
        if func is TF.max_pool2d:
            return max_pool2d(*args, **kwargs)
        return func(*args, **kwargs)


class Sizes(TorchFunctionMode):
    """Remembers the size of the largest tensor that was made."""

    most = 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not isinstance(result, nn.Parameter):
            self.most = max(self.most, result.numel())
        return result


@contextmanager
def evaluating(network: nn.Module, *, active: tuple[type[nn.Module], ...] = ()) -> Iterator[None]:
    """Evaluation mode, apart from the kinds of layers that stay ``active``; afterwards all is as it was."""
    wrong = [module for module in network.modules() if module.training != isinstance(module, active)]
    try:
        for module in wrong:
            module.training = not module.training
        yield
    finally:
        for module in wrong:
            module.training = not module.training
