"""Weights cut into pieces over the processes (FSDP), and the states of whole or cut networks as plain tensors."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from openradial.errors import OptionError
from openradial.training import checkpoint
from openradial.training.settings import Settings

LARGE = 1_000_000  # parameters of a layer that is gathered and let go on its own


def check_can_shard(settings: Settings, world: int) -> None:
    """Raise for settings that do not go together with sharding."""
    if world < 2:
        raise OptionError("fsdp cuts a network over processes and needs at least 2, got 1; start more with torchrun")
    if settings.precision not in ("float32", "bfloat16"):
        raise OptionError(f"fsdp works with float32 and bfloat16, got precision {settings.precision}")
    if settings.ema is not None:
        raise OptionError("ema cannot be combined with fsdp: leave one of them out")


def shard(net: nn.Module, settings: Settings, device: torch.device, world: int) -> nn.Module:
    """Cut the parameters of ``net`` over all processes, in place; large layers are gathered one at a time."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world,))
    half = torch.bfloat16 if settings.precision == "bfloat16" else None
    inner = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32 if half else None)
    outer = MixedPrecisionPolicy(inner.param_dtype, inner.reduce_dtype, torch.float32 if half else None)
    net.to(device)
    for layer in list(net.modules()):
        if layer is not net and sum(p.numel() for p in layer.parameters(recurse=False)) >= LARGE:
            fully_shard(layer, mesh=mesh, mp_policy=inner)
    fully_shard(net, mesh=mesh, mp_policy=outer)
    return net


def let_go(nets: Iterable[nn.Module]) -> None:
    """Make sharded networks forget the processes that hold their other parts; they cannot be called any more.

    torch has no public way; names that another version does not have are passed over.
    """
    for layer in (layer for net in nets for layer in net.modules() if is_sharded(layer)):
        for group in getattr(layer._get_fsdp_state(), "_fsdp_param_groups", ()):  # type: ignore[operator]
            for info in (getattr(group, name, None) for name in ("mesh_info", "post_forward_mesh_info")):
                if info is not None:
                    info.shard_process_group = None
                    getattr(info.mesh, "_pg_registry", {}).clear()
    getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()


def is_sharded(net: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(net).__mro__)  # without loading torch.distributed.fsdp


def model_tensors(net: nn.Module) -> dict[str, Tensor]:
    """The whole state of a network; all processes take part, and of a sharded one the first alone gets it."""
    if not is_sharded(net):
        return net.state_dict()
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    tensors: dict[str, Any] = get_model_state_dict(net, options=_whole(cpu_offload=True))
    return tensors


def load_model(net: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a network, sharded or not, the whole state that :func:`model_tensors` gave.

    Of a sharded network the first process's tensors count. RuntimeError if names or shapes differ.
    """
    if not is_sharded(net):
        net.load_state_dict(dict(tensors))
        return
    from torch.distributed.checkpoint.state_dict import set_model_state_dict

    set_model_state_dict(net, dict(tensors), options=_whole(broadcast_from_rank0=True))


def gathered(net: nn.Module, build: Callable[[], nn.Module]) -> nn.Module:
    """Return the trained network on the CPU, complete in every process; ``build`` makes one that is not sharded."""
    if not is_sharded(net):
        return net.cpu()
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    tensors: dict[str, Any] = get_model_state_dict(net, options=_whole())
    complete = build()
    complete.load_state_dict({name: tensor.cpu() for name, tensor in tensors.items()})
    return complete


def optimiser_tensors(net: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, as tensors named ``parameter.quantity``; for processes as :func:`model_tensors`."""
    if not is_sharded(net):
        return checkpoint.optimiser_tensors(optimiser)
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    found: dict[str, Any] = dict(get_optimizer_state_dict(net, optimiser, options=_whole(cpu_offload=True)))
    state = found.get("state", {})
    return {f"{name}.{quantity}": value for name, values in state.items() for quantity, value in values.items()}


def load_optimiser(net: nn.Module, optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser back what :func:`optimiser_tensors` took from it."""
    if not is_sharded(net):
        checkpoint.load_optimiser(optimiser, tensors)
        return
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        parameter, _, quantity = name.rpartition(".")
        state.setdefault(parameter, {})[quantity] = tensor
    groups = get_optimizer_state_dict(net, optimiser, options=_whole())["param_groups"]
    whole: dict[str, Any] = {"state": state, "param_groups": groups}
    set_optimizer_state_dict(net, optimiser, whole, options=_whole(broadcast_from_rank0=True))


def _whole(*, cpu_offload: bool = False, broadcast_from_rank0: bool = False) -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(full_state_dict=True, cpu_offload=cpu_offload, broadcast_from_rank0=broadcast_from_rank0)
