"""Measure how confident networks are far from their training data, without and with the far axis; and explain it.

python -m benchmarks.far_away (an hour on one core for 25,000 epochs on the spiral; finished parts are kept in --folder)

Spiral: ten networks as in figure 3 of the paper, and ten with ten times its learning rate; rays in 1,440 directions.
MNIST: a network with softmax and one with the radial head per seed; random rays, and rays through test images, from the
mean of the training data. Writes benchmarks/results/far_away.{json,md} and docs/images/far-away.png.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from tempfile import gettempdir
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from benchmarks.far_away_figure import draw
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import OpenClassifier, fit
from openradial.conformal import Rejector
from openradial.data import Examples, load
from openradial.files import read_tensors, write_tensors, write_text
from openradial.functional import radial_distances
from openradial.heads import RadialHead, SoftmaxHead
from openradial.models import MLP
from openradial.scorers import NormScorer
from openradial.training import Objective
from paper.ensemble_training import train_ensemble
from paper.spiral_nets import HIDDEN, LOSSES, Nets, accuracy, grid, ring, rows

COMMAND = "python -m benchmarks.far_away"
FIGURE = RESULTS.parents[1] / "docs" / "images" / "far-away.png"
BETA, CONFIDENT = 5.0, 0.9  # as in claim 2
SEEDS, DIRECTIONS = 10, 1440
RUNS = {5e-4: (25_000, 2_500), 5e-3: (1_300, 100)}  # learning rate: epochs, and epochs between two snapshots
RADII = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # in radii of the training data
INFINITY = 1e6  # beyond it no unit of a network on the spiral changes between on and off
CELLS, EXTENT = 200, (-6.0, 6.0, -6.0, 6.0)
IMAGES, CALIBRATION, RAYS = 20_000, 2_000, 300  # of MNIST: to fit, to calibrate the score of the head alone, rays
MNIST: dict[str, Any] = {"model": "mlp", "model_options": {"hidden": [128, 128]}, "epochs": 4, "baseline": False}


def spiral_nets(rate: float) -> Nets:
    """Return the settings of figure 3 with a learning rate."""
    return Nets("radial", RUNS[rate][0], SEEDS, HIDDEN["radial"], learning_rate=rate)


def train(folder: Path, rate: float) -> None:
    """Train ten networks on the spiral; write the weights of all of them every so many epochs."""
    nets, (epochs, every) = spiral_nets(rate), RUNS[rate]

    def keep(epoch: int, weights: Tensor) -> None:
        if epoch % every == 0:
            write_tensors(snapshot(folder, rate, epoch), {"rows": weights}, {})

    train_ensemble(
        nets.build,
        Objective(LOSSES["radial"]),
        nets.data(),
        range(SEEDS),
        epochs=epochs,
        learning_rate=rate,
        on_epoch=keep,
    )


def snapshot(folder: Path, rate: float, epoch: int) -> Path:
    """Return the file of the weights after some epochs."""
    return folder / f"radial-{rate:g}-{epoch}.safetensors"


def networks(folder: Path, rate: float, epoch: int) -> list[MLP]:
    """Return the ten networks of a snapshot, in float64, so that slopes along rays are exact."""
    made = []
    for row in read_tensors(snapshot(folder, rate, epoch))[0]["rows"]:
        net = spiral_nets(rate).build().double()
        vector_to_parameters(row.double(), net.parameters())
        made.append(net.eval())
    return made


@torch.no_grad()
def behaviour(net: MLP, far_axis: NormScorer, test: Examples, radius: float) -> dict[str, Any]:
    """Return what a network does along rays: its slope, whether a hidden layer is off, and its probabilities."""
    u = ring(1.0, DIRECTIONS).double()
    slope = torch.linalg.vector_norm(net(2 * INFINITY * u) - net(INFINITY * u), dim=1) / INFINITY
    z, is_off = INFINITY * u, torch.zeros(len(u), dtype=torch.bool)
    for layer in net.hidden:
        z = layer(z)
        if isinstance(layer, torch.nn.ReLU):
            is_off |= (z == 0).all(1)
    measured: dict[str, Any] = {"accuracy": accuracy(net, Examples(test.inputs.double(), test.labels, test.classes))}
    measured["layer_off"], measured["constant"] = is_off.tolist(), (slope == 0).tolist()
    measured["slope"] = [round(value, 6) for value in slope.tolist()]
    for name, axis in (("radial", None), ("radial + axis", far_axis)):
        probs = torch.stack([largest_prob(net, r * radius * u, axis) for r in RADII])
        measured[name] = {"confident": (probs > CONFIDENT).double().mean(1).tolist(), "largest": probs.amax(1).tolist()}
        if axis is None:
            measured["confident_far"] = (probs[-1] > CONFIDENT).tolist()
    outside = far_axis.unknown_score(test.inputs)
    return measured | {"test_beyond": int((outside > 0).sum())}


def largest_prob(net: MLP, x: Tensor, far_axis: NormScorer | None) -> Tensor:
    """Return the probability of the nearest class, ``(b, 2) -> (b,)``."""
    far = torch.zeros(len(x), dtype=x.dtype) if far_axis is None else far_axis.unknown_score(x)
    return RadialHead(3, BETA).compute(net(x), far).log_probs.amax(1).exp()


def spiral(folder: Path) -> dict[str, Any]:
    """Measure all snapshots in the folder."""
    nets = spiral_nets(5e-4)
    train_data, test = nets.data(), nets.data("test")
    radius, far_axis = float(train_data.inputs.norm(dim=1).max()), NormScorer().fit(train_data.inputs)
    measured: list[dict[str, Any]] = []
    for rate, (epochs, every) in RUNS.items():
        for epoch in range(every, epochs + 1, every):
            if snapshot(folder, rate, epoch).exists():
                each = [behaviour(net, far_axis, test, radius) for net in networks(folder, rate, epoch)]
                measured.append({"rate": rate, "epoch": epoch, "networks": each})
    return {"radius": radius, "snapshots": measured, "map": prediction_maps(folder, measured, far_axis)}


@torch.no_grad()
def prediction_maps(folder: Path, measured: list[dict[str, Any]], far_axis: NormScorer) -> dict[str, Any]:
    """Return maps of the network that is confident in most directions at 100 radii."""
    nets = [(i, k, net) for i, each in enumerate(measured) for k, net in enumerate(each["networks"])]
    i, k, _ = max(nets, key=lambda each: each[2]["radial"]["confident"][-1])
    net, x = networks(folder, measured[i]["rate"], measured[i]["epoch"])[k], grid(CELLS, EXTENT).double()
    winners = radial_distances(net(x)).argmin(-1)
    maps = {name: rows(largest_prob(net, x, axis), CELLS) for name, axis in (("radial", None), ("axis", far_axis))}
    where = {"rate": measured[i]["rate"], "epoch": measured[i]["epoch"], "seed": k, "extent": EXTENT}
    return where | {"winners": rows(winners, CELLS), **maps}


def mnist(seed: int) -> dict[str, Any]:
    """Fit both heads to part of MNIST, and follow rays from the mean of the training data."""
    known, test = load("mnist"), load("mnist", "test")
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    part, held_out = known.select(order[:IMAGES]), known.select(order[IMAGES : IMAGES + CALIBRATION])
    models = {head: fit(part, head=head, seed=seed, show_progress=False, **MNIST) for head in ("softmax", "radial")}
    radial = models["radial"]
    x, y = radial._network_inputs(test.inputs), test.labels
    train_inputs = radial._network_inputs(part.inputs)
    mean = train_inputs.mean(0)
    radius = float((train_inputs - mean).flatten(1).norm(dim=1).max())
    generator = torch.Generator().manual_seed(seed)
    directions = {
        "random": torch.randn(RAYS, *mean.shape, generator=generator),
        "through test images": x[torch.randperm(len(x), generator=generator)[:RAYS]] - mean,
    }
    directions = {name: each / each.flatten(1).norm(dim=1).view(-1, 1, 1, 1) for name, each in directions.items()}
    without = radial.replace(far_axis=None)
    measured: dict[str, Any] = {"radius": radius, "models": {}}
    for name, model in (("softmax", models["softmax"]), ("radial", without), ("radial + axis", radial)):
        of_head = model.replace(scorers=None, combination=None, rejector=Rejector(0.05))
        of_head.calibrate([model._network_inputs(held_out.inputs)])
        measured["models"][name] = known_data(model, of_head, x, y) | {
            rays: [along(model, of_head, mean + r * radius * u) for r in RADII] for rays, u in directions.items()
        }
    assert radial.far_axis is not None
    measured["test_beyond"] = int((radial.far_axis.unknown_score(x.flatten(1)) > 0).sum())
    measured["beta"] = radial.head.layer.beta  # type: ignore[union-attr]
    return measured


def shrinkages() -> list[dict[str, float]]:
    """Return norms of 10,000 training images of MNIST, and of noise, in units of the largest, for some shrinkages."""
    known = load("mnist").inputs[:10_000].flatten(1).double() / 255
    noise = torch.randn(1000, known.shape[1], generator=torch.Generator().manual_seed(0)).double()
    noise *= (known - known.mean(0)).norm(dim=1).max() / noise.norm(dim=1, keepdim=True)
    made = []
    for share in (0.001, 0.01, 0.1, 0.3, 1.0):
        scorer = NormScorer(share).fit(known)
        norms = [float(scorer._norms(x).median() / scorer.largest) for x in (known, known.mean(0) + noise)]
        made.append({"shrinkage": share, "median_image": norms[0], "median_noise": norms[1]})
    return made


def known_data(model: OpenClassifier, of_head: OpenClassifier, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return the accuracy and the false-reject rates on test data."""
    decided, alone = model.decide(x), of_head.decide(x)
    values = {"accuracy": decided.nearest == y, "rejected": decided.labels < 0, "rejected_head": alone.labels < 0}
    return {name: float(value.double().mean()) for name, value in values.items()}


def along(model: OpenClassifier, of_head: OpenClassifier, x: Tensor) -> dict[str, float]:
    """Return the largest probability and what is accepted at one radius."""
    decided, alone = model.decide(x), of_head.decide(x)
    probs = decided.log_probs.amax(1).exp().double()
    assert isinstance(model.head, RadialHead | SoftmaxHead)
    return {
        "median": float(probs.median()),
        "largest": float(probs.max()),
        "confident": float((probs > CONFIDENT).double().mean()),
        "accepted": float((decided.labels >= 0).double().mean()),
        "accepted_head": float((alone.labels >= 0).double().mean()),
    }


def kept(path: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a part from its file, or compute and write it."""
    if not path.exists():
        write_text(path, json.dumps(compute()))
    part: dict[str, Any] = json.loads(path.read_text())
    return part


def markdown(results: dict[str, Any]) -> str:
    """Return the results as tables."""
    lines = ["# Far from the training data", "", f"Share of points with p > {CONFIDENT:g}, in percent.", ""]
    lines += [f"## Spiral: {SEEDS} networks, {DIRECTIONS:,} directions, beta = {BETA:g}", ""]
    rows_ = []
    for each in results["spiral"]["snapshots"]:
        nets = each["networks"]
        row = [f"{each['rate']:g}", f"{each['epoch']:,}", f"{100 * fmean(net['accuracy'] for net in nets):.2f}"]
        for name, radius in (("radial", 2.0), ("radial", 10.0), ("radial", 100.0), ("radial + axis", 2.0)):
            shares = [100 * net[name]["confident"][RADII.index(radius)] for net in nets]
            row.append(f"{fmean(shares):.2f} ({max(shares):.1f})")
        largest = max(net["radial + axis"]["largest"][RADII.index(2.0)] for net in nets)
        rows_.append([*row, f"{largest:.2g}", f"{100 * fmean(fmean(net['constant']) for net in nets):.1f}"])
    head = ["learning rate", "epochs", "accuracy", "2 radii", "10 radii", "100 radii", "2 radii, axis"]
    lines += table([*head, "largest p at 2 radii, axis", "directions with constant outputs"], rows_)
    lines += ["", "Mean over networks, in brackets the largest. The radius is the largest norm of a training point."]
    lines += ["", explanation(results["spiral"])["text"], ""]
    runs = results["mnist"]
    lines += [f"## MNIST: {len(runs)} seeds, {RAYS} rays of each kind", ""]
    names = ["accuracy", "rejected", "rejected_head"]
    known = [[m, *(f"{100 * fmean(run['models'][m][n] for run in runs):.2f}" for n in names)] for m in MODELS]
    lines += table(["model", "accuracy", "false rejects", "false rejects, score of the head"], known)
    beyond = sum(run["test_beyond"] for run in runs)
    lines += ["", f"Test images beyond the training data: {beyond} of {10_000 * len(runs):,}.", ""]
    body = []
    for rays in ("random", "through test images"):
        for m in MODELS:
            for r in (1.0, 2.0, 5.0, 10.0, 100.0):
                at = [run["models"][m][rays][RADII.index(r)] for run in runs]
                shares = [f"{100 * fmean(a[n] for a in at):.1f}" for n in ("confident", "accepted", "accepted_head")]
                body.append([rays, m, f"{r:g}", f"{max(a['largest'] for a in at):.2g}", *shares])
    lines += table(["rays", "model", "radius", "largest p", "p > 0.9", "accepted", "accepted, score of the head"], body)
    lines += ["", "## Norms of MNIST by shrinkage, in units of the largest norm of a training image", ""]
    norms = [
        [f"{s['shrinkage']:g}", f"{s['median_image']:.2f}", f"{s['median_noise']:.2f}"] for s in results["shrinkage"]
    ]
    lines += table(["shrinkage", "median training image", "median noise at the radius of the data"], norms)
    where = results["environment"]
    return "\n".join([*lines, "", f"`{COMMAND}`, {where['cpu']}, {where['date']}", ""])


MODELS = ("softmax", "radial", "radial + axis")


def explanation(measured: dict[str, Any]) -> dict[str, Any]:
    """Return how many of the directions that are confident at 100 radii have constant outputs and a layer off."""
    counts = dict.fromkeys(("directions", "constant", "constant_off", "confident", "confident_constant", "slow"), 0)
    bound = 2 * 0.10536 / BETA / (RADII[-1] * measured["radius"])  # slopes above cross the ball of p > 0.9 before 100
    for net in (net for each in measured["snapshots"] for net in each["networks"]):
        columns = (net[name] for name in ("constant", "layer_off", "confident_far", "slope"))
        for is_constant, is_off, is_confident, slope in zip(*columns, strict=True):
            counts["directions"] += 1
            counts["constant"] += is_constant
            counts["constant_off"] += is_constant and is_off
            counts["confident"] += is_confident
            counts["confident_constant"] += is_confident and is_constant
            counts["slow"] += is_confident and not is_constant and slope < bound
    text = (
        f"Of {counts['directions']:,} directions of all networks, outputs become constant in {counts['constant']:,}; "
        f"in {counts['constant_off']:,} of these a hidden layer is off. {counts['confident']:,} directions are "
        f"confident at 100 radii: {counts['confident_constant']:,} have constant outputs, {counts['slow']:,} others a "
        f"slope below {bound:.1e}."
    )
    return counts | {"text": text}


def main() -> None:
    """Train what is missing, measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "openradial-far-away")
    parser.add_argument("--seeds", type=int, default=3, help="of MNIST")
    parser.add_argument("--no-training", action="store_true", help="measure the existing networks on the spiral")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = [kept(arguments.folder / f"mnist-{seed}.json", lambda s=seed: mnist(s)) for seed in range(arguments.seeds)]  # type: ignore[misc]
    for rate, (epochs, _) in RUNS.items():
        if not arguments.no_training and not snapshot(arguments.folder, rate, epochs).exists():
            train(arguments.folder, rate)
    measured = spiral(arguments.folder)
    results = {"environment": machine(COMMAND), "spiral": measured, "mnist": runs}
    results |= {"explanation": explanation(measured), "shrinkage": shrinkages()}
    draw(results, RADII, FIGURE)
    write_text(RESULTS / "far_away.md", markdown(results))
    for each in measured["snapshots"]:  # a number per network is enough in the file
        for net in each["networks"]:
            net |= {name: fmean(net[name]) for name in ("layer_off", "constant", "confident_far")}
            net["slope"] = sorted(net["slope"])[:: DIRECTIONS // 8]
    measured.pop("map")
    write_text(RESULTS / "far_away.json", json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
