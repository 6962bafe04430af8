"""Carry out a job: data, network and head together, trained and tested."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from openradial import models
from openradial.files import write_text
from openradial.heads import CACHead, DOCHead, Head, RadialHead, SoftmaxHead
from openradial.metrics import auroc
from openradial.nn.objective import Objective
from openradial.training.devices import Devices
from openradial.training.job import Job
from openradial.training.loop import BatchSource, History, Record, fit
from openradial.training.preparation import Prepared, prepare

RESULT = "result.json"
START = 1e-3  # deviation of the weights of a radial layer on trained features


@dataclass(frozen=True)
class JobResult:
    """A trained network, how its training went, and how it does on data it has not seen."""

    net: nn.Module
    history: History
    test: Mapping[str, float | int]
    prepared: Prepared


def run_job(
    job: Job,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    devices: Devices | None = None,
    tensorboard: bool = False,
    report: Callable[[Record], None] | None = None,
) -> JobResult:
    """Train and test what a job describes; ``folder`` gets checkpoints, the log and ``result.json``."""
    devices = devices or Devices(job.training)
    prepared = prepare(job, rank=devices.rank, world=devices.world_size)
    torch.manual_seed(job.training.seed)
    net, head = make_net(job, prepared), make_head(job, len(prepared.split.known))
    began = time.monotonic()
    job = replace(job, model=network_name(job, prepared))
    facts = {"job": job.as_dict(), "classes": list(prepared.split.known), "preprocessing": dict(prepared.preprocessing)}
    history = fit(
        net,
        Objective(head.loss),
        prepared.train,
        prepared.validation,
        settings=job.training,
        devices=devices,
        folder=folder,
        resume=resume,
        tensorboard=tensorboard,
        metadata=json.loads(json.dumps(facts)),
        report=report,
    )
    test = {} if not history.finished else tested(net, head, prepared, devices)
    if folder is not None and history.finished and devices.is_main:
        seconds = round(time.monotonic() - began, 1)
        written = {"job": job.as_dict(), "test": test, "seconds": seconds, "epochs": history.records}
        write_text(Path(folder) / RESULT, json.dumps(written, indent=1) + "\n")
    return JobResult(net, history, test, prepared)


def make_net(job: Job, prepared: Prepared) -> nn.Module:
    """The network of a job, with the options that follow from its data."""
    name = network_name(job, prepared)
    options = dict(job.model_options)
    if ":" not in name:
        known = models.options(name)
        options = {key: value for key, value in _implied(prepared).items() if key in known} | options
    net = models.build(name, len(prepared.split.known), weights=job.weights, reset=job.reset, **options)
    if job.weights is not None and job.reset != "none" and job.head == "radial":
        start_near_zero(net)
    return net


def start_near_zero(net: nn.Module) -> None:
    """Draw the last affine layer so small that outputs start between the prototypes.

    Features of a trained network are large. With the usual start its outputs lie many prototype distances away, and
    all of the first epochs' steps go to one place, where the features are lost.
    """
    last = getattr(net, "classifier", None)
    if isinstance(last, nn.Linear):
        nn.init.normal_(last.weight, 0, START)
        nn.init.zeros_(last.bias)


def network_name(job: Job, prepared: Prepared) -> str:
    """The network that a job names, or the usual one for its data."""
    return job.model if job.model != "auto" else _usual_network(prepared)


def make_head(job: Job, num_classes: int) -> Head:
    """The head that a job names."""
    if job.head == "radial":
        return RadialHead(num_classes, job.beta, job.scale)
    kinds: dict[str, Callable[[int], Head]] = {"softmax": SoftmaxHead, "doc": DOCHead, "cac": CACHead}
    return kinds[job.head](num_classes)


def tested(net: nn.Module, head: Head, prepared: Prepared, devices: Devices) -> dict[str, float | int]:
    """Accuracy on known classes, and how well novel ones are told apart; the same in all processes."""
    if not head.is_fitted:
        head.fit(*outputs(net, prepared.train, devices))
    o, y = outputs(net, prepared.test, devices)
    places = o.topk(min(5, o.shape[1]), -1).indices == y[:, None]
    found: dict[str, float | int] = {
        "known_classes": len(prepared.split.known),
        "known_examples": len(y),
        "accuracy": float(places[:, 0].double().mean()),
        "top_5_accuracy": float(places.any(-1).double().mean()),
    }
    if prepared.novel is not None:
        novel, _ = outputs(net, prepared.novel, devices)
        found |= {"novel_classes": len(prepared.split.novel), "novel_examples": len(novel)}
        found["auroc"] = auroc(head.unknown_score(o).numpy(), head.unknown_score(novel).numpy())
    return found


@torch.no_grad()
def outputs(net: nn.Module, batches: BatchSource, devices: Devices) -> tuple[Tensor, Tensor]:
    """Outputs and labels of all examples of all processes, in float32 on the CPU."""
    net.eval()
    parts = []
    for x, y in batches.epoch(0):
        x, y = devices.fabric.to_device((x, y))
        with devices.fabric.autocast():
            parts.append((net(x).float().cpu(), y.cpu()))
    o, y = (torch.cat(side) for side in zip(*parts, strict=True))
    return devices.gather_rows(o), devices.gather_rows(y)


def _usual_network(prepared: Prepared) -> str:
    if prepared.kind == "images":
        side = prepared.shape[-1]
        return "mnist_radial" if side == 28 else "mlp" if side < 28 else "resnet18"
    return {"points": "spiral_radial", "table": "mlp", "sequences": "gru", "texts": "text_cnn"}[prepared.kind]


def _implied(prepared: Prepared) -> dict[str, Any]:
    if prepared.kind == "texts":
        return {"vocabulary": prepared.vocabulary}
    if prepared.kind == "sequences":
        return {"channels": prepared.shape[-1]}
    if prepared.kind == "images":
        channels, height, _ = prepared.shape
        stem = {"stem": "small"} if height < 64 else {}
        return {"channels": channels, "size": height, "inputs": channels * height * height} | stem
    return {"inputs": prepared.shape[-1]}
