"""Networks on photographs with known and novel classes: what can be had in place of ImageNet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from openradial.conformal import fit_beta
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.metrics import auroc, top_k_accuracy
from openradial.training import Devices
from openradial.training.execution import make_head, make_net, outputs
from openradial.training.job import Job
from openradial.training.preparation import Prepared, prepare
from paper.plan import Numbers, Plan, Size
from paper.trained_nets import trained
from paper.winning import NOVEL, RIGHT, WRONG, histogram, median, winning_probs


@dataclass(frozen=True)
class ImageSet:
    """A set of photographs, and how a network is trained on its known classes."""

    title: str
    network: str
    scale: float  # the paper's a, in figure 7
    job: Mapping[str, Any]


DIGITS = ImageSet(
    "scanned digits, 6 of 10 classes known",
    "fully connected network",
    1.0,
    {
        "data": "digits",
        "known": "random:6",
        "model": "mlp",
        "model_options": {"hidden": (32,)},
        "training": {"epochs": 3, "batch_size": 64, "learning_rate": 1e-3},
    },
)
CIFAR_SMALL = ImageSet(
    "CIFAR-10, 6 of 10 classes known",
    "the paper's small network for MNIST",
    1.0,
    {
        "data": "cifar10",
        "known": "random:6",
        "model": "mnist_radial",
        "training": {"epochs": 4, "batch_size": 128, "learning_rate": 1e-3},
    },
)
CIFAR = ImageSet(
    "CIFAR-10, 6 of 10 classes known",
    "ResNet-18 of a quarter of the width, from scratch",
    1.0,
    {
        "data": "cifar10",
        "known": "random:6",
        "model": "resnet18",
        "model_options": {"stem": "small", "width": 16},
        "augment": True,
        "training": {"epochs": 6, "batch_size": 128, "learning_rate": 1e-3, "schedule": "cosine"},
    },
)
TINY_IMAGENET = ImageSet(
    "Tiny-ImageNet at 64 pixels, all classes known but artifacts",
    "EfficientNet-Lite0, pre-trained on ImageNet, fully connected layer new",
    5.0,
    {
        "known": "not:n00021939",
        "model": "efficientnet_lite0",
        "weights": "imagenet",
        "size": 64,
        "augment": True,
        "training": {"epochs": 4, "batch_size": 64, "learning_rate": 1e-4, "channels_last": True},
    },
)
SETS: dict[Size, ImageSet] = {"tiny": DIGITS, "quick": CIFAR_SMALL, "full": CIFAR}


def image_set(plan: Plan) -> ImageSet:
    """Tiny-ImageNet at full size where its folder is given, else what the size has."""
    return TINY_IMAGENET if plan.size == "full" and "tiny_imagenet" in plan.options else SETS[plan.size]


def image_run(plan: Plan, head: str, seed: int = 0, scale: float | None = None) -> Numbers:
    """What one network does on known and novel images, and every step of its training."""
    chosen = image_set(plan)
    a = chosen.scale if scale is None else scale
    job = _job(plan, chosen, head, a, seed)
    name = f"images-{job.data.partition(':')[0]}-{head}-a{a:g}-{job.training.epochs}-{seed}"
    found: Numbers = plan.kept(f"{name}-numbers", lambda: _run(plan, name, job))
    return found


def _job(plan: Plan, chosen: ImageSet, head: str, scale: float, seed: int) -> Job:
    values = {"data": f"tiny-imagenet:{plan.options.get('tiny_imagenet')}"} | dict(chosen.job)
    return Job.from_mapping(
        values | {"head": head, "scale": scale, "training": {**chosen.job["training"], "seed": seed}}
    )


def _run(plan: Plan, name: str, job: Job) -> Numbers:
    prepared = prepare(job)
    head = make_head(job, len(prepared.split.known))
    net, steps = trained(plan, name, lambda: make_net(job, prepared), head.loss, lambda: prepared.train, job.training)
    facts = {"known_classes": len(prepared.split.known), "novel_classes": len(prepared.split.novel)}
    curves = {key: [round(value, 5) for value in values.tolist()] for key, values in steps.items()}
    found = measured(net, head, prepared, Devices(job.training))
    return facts | {"scale": job.scale, "epochs": job.training.epochs} | found | {"steps": curves}


def measured(net: nn.Module, head: Head, prepared: Prepared, devices: Devices) -> Numbers:
    """Accuracies, and winning probabilities that are calibrated on held-out known images alone."""
    assert prepared.validation is not None, "every job holds some known images out"
    assert prepared.novel is not None, "every job has novel classes"
    o, y = outputs(net, prepared.test, devices)
    novel, _ = outputs(net, prepared.novel, devices)
    calibrated, facts = calibrate(head, *outputs(net, prepared.validation, devices))
    right = head.predict(o) == y
    probs, novel_probs = winning_probs(calibrated, o), winning_probs(calibrated, novel)
    parts = {RIGHT: probs[right], WRONG: probs[~right], NOVEL: novel_probs}
    return facts | {
        "top_1": float(right.double().mean()),
        "top_5": top_k_accuracy(head(o).numpy(), y.numpy(), k=min(5, o.shape[1])),
        "auroc": auroc(head.unknown_score(o).numpy(), head.unknown_score(novel).numpy()),
        "median_known": median(probs),
        "median_novel": median(novel_probs),
        "histograms": {name: histogram(values) for name, values in parts.items()},
    }


def calibrate(head: Head, o: Tensor, y: Tensor) -> tuple[Head, dict[str, float]]:
    """A head whose winning probability says how often it is right on these data: its beta, or its temperature."""
    if isinstance(head, RadialHead):
        beta = fit_beta(head.layer.distances(o), y).beta
        return RadialHead(head.num_classes, beta, prototypes=head.layer.prototypes), {"beta": beta}
    tempered = SoftmaxHead(head.num_classes, temperature="fit").fit(o, y)
    return tempered, {"temperature": float(tempered.tensors()["fitted_temperature"])}
