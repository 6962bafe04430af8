"""One process or many: devices, precision and what the processes tell each other, on Lightning Fabric."""

import atexit
import gc
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from openradial.errors import OptionError, check_choice, require
from openradial.training.optimisers import make_optimiser
from openradial.training.settings import Precision, Settings
from openradial.training.sharding import check_can_shard, let_go, shard

PRECISIONS: dict[Precision, str] = {
    "float32": "32-true",
    "float64": "64-true",
    "bfloat16": "bf16-mixed",
    "float16": "16-mixed",
}
PARTING_SECONDS = 10.0


class Machine:
    """The processes and devices of a run. ``devices="auto"`` is one device, or what ``torchrun`` started.

    ``strategy``: ``auto`` and ``ddp`` keep the whole network in each process, ``fsdp`` a part of it.
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
        if devices == "auto":
            devices, nodes = _started(nodes)
        if settings.precision == "float16" and accelerator in ("cpu", "auto") and not torch.cuda.is_available():
            raise OptionError("float16 needs a GPU that scales gradients, got a CPU; use bfloat16 or float32")
        if self.shards:
            check_can_shard(settings, int(devices) * nodes)
        if self.shards or (strategy == "auto" and int(devices) * nodes > 1):
            strategy = "ddp"  # Fabric starts the processes; what each of them holds is decided in set_up
        try:
            self.fabric: Any = fabric.Fabric(
                accelerator=accelerator,
                devices=devices,
                num_nodes=nodes,
                strategy=strategy,
                precision=PRECISIONS[settings.precision],
            )
        except (RuntimeError, ValueError) as error:
            raise OptionError(
                f"training cannot start with accelerator={accelerator!r}, devices={devices!r}: {error}"
            ) from error
        if "LT_CLI_USED" not in os.environ:  # fabric run has launched already
            self.fabric.launch()
        self._sharded: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        if _is_connected():
            _part_at_exit(self._sharded)

    @property
    def rank(self) -> int:
        return int(self.fabric.global_rank)

    @property
    def world(self) -> int:
        return int(self.fabric.world_size)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def set_up(self, net: nn.Module, settings: Settings) -> tuple[nn.Module, Optimizer]:
        """The network as it is called while training, and its optimiser."""
        if self.shards:
            model = shard(net, settings, self.fabric.device, self.world)
            self._sharded.add(model)
            return model, make_optimiser(model.parameters(), settings)
        model = self.fabric.setup_module(net)
        return model, self.fabric.setup_optimizers(make_optimiser(model.parameters(), settings))

    def clip(self, model: nn.Module, optimiser: Optimizer, norm: float) -> None:
        """Scale gradients down to a norm, taken over all processes."""
        if self.shards:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        else:
            self.fabric.clip_gradients(model, optimiser, max_norm=norm, error_if_nonfinite=False)

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of numbers over all processes."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        return [float(value) for value in self.fabric.all_reduce(tensor, reduce_op="sum").tolist()]

    def joined(self, values: Tensor) -> Tensor:
        """The rows of all processes one after the other, on the CPU; processes may have different numbers of rows."""
        if self.world == 1:
            return values
        counts = [int(self.total([float(len(values)) if rank == self.rank else 0.0])[0]) for rank in range(self.world)]
        padded = torch.nn.functional.pad(values, (0, 0) * (values.ndim - 1) + (0, max(counts) - len(values)))
        parts = self._gathered(padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def random_states(self) -> dict[str, Tensor]:
        """The states of all random generators of all processes, ``(processes, bytes)`` each."""
        states = {"cpu": torch.get_rng_state()}
        if self.fabric.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.fabric.device)
        return {name: self._gathered(state) for name, state in states.items()}

    def restore_random_states(self, states: dict[str, Tensor]) -> None:
        torch.set_rng_state(states["cpu"][self.rank].clone())  # a view that begins in the middle crashes torch
        if "cuda" in states and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"][self.rank].clone(), self.fabric.device)

    def _gathered(self, state: Tensor) -> Tensor:
        if self.world == 1:
            return state.unsqueeze(0)
        state = state.to(self.fabric.device)
        gathered = [torch.empty_like(state) for _ in range(self.world)]
        torch.distributed.all_gather(gathered, state)
        return torch.stack(gathered).cpu()


def _is_connected() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _part_at_exit(sharded: weakref.WeakSet[nn.Module]) -> None:
    """Have this process, when it ends, part from the others and end gloo's threads.

    One of these may still be about to let go of a tensor; where Python ends meanwhile, the process is aborted
    (pytorch/pytorch#190489). They end when nothing refers to their group any more. Fabric parts from NCCL's processes
    alone. A process that failed may have begun what the others will never join, so it must not wait long: a thread of
    its own waits, and is started now, since a Python that ends starts none.
    """
    ending = threading.Event()

    def part() -> None:
        ending.wait()
        if _is_connected():
            torch.distributed.destroy_process_group()
        let_go(sharded)
        gc.collect()

    def end() -> None:
        ending.set()
        parting.join(PARTING_SECONDS)

    parting = threading.Thread(target=part, name="parting", daemon=True)
    parting.start()
    atexit.register(end)


def _started(nodes: int) -> tuple[int, int]:
    """Devices per node and nodes as a launcher such as torchrun set them; else one device."""
    if "LOCAL_WORLD_SIZE" not in os.environ:
        return 1, nodes
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    return local, int(os.environ["WORLD_SIZE"]) // local
