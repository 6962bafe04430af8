"""What passes through a network on its way: named places in it."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from openradial.errors import HeadError

INPUTS, OUTPUTS = "inputs", "outputs"
SUFFIX = ":input"


def hidden_layers(net: nn.Module, x: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """What passes the places that ``names`` lists, each as rows ``(b, d)``, from one forward pass.

    A place is a name of ``net.named_modules()`` for what comes out of that layer, or the name with ``:input`` for what
    goes into it. ``"inputs"`` is what goes into the network and ``"outputs"`` what comes out. A layer that is called
    several times gives its last call.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))
    >>> {name: tuple(z.shape) for name, z in hidden_layers(net, torch.zeros(4, 2), ["2:input", "outputs"]).items()}
    {'2:input': (4, 5), 'outputs': (4, 3)}
    """
    found: dict[str, Tensor] = {}
    handles = [_watch(_layer(net, name), name, found) for name in names if name not in (INPUTS, OUTPUTS)]
    try:
        o = net(x)
    finally:
        for handle in handles:
            handle.remove()
    found |= {OUTPUTS: o, INPUTS: x.flatten(1)}
    return {name: found[name] for name in names}


def _layer(net: nn.Module, name: str) -> nn.Module:
    layers = dict(net.named_modules())
    found: nn.Module | None = layers.get(name.removesuffix(SUFFIX))
    if found is None:
        own = ", ".join(layer for layer in layers if layer)
        raise HeadError(f"the network has no layer {name.removesuffix(SUFFIX)!r}; its layers are: {own}")
    return found


def _watch(layer: nn.Module, name: str, found: dict[str, Tensor]) -> RemovableHandle:
    def goes_in(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found[name] = inputs[0].flatten(1)

    def comes_out(_layer: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        found[name] = output.flatten(1)

    if name.endswith(SUFFIX):
        return layer.register_forward_pre_hook(goes_in)
    return layer.register_forward_hook(comes_out)
