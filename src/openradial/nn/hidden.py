"""Run a network: its hidden layers by name, and its evaluation mode."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from openradial.errors import HeadError

SUFFIX = ":input"


def hidden_layers(net: nn.Module, x: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the values at the layers in ``names``, each as rows ``(b, d)``, from one forward pass.

    A name of ``net.named_modules()`` stands for the result of that layer, the name with ``:input`` for its input.
    ``"inputs"`` is the input of the network and ``"outputs"`` its result. Of a layer that is called several times, the
    last call counts.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))
    >>> {name: tuple(z.shape) for name, z in hidden_layers(net, torch.zeros(4, 2), ["2:input", "outputs"]).items()}
    {'2:input': (4, 5), 'outputs': (4, 3)}
    """
    values: dict[str, Tensor] = {}
    handles = [_record(net, name, values) for name in names if name not in ("inputs", "outputs")]
    try:
        o = net(x)
    finally:
        for handle in handles:
            handle.remove()
    values |= {"outputs": o, "inputs": x.flatten(1)}
    return {name: values[name] for name in names}


@contextmanager
def evaluating(network: nn.Module, *, active: tuple[type[nn.Module], ...] = ()) -> Iterator[None]:
    """Set evaluation mode, apart from the types of layers that stay ``active``; restore the modes afterwards."""
    wrong = [module for module in network.modules() if module.training != isinstance(module, active)]
    try:
        for module in wrong:
            module.training = isinstance(module, active)
        yield
    finally:
        for module in wrong:
            module.training = not isinstance(module, active)


def _record(net: nn.Module, name: str, values: dict[str, Tensor]) -> RemovableHandle:
    layers = dict(net.named_modules())
    layer: nn.Module | None = layers.get(name.removesuffix(SUFFIX))
    if layer is None:
        names = ", ".join(each for each in layers if each)
        raise HeadError(f"the network has no layer {name.removesuffix(SUFFIX)!r}; its layers are: {names}")

    def record(_layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | None = None) -> None:
        values[name] = (inputs[0] if output is None else output).flatten(1)

    return layer.register_forward_pre_hook(record) if name.endswith(SUFFIX) else layer.register_forward_hook(record)
