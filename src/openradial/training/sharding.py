"""Weights sharded over the processes (FSDP), and the states of networks and optimisers, sharded or not, as tensors."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from openradial.errors import OptionError, TrainingError
from openradial.training.settings import Settings

LARGE = 1_000_000  # parameters of a layer that is gathered and released on its own


def check_can_shard(settings: Settings, world_size: int) -> None:
    """Raise for settings that cannot be combined with sharding."""
    if world_size < 2:
        raise OptionError("fsdp shards a network over at least 2 processes, got 1; start more with torchrun")
    if settings.precision not in ("float32", "bfloat16"):
        raise OptionError(f"fsdp works with float32 and bfloat16, got precision {settings.precision}")
    if settings.ema is not None:
        raise OptionError("ema cannot be combined with fsdp: leave one of them out")


def shard(net: nn.Module, settings: Settings, device: torch.device, world_size: int) -> nn.Module:
    """Shard the parameters of ``net`` over all processes, in place; large layers are gathered one at a time."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world_size,))
    half = torch.bfloat16 if settings.precision == "bfloat16" else None
    inner = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32 if half else None)
    outer = MixedPrecisionPolicy(inner.param_dtype, inner.reduce_dtype, torch.float32 if half else None)
    net.to(device)
    for layer in list(net.modules()):
        if layer is not net and sum(p.numel() for p in layer.parameters(recurse=False)) >= LARGE:
            fully_shard(layer, mesh=mesh, mp_policy=inner)
    fully_shard(net, mesh=mesh, mp_policy=outer)
    return net


def release_process_groups(nets: Iterable[nn.Module]) -> None:
    """Drop the references of sharded networks to their process group; they cannot be called any more.

    torch has no public function for this; attributes that another version does not have are skipped.
    """
    for layer in (layer for net in nets for layer in net.modules() if is_sharded(layer)):
        for group in getattr(layer._get_fsdp_state(), "_fsdp_param_groups", ()):  # type: ignore[operator]
            for info in (getattr(group, name, None) for name in ("mesh_info", "post_forward_mesh_info")):
                if info is not None:
                    info.shard_process_group = None
                    getattr(info.mesh, "_pg_registry", {}).clear()
    getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()


def is_sharded(net: nn.Module) -> bool:
    """Return whether FSDP shards this network."""
    return any(kind.__name__ == "FSDPModule" for kind in type(net).__mro__)  # without loading torch.distributed.fsdp


def model_tensors(net: nn.Module, *, main_only: bool = True) -> dict[str, Tensor]:
    """Return the complete state of a network; all processes must call this, with ``main_only`` the first gets it."""
    if not is_sharded(net):
        return net.state_dict()
    return _functions().get_model_state_dict(net, options=_full_state(cpu_offload=main_only))  # type: ignore[no-any-return]


def load_model(net: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load what :func:`model_tensors` returned; a sharded network gets the first process's tensors.

    RuntimeError if names or shapes differ.
    """
    if not is_sharded(net):
        net.load_state_dict(dict(tensors))
        return
    _functions().set_model_state_dict(net, dict(tensors), options=_full_state(broadcast_from_rank0=True))


def gathered(net: nn.Module, build: Callable[[], nn.Module]) -> nn.Module:
    """Return the trained network on the CPU, complete in every process; ``build`` makes one that is not sharded."""
    if not is_sharded(net):
        return net.cpu()
    complete = build()
    tensors = model_tensors(net, main_only=False)
    complete.load_state_dict({name: tensor.cpu() for name, tensor in tensors.items()})
    return complete


def optimiser_tensors(net: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser as tensors named ``parameter.quantity``; call it as :func:`model_tensors`."""
    states: Any = optimiser.state_dict()
    if is_sharded(net):
        states = _functions().get_optimizer_state_dict(net, optimiser, options=_full_state(cpu_offload=True))
    return {
        f"{parameter}.{quantity}": value if isinstance(value, Tensor) else torch.tensor(value)
        for parameter, values in states.get("state", {}).items()
        for quantity, value in values.items()
        if value is not None
    }


def load_optimiser(net: nn.Module, optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load what :func:`optimiser_tensors` returned."""
    state: dict[Any, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        parameter, _, quantity = name.rpartition(".")
        state.setdefault(parameter if is_sharded(net) else int(parameter), {})[quantity] = tensor.clone()
    if not is_sharded(net):
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for number, values in state.items():
            for quantity, tensor in values.items():
                if number >= len(parameters) or tensor.shape not in ((), parameters[number].shape):
                    raise TrainingError("the optimiser of the checkpoint trained other parameters; start a new run")
                if tensor.ndim:  # in the memory format of the parameter: fused steps read both in the order of memory
                    values[quantity] = torch.empty_like(parameters[number]).copy_(tensor)
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        return
    groups = _functions().get_optimizer_state_dict(net, optimiser, options=_full_state())["param_groups"]
    full = {"state": state, "param_groups": groups}
    _functions().set_optimizer_state_dict(net, optimiser, full, options=_full_state(broadcast_from_rank0=True))


def _functions() -> Any:
    """Return torch's functions for sharded states, which are slow to import."""
    return import_module("torch.distributed.checkpoint.state_dict")


def _full_state(**options: bool) -> Any:
    return _functions().StateDictOptions(full_state_dict=True, **options)
