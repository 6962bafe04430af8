"""Networks trained by the project's loop, once for all experiments that need them, with the loss of every step."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from openradial.data.batches import Batches, FolderBatches
from openradial.files import write_text
from openradial.nn.objective import Loss, Metric, correct
from openradial.training import Settings, fit
from openradial.training.checkpoint import LAST, load, prefixed, under
from paper.plan import Plan

STEPS = "steps.txt"
COLUMNS = ("loss", "top_1", "top_5")
Source = Batches | FolderBatches


class Trained(NamedTuple):
    """A network, ready to predict, and what each step of its training measured, ``(steps,)`` by name."""

    net: nn.Module
    steps: dict[str, Tensor]


def trained(
    plan: Plan, name: str, build: Callable[[], nn.Module], loss: Loss, batches: Callable[[], Source], settings: Settings
) -> Trained:
    """The network of a name, from the plan's folder or trained now; a killed training goes on where it was."""
    torch.manual_seed(settings.seed)
    net = build()
    tensors = plan.kept_tensors(name, partial(_train, plan, name, net, loss, batches, settings))
    net.load_state_dict(under("net", tensors))
    if settings.channels_last:  # attacks need the network hundreds of times
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Trained(net.eval(), under("step", tensors))


def _train(
    plan: Plan, name: str, net: nn.Module, loss: Loss, batches: Callable[[], Source], settings: Settings
) -> dict[str, Tensor]:
    plan.note(f"training {name}")
    folder = plan.place(name)
    recorded = Recorded(loss, folder)
    history = fit(net, recorded, batches(), settings=settings, folder=folder, resume=True)
    if not history.finished:
        raise KeyboardInterrupt(f"stopped by {history.stopped_by}")
    return prefixed("net", net.state_dict()) | prefixed("step", recorded.steps())


@torch.no_grad()
def outputs(net: nn.Module, x: Tensor, batch_size: int = 500) -> Tensor:
    """Outputs of many inputs, ``(n, ...) -> (n, k)``."""
    return torch.cat([net(x[start : start + batch_size]) for start in range(0, len(x), batch_size)])


class Recorded:
    """An objective that writes loss, top-1 and top-5 accuracy of every training step to a file.

    A run that goes on from a checkpoint forgets the steps after it, because they are taken again.
    """

    metrics: Mapping[str, Metric] = {"accuracy": correct}

    def __init__(self, loss: Loss, folder: Path) -> None:
        self.loss, self.path = loss, folder / STEPS
        kept = load(folder / LAST)[1]["position"]["step"] if (folder / LAST).exists() else 0
        lines = self.path.read_text().splitlines()[:kept] if self.path.exists() else []
        write_text(self.path, "".join(f"{line}\n" for line in lines))

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        o = model(x)
        loss = self.loss(o, y)
        if model.training:
            self._note(loss.detach(), o.detach(), y)
        return loss, o

    def steps(self) -> dict[str, Tensor]:
        """What was measured, ``(steps,)`` by name."""
        rows = [[float(cell) for cell in line.split()] for line in self.path.read_text().splitlines()]
        return dict(zip(COLUMNS, torch.tensor(rows).T.contiguous(), strict=True))

    def _note(self, loss: Tensor, o: Tensor, y: Tensor) -> None:
        top = o.topk(min(5, o.shape[1])).indices == y[:, None]
        shares = torch.stack([top[:, 0].float().mean(), top.any(1).float().mean()]).tolist()
        with self.path.open("a") as out:
            out.write(f"{loss.item():.6g} {shares[0]:.6g} {shares[1]:.6g}\n")
