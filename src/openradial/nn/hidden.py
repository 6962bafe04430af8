"""What passes through a network on its way: outputs of named layers."""

from collections.abc import Sequence

from torch import Tensor, nn

from openradial.errors import HeadError

INPUTS, OUTPUTS = "inputs", "outputs"


def hidden_layers(net: nn.Module, x: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """The outputs of the layers that ``names`` lists, each as rows ``(b, d)``, from one forward pass.

    ``"inputs"`` is what goes in and ``"outputs"`` what comes out; all else is a name of ``net.named_modules()``. A
    layer that is called several times gives its last output.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))
    >>> {name: tuple(z.shape) for name, z in hidden_layers(net, torch.zeros(4, 2), ["1", "outputs"]).items()}
    {'1': (4, 5), 'outputs': (4, 3)}
    """
    layers = dict(net.named_modules())
    unknown = [name for name in names if name not in layers and name not in (INPUTS, OUTPUTS)]
    if unknown:
        raise HeadError(
            f"the network has no layer {unknown[0]!r}; its layers are: {', '.join(name for name in layers if name)}"
        )
    found: dict[str, Tensor] = {}

    def keep(name: str) -> object:
        def hook(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
            found[name] = output.flatten(1)

        return layers[name].register_forward_hook(hook)

    handles = [keep(name) for name in names if name not in (INPUTS, OUTPUTS)]
    try:
        o = net(x)
    finally:
        for handle in handles:
            handle.remove()  # type: ignore[attr-defined]
    found |= {OUTPUTS: o, INPUTS: x.flatten(1)}
    return {name: found[name] for name in names}
