"""Devices, processes, precision and threads of a run, on Lightning Fabric; weights sharded over processes (FSDP).

The states of networks and optimisers, sharded or not, are read and loaded as tensors.
"""

import atexit
import gc
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from openradial.errors import OptionError, TrainingError, check_choice, check_count, require
from openradial.training.settings import Settings, make_optimiser

PRECISIONS = {"float32": "32-true", "float64": "64-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
EXIT_TIMEOUT = 10.0  # seconds to destroy the process group at exit
ONE_THREAD_BELOW = 2**22  # multiplications in the largest product of a step
LARGE = 1_000_000  # parameters of a layer that is gathered and released on its own


class Devices:
    """The devices and processes of a run. ``devices="auto"`` is one device, or those that ``torchrun`` started.

    ``strategy``: ``auto`` and ``ddp`` keep the complete network in each process, ``fsdp`` shards it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        accelerator: str = "auto",
        devices: int | str = "auto",
        nodes: int = 1,
        strategy: str = "auto",
    ) -> None:
        check_choice("strategy", strategy, ("auto", "ddp", "fsdp"))
        self.shards = strategy == "fsdp"
        fabric = require("lightning_fabric", "train", "training")
        if devices == "auto":  # as torchrun set them, else one device
            devices = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
            nodes = int(os.environ["WORLD_SIZE"]) // devices if "LOCAL_WORLD_SIZE" in os.environ else nodes
        count, most = int(devices) if str(devices).isdecimal() else 0, max(8, 4 * (os.cpu_count() or 1))
        if not 0 < count <= most:
            raise OptionError(f"devices must be auto or a number from 1 to {most} on this machine, got {devices!r}")
        check_count("nodes", nodes)
        if settings.precision == "float16" and accelerator in ("cpu", "auto") and not torch.cuda.is_available():
            raise OptionError("float16 needs a GPU that scales gradients, got a CPU; use bfloat16 or float32")
        if self.shards:
            check_can_shard(settings, count * nodes)
        if self.shards or (strategy == "auto" and count * nodes > 1):
            strategy = "ddp"  # Fabric starts the processes; set_up decides what each of them holds
        try:
            precision = PRECISIONS[settings.precision]
            self.fabric: Any = fabric.Fabric(
                accelerator=accelerator, devices=count, num_nodes=nodes, strategy=strategy, precision=precision
            )
        except (RuntimeError, ValueError) as error:
            raise OptionError(
                f"training cannot start with accelerator={accelerator!r}, devices={devices!r}: {error}"
            ) from error
        if "LT_CLI_USED" not in os.environ:  # otherwise fabric run has launched already
            self.fabric.launch()
        self.rank, self.world_size = int(self.fabric.global_rank), int(self.fabric.world_size)
        self.is_main = self.rank == 0  # the process that writes and prints
        self._sharded: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        if _has_process_group():
            _destroy_process_group_at_exit(self._sharded)

    def set_up(self, net: nn.Module, settings: Settings) -> tuple[nn.Module, Optimizer]:
        """Return the network as it is called in training, and its optimiser."""
        if self.shards:
            model = shard(net, settings, self.fabric.device, self.world_size)
            self._sharded.add(model)
            return model, make_optimiser(model, settings)
        model = self.fabric.setup_module(net)
        return model, self.fabric.setup_optimizers(make_optimiser(model, settings))

    def clip_gradients(self, model: nn.Module, optimiser: Optimizer, max_norm: float) -> None:
        """Clip the norm of the gradients, taken over all processes."""
        if self.shards:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        else:
            self.fabric.clip_gradients(model, optimiser, max_norm=max_norm, error_if_nonfinite=False)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each number over all processes."""
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        return [float(value) for value in self.fabric.all_reduce(tensor, reduce_op="sum").tolist()]

    def random_states(self) -> dict[str, Tensor]:
        """Return the states of all random generators of all processes, ``(processes, bytes)`` each."""
        states = {"cpu": torch.get_rng_state()}
        if self.fabric.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.fabric.device)
        if self.world_size == 1:
            return {name: state.unsqueeze(0) for name, state in states.items()}
        gathered = self.fabric.all_gather({name: state.to(self.fabric.device) for name, state in states.items()})
        return {name: state.cpu() for name, state in gathered.items()}

    def restore_random_states(self, states: dict[str, Tensor]) -> None:
        """Set the random generators of this process to states from :meth:`random_states`."""
        torch.set_rng_state(states["cpu"][self.rank].clone())  # a view that begins in the middle crashes torch
        if "cuda" in states and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"][self.rank].clone(), self.fabric.device)


def _has_process_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _destroy_process_group_at_exit(sharded: weakref.WeakSet[nn.Module]) -> None:
    """Destroy the process group and end gloo's threads when this process exits.

    A gloo thread may still release a tensor; if Python exits meanwhile, the process is aborted
    (pytorch/pytorch#190489). The threads end when nothing refers to their group any more. Fabric destroys only NCCL
    groups. A process that failed may have started an operation that the others never join, so it must not wait long: a
    separate thread waits, and is started now, because an exiting Python cannot start one.
    """
    exiting = threading.Event()

    def destroy() -> None:
        exiting.wait()
        if _has_process_group():
            torch.distributed.destroy_process_group()
        release_process_groups(sharded)
        gc.collect()

    def wait() -> None:
        exiting.set()
        destroyer.join(EXIT_TIMEOUT)

    destroyer = threading.Thread(target=destroy, name="destroy process group", daemon=True)
    destroyer.start()
    atexit.register(wait)


def threads_for(net: nn.Module, x: Tensor, batch_size: int) -> int:
    """Return the number of CPU threads for steps on ``batch_size`` inputs like those of the batch ``x``.

    Threads of a small product mostly wait for each other, for milliseconds if another process uses the cores. So it is
    one thread if no product of the step has ``ONE_THREAD_BELOW`` multiplications, else as many as torch uses now.
    """
    is_image = x.ndim > 3
    steps = x.shape[1] if x.ndim == 3 or (x.ndim == 2 and not x.is_floating_point()) else 1  # of a sequence or text
    largest = 0
    for layer in net.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter.ndim < 2 or isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                continue
            positions = math.prod(x.shape[2:]) if is_image and parameter.ndim > 2 else steps
            if name.startswith("weight_hh"):  # a recurrent layer computes one step at a time
                positions = 1
            largest = max(largest, batch_size * positions * parameter.numel())
    return 1 if largest < ONE_THREAD_BELOW else torch.get_num_threads()


def check_can_shard(settings: Settings, world_size: int) -> None:
    """Raise for settings that cannot be combined with sharding."""
    if world_size < 2:
        raise OptionError("fsdp shards a network over at least 2 processes, got 1; start more with torchrun")
    if settings.precision not in ("float32", "bfloat16"):
        raise OptionError(f"fsdp works with float32 and bfloat16, got precision {settings.precision}")
    if settings.ema is not None:
        raise OptionError("ema cannot be combined with fsdp: leave one of them out")
    if settings.optimiser == "muon":
        raise OptionError("muon needs complete matrices, which fsdp shards; use another optimiser, or strategy ddp")


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
