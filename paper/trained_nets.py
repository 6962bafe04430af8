"""Networks trained by the library's loop, once for all experiments that need them, with the loss of every step."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from openradial.training import BatchSource, Objective, Settings, fit
from paper.plan import Plan

COLUMNS = ("loss", "top_1", "top_5")
LossFunction = Callable[[Tensor, Tensor], Tensor]


class Trained(NamedTuple):
    """A network in evaluation mode, and loss, top-1 and top-5 accuracy of every training step, ``(steps,)`` each."""

    net: nn.Module
    steps: dict[str, Tensor]


def trained(
    plan: Plan,
    name: str,
    build: Callable[[], nn.Module],
    loss: LossFunction,
    batches: Callable[[], BatchSource],
    settings: Settings,
) -> Trained:
    """Return the network of a name, from the plan's folder or trained now."""
    torch.manual_seed(settings.seed)
    net = build()
    tensors = plan.cached_tensors(name, partial(_train, plan, name, net, loss, batches, settings))
    net.load_state_dict({key.removeprefix("net."): t for key, t in tensors.items() if key.startswith("net.")})
    if settings.channels_last:  # attacks run the network hundreds of times
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Trained(net.eval(), {column: tensors[f"step.{column}"] for column in COLUMNS})


def _train(
    plan: Plan, name: str, net: nn.Module, loss: LossFunction, batches: Callable[[], BatchSource], settings: Settings
) -> dict[str, Tensor]:
    plan.note(f"training {name}")
    objective = RecordingObjective(loss)
    history = fit(net, objective, batches(), settings=settings)
    if not history.finished:
        raise KeyboardInterrupt(f"stopped by {history.stopped_by}")
    columns = zip(COLUMNS, torch.tensor(objective.steps).T, strict=True)
    return {f"net.{key}": t for key, t in net.state_dict().items()} | {f"step.{key}": t for key, t in columns}


@torch.no_grad()
def outputs(net: nn.Module, x: Tensor, batch_size: int = 500) -> Tensor:
    """Return the outputs of many inputs, ``(n, ...) -> (n, k)``."""
    return torch.cat([net(x[start : start + batch_size]) for start in range(0, len(x), batch_size)])


class RecordingObjective:
    """An objective that records loss, top-1 and top-5 accuracy of every training step in ``steps``."""

    def __init__(self, loss: LossFunction) -> None:
        self.objective, self.steps = Objective(loss), list[list[float]]()
        self.metrics = self.objective.metrics

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        loss, o = self.objective(model, x, y)
        if model.training:
            top = o.detach().topk(min(5, o.shape[1])).indices == y[:, None]
            self.steps.append(
                torch.stack([loss.detach(), top[:, 0].float().mean(), top.any(1).float().mean()]).tolist()
            )
        return loss, o
