"""Losses and gradients of several networks of one architecture at once, all parameters in one matrix."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from openradial.errors import TrainingError, check_positive
from openradial.functional import radial_loss
from openradial.models.mlp import MLP
from openradial.nn import RadialLoss
from openradial.nn.objective import Loss

Minimised = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
Slope = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

relu_backward = torch.ops.aten.threshold_backward.grad_input


class Stack(ABC):
    """Networks that are trained as one. ``s`` networks with ``p`` parameters each are a matrix ``(s, p)``."""

    parameters: Tensor

    def prepare(self, inputs: Tensor) -> Tensor:
        """The inputs of the whole training set as :meth:`gradients` wants them."""
        return inputs

    @abstractmethod
    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and gradients ``(s, p)`` at a batch per network, ``x (s, b, ...)`` and ``y (s, b)``.

        The losses are ``(s, 1)``, or ``(s, b)`` if their mean is still to be taken: cheaper for many batches at once.
        """

    @abstractmethod
    def write_back(self) -> None:
        """Give the networks their parameters."""


class LinearStack(Stack):
    """Fully connected networks with ReLU, differentiated by hand.

    Each matrix has the bias as its last row and each activation a last column of ones, so that one product serves both,
    forward and backward. Memory is kept between steps: at this size, asking for it and asking autograd take longer than
    the arithmetic.
    """

    def __init__(self, chains: Sequence[Sequence[nn.Linear]], slope: Slope) -> None:
        self.chains, self.slope = chains, slope
        shapes = [(layer.in_features + 1, layer.out_features) for layer in chains[0]]
        count = sum(math.prod(shape) for shape in shapes)
        self.parameters = chains[0][0].weight.new_empty(len(chains), count)
        self.gradient = torch.empty_like(self.parameters)
        self.matrices, self.slopes = cut(self.parameters, shapes), cut(self.gradient, shapes)
        self.transposed = [matrix[:, :-1].transpose(1, 2) for matrix in self.matrices]  # without the biases
        for s, chain in enumerate(chains):
            for layer, matrix in zip(chain, self.matrices, strict=True):
                matrix[s, :-1] = layer.weight.detach().t()
                matrix[s, -1] = layer.bias.detach()
        self.rooms: dict[int, _Room] = {}

    def prepare(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, inputs.new_ones(len(inputs), 1)], 1)

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        room = self.rooms.get(x.shape[1]) or self._new_room(x.shape[1])
        o = self._outputs(x, room)
        losses, g = self.slope(o, y)
        for i in range(len(self.matrices) - 1, 0, -1):
            torch.bmm(room.hidden_t[i - 1], g, out=self.slopes[i])
            below, active = room.below[i - 1], room.active[i - 1]
            torch.bmm(g, self.transposed[i], out=below)
            g = relu_backward(below, active, 0, grad_input=below)  # (s, b, width)
        torch.bmm(x.transpose(1, 2), g, out=self.slopes[0])
        return losses, self.gradient

    def write_back(self) -> None:
        for s, chain in enumerate(self.chains):
            for layer, matrix in zip(chain, self.matrices, strict=True):
                layer.weight.detach().copy_(matrix[s, :-1].t())
                layer.bias.detach().copy_(matrix[s, -1])

    def _outputs(self, x: Tensor, room: "_Room") -> Tensor:
        a = x  # (s, b, width + 1)
        for matrix, sums, active, hidden in zip(self.matrices, room.sums, room.active, room.hidden, strict=False):
            torch.bmm(a, matrix, out=sums)
            torch.clamp_min(sums, 0, out=active)
            a = hidden
        return torch.bmm(a, self.matrices[-1], out=room.sums[-1])

    def _new_room(self, b: int) -> "_Room":
        self.rooms[b] = _Room(self.parameters, b, [layer.out_features for layer in self.chains[0]])
        return self.rooms[b]


class _Room:
    """Memory for the activations of one batch size."""

    def __init__(self, like: Tensor, b: int, widths: Sequence[int]) -> None:
        s = len(like)
        self.sums = [like.new_empty(s, b, width) for width in widths]
        self.hidden = [like.new_ones(s, b, width + 1) for width in widths[:-1]]
        self.hidden_t = [h.transpose(1, 2) for h in self.hidden]
        self.active = [h[..., :-1] for h in self.hidden]  # all but the ones
        self.below = [torch.empty_like(sums) for sums in self.sums[:-1]]


class FunctionalStack(Stack):
    """Any networks that ``torch.func.vmap`` can stack, and any objective of network, inputs and targets."""

    def __init__(self, networks: Sequence[nn.Module], objective: Minimised) -> None:
        self.networks, self.pass_ = networks, _Pass(networks[0], objective)
        trained = [(name, p) for name, p in networks[0].named_parameters() if p.requires_grad]
        self.names, self.shapes = [name for name, _ in trained], [p.shape for _, p in trained]
        self.sizes = [p.numel() for _, p in trained]
        states = [dict(network.named_parameters()) | dict(network.named_buffers()) for network in networks]
        self.parameters = torch.stack(
            [torch.cat([state[name].detach().reshape(-1) for name in self.names]) for state in states]
        )
        fixed = [name for name in states[0] if name not in self.names]
        self.fixed = {name: torch.stack([state[name].detach() for state in states]) for name in fixed}
        self.owners = _owners(networks[0], states[0])
        self.fast: Callable[..., tuple[Tensor, Tensor]] | None = None
        self.fast_size, self.strict = 0, False

    def compile(self, batch_size: int, *, strict: bool) -> None:
        """Compile the gradients for batches of one size at their first use; if ``strict``, fail where that fails."""
        self.fast = torch.compile(
            vmap(grad_and_value(self._loss), randomness="different"),
            fullgraph=True,
            dynamic=False,
            options={"fallback_random": True},  # a compiled kernel draws one number after the other: 15 x as long
        )
        self.fast_size, self.strict = batch_size, strict

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.fast is not None and x.shape[1] == self.fast_size:
            try:
                gradient, losses = self.fast(self.parameters, self.fixed, x, y)
            except Exception as error:  # compilers fail in too many ways to name
                if self.strict:
                    reason = str(error).strip().partition("\n")[0]
                    raise TrainingError(
                        f"torch.compile failed: {reason}; leave compile=True out: it is optional"
                    ) from error
                self.fast = None
            else:
                return losses.unsqueeze(-1), gradient
        with torch.enable_grad():
            parameters = self.parameters.detach().requires_grad_()
            losses = vmap(self._loss, randomness="different")(parameters, self.fixed, x, y)
            return losses.detach().unsqueeze(-1), torch.autograd.grad(losses.sum(), parameters)[0]

    def write_back(self) -> None:
        for s, network in enumerate(self.networks):
            state = dict(network.named_parameters()) | dict(network.named_buffers())
            for name, part in self._named(self.parameters[s]).items():
                state[name].detach().copy_(part)
            for name, stacked in self.fixed.items():
                state[name].detach().copy_(stacked[s])

    def _loss(self, row: Tensor, fixed: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Loss of one network, ``(p,), (b, ...), (b,) -> ()``."""
        values = self._named(row) | fixed
        state = {f"network.{place}": values[name] for place, name in self.owners.items()}
        loss: Tensor = functional_call(self.pass_, state, (x, y), tie_weights=False)
        return loss

    def _named(self, row: Tensor) -> dict[str, Tensor]:
        parts = torch.split(row, self.sizes)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}


class _Pass(nn.Module):
    """Network and objective as one module, because that is what ``functional_call`` can give parameters to."""

    def __init__(self, network: nn.Module, objective: Minimised) -> None:
        super().__init__()
        self.network, self.objective = network, objective

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.objective(self.network, x, y)[0]


def _owners(network: nn.Module, state: Mapping[str, Tensor]) -> dict[str, str]:
    """Every place that holds a parameter or buffer, and the name it has in ``state``.

    A layer that is used twice is one place: ``functional_call`` would put its parameters in twice, and back once.
    """
    names = {id(value): name for name, value in state.items()}
    layers = [(f"{name}." if name else "", layer) for name, layer in network.named_modules()]
    held = [(start + own, value) for start, layer in layers for own, value in _held(layer)]
    return {place: names[id(value)] for place, value in held}


def _held(layer: nn.Module) -> list[tuple[str, Tensor]]:
    own = [*layer.named_parameters(recurse=False, remove_duplicate=False)]
    return [*own, *layer.named_buffers(recurse=False, remove_duplicate=False)]


def cut(rows: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Rows of parameters as one stack of matrices per layer, ``(s, p) -> [(s, *shape), ...]``; views."""
    ends = [0]
    for shape in shapes:
        ends.append(ends[-1] + math.prod(shape))
    return [rows[:, a:z].view(-1, *shape) for (a, z), shape in zip(pairwise(ends), shapes, strict=True)]


def linear_chain(network: nn.Module) -> list[nn.Linear] | None:
    """The layers of a plain fully connected network with ReLU between them; None for any other."""
    if type(network) is MLP:
        parts: list[nn.Module] = [*network.hidden, network.classifier]
    elif type(network) is nn.Sequential:
        parts = [*network]
    else:
        return None
    linear = [part for part in parts[::2] if type(part) is nn.Linear and part.bias is not None]
    alternate = len(linear) == len(parts[::2]) and all(type(part) is nn.ReLU for part in parts[1::2])
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    plain = all(p.requires_grad for p in network.parameters()) and not hooked and len(set(linear)) == len(linear)
    return linear if alternate and plain and len(parts) % 2 else None


def make_slope(loss: Loss, *, by_hand: bool = True) -> Slope:
    """A function from outputs ``(s, b, k)`` and targets ``(s, b)`` to losses, as a stack gives them, and their slopes.

    The usual losses are differentiated by hand; for any other, autograd is asked network by network.
    """
    options = _radial_options(loss) if by_hand else None
    if options is not None and options.keys() <= {"beta", "scale"}:
        return _RadialSlope(**options)
    if by_hand and _is_cross_entropy(loss):
        return _CrossEntropySlope()
    return functools.partial(autograd_slope, loss)


def _radial_options(loss: Loss) -> dict[str, float] | None:
    """The arguments that a loss gives to :func:`radial_loss`; None if it is another loss or an unusual one."""
    if loss is radial_loss:
        return {}
    if isinstance(loss, functools.partial) and loss.func is radial_loss and not loss.args:
        return loss.keywords
    if type(loss) is RadialLoss and loss.prototypes is None and loss.metric == "euclidean" and _is_plain_mean(loss):
        return {"beta": loss.beta, "scale": loss.scale}
    return None


def _is_cross_entropy(loss: Loss) -> bool:
    if type(loss) is nn.CrossEntropyLoss:
        return loss.label_smoothing == 0 and _is_plain_mean(loss)
    return loss is nn.functional.cross_entropy


def _is_plain_mean(loss: RadialLoss | nn.CrossEntropyLoss) -> bool:
    return loss.weight is None and loss.reduction == "mean" and loss.ignore_index < 0


class _Shift:
    """A constant to add at the place of each target, kept because making it takes as long as adding it."""

    def __init__(self) -> None:
        self.kept = torch.empty(0)

    def __call__(self, o: Tensor, at: Tensor, value: float) -> Tensor:
        """``o + value * e_y`` in place, with the targets as ``(s, b, 1)``."""
        if self.kept.shape != at.shape:
            self.kept = o.new_full(at.shape, value)
        return o.scatter_add_(-1, at, self.kept)


class _RadialSlope:
    """:func:`radial_loss` with its gradient, ``beta * (o - p_y) / d_y / b``; zero on the prototype."""

    def __init__(self, beta: float = 1.0, scale: float = 1.0) -> None:
        check_positive("beta", beta)
        check_positive("scale", scale)
        self.beta, self.scale, self.shift = beta, scale, _Shift()

    def __call__(self, o: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        e = self.shift(o, y.unsqueeze(-1), -self.scale)  # (s, b, k)
        d = torch.linalg.vector_norm(e, dim=-1, keepdim=True)
        divisor = torch.clamp_min(d, torch.finfo(d.dtype).tiny).mul_(y.shape[1] / self.beta)  # e is zero where d is
        return d.squeeze(-1) * self.beta, e.div_(divisor)


class _CrossEntropySlope:
    """Mean cross-entropy with its gradient, ``(softmax(o) - e_y) / b``."""

    def __init__(self) -> None:
        self.shift = _Shift()

    def __call__(self, o: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        at, b = y.unsqueeze(-1), y.shape[1]
        log_probs = torch.log_softmax(o, -1)
        losses = log_probs.gather(-1, at).squeeze(-1).neg_()
        return losses, self.shift(log_probs.exp_().div_(b), at, -1 / b)


def autograd_slope(loss: Loss, o: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Losses with their gradients, for any loss."""
    with torch.enable_grad():
        o = o.detach().requires_grad_()
        losses = torch.stack([loss(row, target) for row, target in zip(o, y, strict=True)])
        return losses.detach().unsqueeze(-1), torch.autograd.grad(losses.sum(), o)[0]
