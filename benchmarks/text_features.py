"""Try other features and scores for texts on known classes that are left out: what decision 18 was taken from.

python -m benchmarks.text_features --banking FOLDER (a few minutes on one core)

FOLDER has train.csv of BANKING77. Only the training sentences of the known intents of the five splits of
benchmarks/pretrained.py are used: of them two fifths of the intents are left out as novel ones, and a quarter of the
other sentences as known ones. The head is exact kernel ridge regression. Writes benchmarks/results/text_features.md.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from benchmarks.machine import machine
from benchmarks.pretrained import encode
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.files import write_text
from openradial.metrics import auroc
from openradial.scorers.base import squared_distances

COMMAND = "python -m benchmarks.text_features --banking FOLDER"
SPLITS, WIDTH, ALPHA, SENTENCE = 5, 0.5, 0.01, 384
LEFT_OUT, HELD_OUT, RATE = 0.4, 0.25, 0.05
TRIALS = (19, 38)  # known intents
Features = Callable[[Tensor, Tensor], Tensor]  # rows that are fitted on, and their labels -> all features
SCORES = ("radial + neighbour", "projection + neighbour", "radial + neighbour + leverage")


def standardised(known: Tensor, novel: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithms of scores, with mean 0 and standard deviation 1 for known examples."""
    logs = known.clamp_min(1e-9).log(), novel.clamp_min(1e-9).log()
    return (logs[0] - logs[0].mean()) / logs[0].std(), (logs[1] - logs[0].mean()) / logs[0].std()


def scores(z: Tensor, y: Tensor, queries: tuple[Tensor, Tensor]) -> tuple[dict[str, tuple[Tensor, Tensor]], Tensor]:
    """Return unknown scores of both queries, and the predictions for the first."""
    distances = squared_distances(z, z)
    scale = 2 * WIDTH**2 * distances.flatten()[1::1009].median()
    kernel = (-distances / scale).exp()
    mean = kernel.mean(0)
    centred = kernel - mean - mean[:, None] + mean.mean()
    factor = torch.linalg.cholesky(centred + ALPHA * torch.eye(len(z)))
    targets = one_hot(y).to(z)
    solution = torch.cholesky_solve(targets - targets.mean(0), factor)
    columns: dict[str, list[Tensor]] = defaultdict(list)
    predicted = []
    for x in queries:
        distances = squared_distances(x, z)
        kernel = (-distances / scale).exp()
        centred = kernel - kernel.mean(1, keepdim=True) - mean + mean.mean()
        outputs = centred @ solution + targets.mean(0)
        best = outputs.max(1)
        predicted.append(best.indices)
        columns["radial"].append((outputs - one_hot(best.indices, outputs.shape[1])).norm(dim=1))
        columns["projection"].append((-best.values).exp())
        columns["neighbour"].append(distances.amin(1).sqrt())
        explained = torch.linalg.solve_triangular(factor, centred.T, upper=False).square().sum(0)
        columns["leverage"].append(1 - 2 * kernel.mean(1) + mean.mean() - explained)
    each = {name: standardised(*pair) for name, pair in columns.items()}
    merged = {}
    for name in SCORES:
        known, novel = (sum(each[part][at] for part in name.split(" + ")) for at in (0, 1))
        merged[name] = torch.as_tensor(known), torch.as_tensor(novel)
    return merged, predicted[0]


def whitened(z: Tensor, rows: Tensor, y: Tensor, share: float) -> Tensor:
    """Return features whose covariance within the classes, shrunk by a share, is the identity."""
    fitted = z[rows]
    means = torch.zeros(int(y.max()) + 1, z.shape[1]).index_add_(0, y, fitted) / y.bincount().unsqueeze(1)
    within = (fitted - means[y]).T @ (fitted - means[y]) / len(y)
    within = (1 - share) * within + share * within.diagonal().mean() * torch.eye(len(within))
    values, vectors = torch.linalg.eigh(within)
    return normalize((z - fitted.mean(0)) @ (vectors * values.rsqrt()) @ vectors.T)


def without_components(z: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return features without their mean and their largest principal components."""
    centred = z - z[rows].mean(0)
    vectors = torch.linalg.svd(centred[rows], full_matrices=False)[2][:count]
    return normalize(centred - centred @ vectors.T @ vectors)


@torch.no_grad()
def word_vectors(texts: list[str]) -> Tensor:
    """Return the mean of the word vectors that enter the first layer of minilm, ``(n, d)``."""
    encoder, parts = encoders.load("minilm"), []
    for at in range(0, len(texts), 256):
        tokens = encoder.inputs.transform(encoder.inputs.ready(texts[at : at + 256]))
        parts.append((encoder.net.word(tokens) * (tokens != 0).unsqueeze(2)).sum(1))  # type: ignore[operator]
    return torch.cat(parts)


def variants(texts: list[str]) -> dict[str, Features]:
    """Return features by name, made from those of minilm and of wordllama."""
    z, words, static = normalize(encode("minilm", texts)[:, :SENTENCE]), word_vectors(texts), encode("wordllama", texts)

    def joined(other: Tensor, weight: float) -> Features:
        made = normalize(torch.cat([z, weight * normalize(other)], 1))
        return lambda rows, y: made

    return {
        "minilm": lambda rows, y: z,
        **{f"minilm + {weight:g} of its word vectors": joined(words, weight) for weight in (0.5, 0.7, 1.0)},
        "minilm + 0.5 wordllama": joined(static, 0.5),
        "minilm, centred": lambda rows, y: without_components(z, rows, 0),
        "minilm without 3 principal components": lambda rows, y: without_components(z, rows, 3),
        "minilm, whitened within the classes": lambda rows, y: whitened(z, rows, y, 0.5),
    }


def main() -> None:
    """Measure all variants and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking", type=Path, required=True)
    with (parser.parse_args().banking / "train.csv").open(encoding="utf-8", newline="") as file:
        sentences = list(csv.DictReader(file))
    texts, names = [row["text"] for row in sentences], sorted({row["category"] for row in sentences})
    labels = torch.tensor([names.index(row["category"]) for row in sentences])
    made, facts = variants(texts), machine(COMMAND)
    lines = [
        "AUROC and share of detected sentences at a false-reject rate of 5 %, for known intents of BANKING77 that are",
        f"left out: means over {SPLITS} splits, in brackets the standard error of the difference of the AUROC to the",
        "first row. No novel class and no test sentence is used.",
        "",
    ]
    for known in TRIALS:
        found: dict[str, list[list[float]]] = defaultdict(list)
        for split in range(SPLITS):
            drawn = torch.randperm(len(names), generator=torch.Generator().manual_seed(split))[:known]
            generator = torch.Generator().manual_seed(1000)
            out = drawn[torch.randperm(known, generator=generator)[: round(LEFT_OUT * known)]]
            novel = torch.isin(labels, out)
            rows = (torch.isin(labels, drawn) & ~novel).nonzero().squeeze(1)
            held = torch.rand(len(rows), generator=generator) < HELD_OUT
            y = torch.unique(labels[rows], return_inverse=True)[1]
            for name, make in made.items():
                z = make(rows[~held], y[~held])
                merged, predicted = scores(z[rows[~held]], y[~held], (z[rows[held]], z[novel]))
                result = [float((predicted == y[held]).double().mean())]
                for usual, new in merged.values():
                    limit = torch.quantile(usual, 1 - RATE)
                    result += [auroc(usual, new), float((new > limit).double().mean())]
                found[name].append(result)
        base, cells = torch.tensor(found["minilm"]), []
        for name, results in found.items():
            values = torch.tensor(results)
            error, mean = (values - base).std(0) / len(values) ** 0.5, values.mean(0)
            pairs = [f"{mean[at]:.4f} ({error[at]:.4f}), {100 * mean[at + 1]:.1f} %" for at in (1, 3, 5)]
            cells.append([name, f"{100 * mean[0]:.1f} %", *pairs])
        lines += [f"## {known} known intents", "", *table(["features", "accuracy", *SCORES], cells), ""]
        ending = f"`{COMMAND}`, {facts['cpu']}, {facts['date']}\n"
        write_text(RESULTS / "text_features.md", "\n".join([*lines, ending]))


if __name__ == "__main__":
    main()
