"""Try other features and scores for texts on known classes that are left out: what decision 18 was taken from.

python -m benchmarks.text_features --banking FOLDER (ten minutes on one core)

FOLDER has train.csv of BANKING77. Only the training sentences of the known intents of the five splits of
benchmarks/pretrained.py are used: of them two fifths of the intents are left out as novel ones, and a quarter of the
other sentences as known ones. Writes benchmarks/results/text_features.{json,md}, part by part.
--layers FILE keeps the layers of minilm for the next run.
"""

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from benchmarks.machine import machine
from benchmarks.pretrained import encode
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.files import write_text
from openradial.fitting.cross import FOLDS, FeatureSet, assign_folds, cross_fit
from openradial.fitting.novelty import classes_by_round
from openradial.metrics import auroc
from openradial.recipe import OUTPUTS, closed_form_recipe
from openradial.scorers import NeighbourScorer, Scorer
from openradial.scorers.base import squared_distances

COMMAND = "python -m benchmarks.text_features --banking FOLDER"
SPLITS, WIDTH, ALPHA, LEFT_OUT, HELD_OUT, RATE = 5, 0.5, 0.01, 0.4, 0.25, 0.05
FEWEST = 19  # known intents
PARTS = (("Features", FEWEST), ("Features", 38), ("Scores", FEWEST), ("Weights", FEWEST))
PATH = RESULTS / "text_features.json"
USUAL, CHOSEN = "the last layer, as published", "the last + others, beside the largest values (taken)"
MANY = (USUAL, "its word vectors appended, weight 0.7", "the last + the mean of all others", CHOSEN)  # for 38 intents
Features = Callable[[Tensor, Tensor], Tensor]  # rows that are fitted on, and their labels -> all features
Pair = tuple[Tensor, Tensor]  # scores of known and of novel sentences
FAR, SMALL = 1e9, 1e-3


@torch.no_grad()
def layers(texts: list[str]) -> dict[str, Tensor]:
    """Return the mean, the largest value and the first of the token vectors of each layer; the first are words."""
    encoder, parts = encoders.load("minilm"), defaultdict[str, list[Tensor]](list)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    net: Any = encoder.net
    for at in range(0, len(texts), 64):
        tokens = encoder.inputs.transform(encoder.inputs.ready([texts[row] for row in order[at : at + 64]]))
        mask = (tokens != 0).unsqueeze(2)
        words = net.word(tokens)
        x = net.norm(words + net.position.weight[: tokens.shape[1]] + net.token_type.weight[0])
        every = [words, x]
        for layer in net.layers:
            x = layer(x, mask.squeeze(2))
            every.append(x)
        parts["means"].append(torch.stack([(each * mask).sum(1) / mask.sum(1) for each in every]))
        parts["maxs"].append(torch.stack([each.masked_fill(~mask, -torch.inf).amax(1) for each in every]))
        parts["cls"].append(torch.stack([each[:, 0] for each in every]))
    back = torch.tensor(order).argsort()
    return {name: torch.cat(each, 1)[:, back] for name, each in parts.items()}


def joined(*parts: Tensor) -> Tensor:
    """Return features beside each other, of length 1."""
    return normalize(torch.cat(parts, 1))


def variants(texts: list[str], made: dict[str, Tensor]) -> tuple[dict[str, Features], dict[str, Tensor]]:
    """Return features by name, made from the layers of minilm and from wordllama; and some for neighbours alone."""
    n = [normalize(each) for each in made["means"]]  # of words, the first sum, and six layers
    z, largest, static = n[7], normalize(made["maxs"][7]), normalize(encode("wordllama", texts))

    def mean(*which: int) -> Tensor:
        return normalize(torch.stack([n[at] for at in which]).sum(0))

    others, lower = mean(*range(1, 7)), mean(1, 2, 3)
    both = normalize(z + others)
    fixed = {
        USUAL: z,
        **{f"its word vectors appended, weight {w:g}": joined(z, w * n[0]) for w in (0.5, 0.7, 1.0)},
        **{f"layer {at - 1} appended, weight 0.7": joined(z, 0.7 * n[at]) for at in range(1, 7)},
        **{f"mean of the last {count} layers": mean(*range(8 - count, 8)) for count in range(2, 8)},
        **{f"the last + {w:g} of the mean of all others": normalize(z + w * others) for w in (0.7, 1.5)},
        "the last + the mean of all others": both,
        "the last + the mean of layers 0 to 2": normalize(z + lower),
        "the last, beside the mean of all others": joined(z, others),
        "all layers beside each other": joined(*n[1:]),
        "all layers beside each other, the last twice": joined(2 * z, *n[1:7]),
        "its word vectors and layer 3 appended, weight 0.7": joined(z, 0.7 * n[0], 0.7 * n[4]),
        "its largest values appended, weight 0.7": joined(z, 0.7 * largest),
        "its first token appended, weight 0.7": joined(z, 0.7 * normalize(made["cls"][7])),
        "wordllama appended, weight 0.5": joined(z, 0.5 * static),
        "the last + others + 0.5 of the largest values": normalize(both + 0.5 * largest),
        "the last + others + the largest values": normalize(both + largest),
        "the last + others, beside 0.7 of the largest values": joined(both, 0.7 * largest),
        CHOSEN: joined(both, largest),
    }
    made_of: dict[str, Features] = {
        **{name: partial(lambda features, rows, y: features, features) for name, features in fixed.items()},
        "centred": lambda rows, y: without_components(z, rows, 0),
        "without 3 principal components": lambda rows, y: without_components(z, rows, 3),
        "whitened within the classes": lambda rows, y: whitened(z, rows, y, 0.5),
    }
    return made_of, {"words": n[0], "layer 3": n[4], "largest values": largest, "wordllama": static}


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


class Ridge:
    """Kernel ridge regression on one-hot targets."""

    def __init__(self, kernel: Tensor, y: Tensor, alpha: float = ALPHA) -> None:
        self.mean, targets = kernel.mean(0), one_hot(y).float()
        centred = kernel - self.mean - self.mean[:, None] + self.mean.mean()
        self.factor, self.intercept = torch.linalg.cholesky(centred + alpha * torch.eye(len(y))), targets.mean(0)
        self.solution = torch.cholesky_solve(targets - self.intercept, self.factor)

    def outputs(self, kernel: Tensor) -> Tensor:
        return self._centred(kernel) @ self.solution + self.intercept

    def leverage(self, kernel: Tensor) -> Tensor:
        """Return the variance of a Gaussian process, up to a factor."""
        explained: Tensor = torch.linalg.solve_triangular(self.factor, self._centred(kernel).T, upper=False)
        return 1 - 2 * kernel.mean(1) + self.mean.mean() - explained.square().sum(0)

    def _centred(self, kernel: Tensor) -> Tensor:
        return kernel - kernel.mean(1, keepdim=True) - self.mean + self.mean.mean()


def radial(outputs: Tensor) -> Tensor:
    """Return the distance to the nearest prototype."""
    return (outputs - one_hot(outputs.argmax(1), outputs.shape[1])).square().sum(1).sqrt()


def simple(z: Tensor, y: Tensor, queries: Pair) -> tuple[dict[str, Pair], Tensor]:
    """Return the radial distance and the nearest neighbour of both queries, and the predictions for the first."""
    squares, far = squared_distances(z, z), [squared_distances(x, z) for x in queries]
    scale = 2 * WIDTH**2 * typical(squares)
    ridge = Ridge((-squares / scale).exp(), y)
    outputs = [ridge.outputs((-each / scale).exp()) for each in far]
    pairs = {"radial": [radial(each) for each in outputs], "neighbour": [each.amin(1).sqrt() for each in far]}
    return {name: (pair[0], pair[1]) for name, pair in pairs.items()}, outputs[0].argmax(1)


def typical(squares: Tensor) -> Tensor:
    """Return the median of some squared distances."""
    return squares.flatten()[1::1009].median()


def every_score(z: Tensor, y: Tensor, queries: Pair, words: Pair) -> Iterator[tuple[str, Pair]]:
    """Give all scores that were tried, in the logarithm; ``words`` are numbers of words of both queries."""
    squares, far = squared_distances(z, z), [squared_distances(x, z) for x in queries]
    middle = typical(squares)
    for width in (0.35, 0.5, 0.7):
        kernels = [(-each / (2 * width**2 * middle)).exp() for each in (squares, *far)]
        ridge = Ridge(kernels[0], y)
        outputs = [ridge.outputs(each) for each in kernels[1:]]
        yield f"radial, width {width:g}", logs(*(radial(each) for each in outputs))
        yield f"projection, width {width:g}", (-outputs[0].amax(1), -outputs[1].amax(1))
        if width == WIDTH:
            predicted = [each.argmax(1) for each in outputs]
            yield "leverage", logs(*(ridge.leverage(each) for each in kernels[1:]))
    for count, kind in product((1_000, 2_000), ("random", "paired random", "orthogonal paired random")):
        frequencies, phases = drawn_features(z.shape[1], count, kind)
        frequencies = frequencies / (0.7 * middle.sqrt())
        maps = [(x @ frequencies + phases).cos() * math.sqrt(2 / count) for x in (z, *queries)]
        ridge = Ridge(maps[0] @ maps[0].T, y, alpha=0.1)
        both = [radial(ridge.outputs(each @ maps[0].T)) for each in maps[1:]]
        yield f"radial, {count:,} {kind} features, width 0.7, alpha 0.1", logs(*both)
    nearest = [each.sort(1) for each in far]
    roots = [each.values.sqrt() for each in nearest]
    for k in (1, 2, 3, 5, 10):
        yield f"neighbour {k}", logs(*(each[:, k - 1] for each in roots))
    for k in (2, 3, 5):
        yield f"mean of {k} neighbours", logs(*(each[:, :k].mean(1) for each in roots))
    local = squares.clone().fill_diagonal_(FAR).sort(1).values.sqrt().clamp_min(SMALL)  # some sentences are equal
    first = [each.indices[:, 0] for each in nearest]
    for k in (1, 5, 10):
        around = local[:, :k].mean(1)
        ratios = (each[:, 0] / around[at] for each, at in zip(roots, first, strict=True))
        yield f"neighbour / mean of its {k} neighbours", logs(*ratios)
    for k in (3, 10):
        around = 1 - local[:, :k].square().mean(1) / 2
        yield f"CSLS with {k} neighbours", logs(*((each + around).amin(1) for each in far))
    other = [each.masked_fill(y[at][:, None] == y, FAR).amin(1) for each, at in zip(far, first, strict=True)]
    pairs = zip(roots, other, strict=True)
    yield "neighbour / neighbour of another class", logs(*(each[:, 0] / most.sqrt() for each, most in pairs))
    pairs = zip(far, predicted, strict=True)
    own = [each.masked_fill(labels[:, None] != y, FAR).amin(1).sqrt() for each, labels in pairs]
    yield "neighbour of the predicted class", logs(*own)
    for width in (0.02, 0.05, 0.1):
        parzen = [-((1 - each / 2) / width).logsumexp(1) for each in far]
        yield f"Parzen windows of the cosine, {width:g}", (parzen[0], parzen[1])
    means = normalize(one_hot(y).float().T @ z)
    yield "cosine to the mean of a class", logs(*(1 - (x @ means.T).amax(1) for x in queries))
    known, novel = logs(*(each[:, 0] for each in roots))
    alone = local[:, 0].log()
    typical_of = torch.stack([alone[y == k].mean() for k in range(int(y.max()) + 1)])
    yield "neighbour / that of its class", (known - typical_of[predicted[0]], novel - typical_of[predicted[1]])
    slope = torch.cov(torch.stack([words[0], known]))[0, 1] / words[0].var()
    yield "neighbour, given the number of words", (known - slope * words[0], novel - slope * words[1])


def drawn_features(width: int, count: int, kind: str) -> tuple[Tensor, Tensor]:
    """Return frequencies and phases; pairs have the sine and the cosine of a frequency."""
    generator = torch.Generator().manual_seed(7)
    if kind == "random":
        return torch.randn(width, count, generator=generator), 2 * math.pi * torch.rand(count, generator=generator)
    half = count // 2
    frequencies = torch.randn(width, half, generator=generator)
    if kind.startswith("orthogonal"):
        blocks = [torch.linalg.qr(torch.randn(width, width, generator=generator))[0] for _ in range(-(-half // width))]
        frequencies = torch.cat(blocks, 1)[:, :half] * frequencies.norm(dim=0)
    return frequencies.repeat(1, 2), torch.tensor([0.0, -math.pi / 2]).repeat_interleave(half)


def logs(known: Tensor, novel: Tensor) -> Pair:
    """Return the logarithms of scores."""
    return known.clamp_min(SMALL).log(), novel.clamp_min(SMALL).log()


def standardised(pair: Pair) -> Pair:
    """Return scores with mean 0 and standard deviation 1 for known sentences."""
    known, novel = pair
    return (known - known.mean()) / known.std(), (novel - known.mean()) / known.std()


def result(*pairs: Pair, weights: tuple[float, ...] = (1.0, 1.0, 1.0)) -> list[float]:
    """Return the AUROC and the share of detected sentences of the weighted sum of standardised scores."""
    parts = zip(weights[: len(pairs)], map(standardised, pairs), strict=True)
    each = [(weight * known, weight * novel) for weight, (known, novel) in parts]
    known, novel = (torch.stack([pair[at] for pair in each]).sum(0) for at in (0, 1))
    return [auroc(known, novel), float((novel > torch.quantile(known, 1 - RATE)).double().mean())]


def rounds(labels: Tensor, known: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Give for each split rows to fit on, held-out rows, rows of left-out intents, and the intents of the former."""
    for split in range(SPLITS):
        drawn = torch.randperm(int(labels.max()) + 1, generator=torch.Generator().manual_seed(split))[:known]
        generator = torch.Generator().manual_seed(1000)
        out = drawn[torch.randperm(known, generator=generator)[: round(LEFT_OUT * known)]]
        novel = torch.isin(labels, out)
        rows = (torch.isin(labels, drawn) & ~novel).nonzero().squeeze(1)
        held = torch.rand(len(rows), generator=generator) < HELD_OUT
        yield rows[~held], rows[held], novel.nonzero().squeeze(1), torch.unique(labels[rows])


def by_weight(z: Tensor, labels: Tensor, known: int, split: int) -> dict[str, list[float]]:
    """Return results by the weight of neighbours, with the head and the rounds of openradial.fit."""
    drawn = torch.randperm(int(labels.max()) + 1, generator=torch.Generator().manual_seed(split))[:known]
    z, y = z[torch.isin(labels, drawn)], torch.unique(labels[torch.isin(labels, drawn)], return_inverse=True)[1]
    recipe = closed_form_recipe("texts", len(z))
    head = recipe.make_closed_form_head(tuple(map(str, range(known))), z.shape[1], split).fit(z, y)
    folds, left = assign_folds(y, FOLDS, seed=split), classes_by_round(y, known, seed=split)
    novel = torch.stack([torch.isin(y, classes) for classes in left])
    near = (NeighbourScorer(k, reduce="mean", normalise=True) for k in (1, 2, 3))
    scorers: list[tuple[str, Scorer]] = [(OUTPUTS, scorer) for scorer in near]
    out = [each | (folds == fold) for fold, each in enumerate(novel)]
    scored = cross_fit(head, scorers, FeatureSet(z, y), out, seed=split)
    is_novel, found = novel[scored.folds, scored.rows], {}
    radials, *others = [logs(each[~is_novel], each[is_novel]) for each in scored.scores.T]
    for (k, other), weight in product(enumerate(others, 1), (1.0, 1.5, 2.0, 3.0)):
        about = "neighbour" if k == 1 else f"mean of {k} neighbours"
        found[f"radial + {weight:g} {about}"] = result(radials, other, weights=(1.0, weight))
    return found


def cells(found: dict[str, list[list[float]]], base: list[list[float]]) -> list[list[str]]:
    """Return a row per trial: means, and the standard error of the difference of the AUROC to the base."""
    rows = []
    for name, results in found.items():
        values = torch.tensor(results)
        difference = (values - torch.tensor(base))[:, -2]
        error, mean = difference.std() / len(values) ** 0.5, values.mean(0)
        shares, change = [f"{100 * each:.1f} %" for each in mean], f"{difference.mean():+.4f} ({error:.4f})"
        rows.append([name, *shares[:-2], f"{mean[-2]:.4f}", change, shares[-1]])
    return rows


class Sentences(NamedTuple):
    """The training sentences of BANKING77, and features made from them."""

    texts: list[str]
    labels: Tensor
    words: Tensor  # logarithms of their numbers of words
    features: dict[str, Features]
    alone: dict[str, Tensor]


def read(folder: Path, kept: Path | None) -> Sentences:
    """Read the sentences; the layers of minilm are computed unless they were kept."""
    with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
        sentences = list(csv.DictReader(file))
    texts, names = [row["text"] for row in sentences], sorted({row["category"] for row in sentences})
    words = torch.tensor([float(len(text.split())) for text in texts]).clamp_min(1).log()
    if kept is not None and kept.exists():
        made = torch.load(kept, weights_only=True)
    else:
        made = layers(texts)
        if kept is not None:
            torch.save(made, kept)
    labels = torch.tensor([names.index(row["category"]) for row in sentences])
    return Sentences(texts, labels, words, *variants(texts, made))


def measure(data: Sentences, part: str, known: int) -> dict[str, list[list[float]]]:
    """Return the results of each trial of a part, one per split."""
    found, labels = defaultdict[str, list[list[float]]](list), data.labels
    if part == "Weights":
        z = encode("minilm", data.texts)
        for split in range(SPLITS):
            for name, values in by_weight(z, labels, known, split).items():
                found[name].append(values)
        return found
    for rows, held, novel, intents in rounds(labels, known):
        y, truth = torch.searchsorted(intents, labels[rows]), torch.searchsorted(intents, labels[held])
        for name in () if part == "Scores" else MANY if known > FEWEST else data.features:
            z = data.features[name](rows, y)
            scores, predicted = simple(z[rows], y, (z[held], z[novel]))
            accuracy = float((predicted == truth).double().mean())
            found[name].append([accuracy, *result(*(logs(*pair) for pair in scores.values()))])
        for start in (USUAL, CHOSEN) if part == "Scores" else ():
            z, about = data.features[start](rows, y), "" if start == USUAL else "taken features: "
            every = dict(every_score(z[rows], y, (z[held], z[novel]), (data.words[held], data.words[novel])))
            for name, other in data.alone.items():
                both = [squared_distances(other[each], other[rows]).amin(1).sqrt() for each in (held, novel)]
                every[f"neighbour among {name}"] = logs(both[0], both[1])
            first, second = every[f"radial, width {WIDTH:g}"], every["neighbour 1"]
            found[f"{about}radial + neighbour"].append(result(first, second))
            for name, pair in every.items():
                found[f"{about}{name}"].append(result(pair))
                if name.startswith(("radial", "projection")):
                    found[f"{about}{name} + neighbour 1"].append(result(pair, second))
                else:
                    found[f"{about}radial + {name}"].append(result(first, pair))
                    found[f"{about}radial + neighbour 1 + {name}"].append(result(first, second, pair))
    return found


def markdown(results: dict[str, Any]) -> str:
    """Return a table for each part."""
    lines = [
        "AUROC and share of detected sentences at a false-reject rate of 5 %, for known intents of BANKING77 that are",
        f"left out: means over {SPLITS} splits of the intents. In brackets the standard error of the difference of the",
        "AUROC to the first row. No novel class of a split and no test sentence is used in it. Scores are added as",
        "logarithms, each standardised by those of known sentences. Features and scores are compared with exact kernel",
        "ridge regression, weights with the head that openradial.fit solves on the taken features.",
        "",
    ]
    for title, found in results["parts"].items():
        names = ["trial", *(["accuracy"] if title.startswith("Features") else []), "AUROC", "difference", "detected"]
        lines += [f"## {title}", "", *table(names, cells(found, next(iter(found.values())))), ""]
    facts = results["environment"]
    return "\n".join([*lines, f"`{COMMAND}`, {facts['cpu']}, {facts['date']}"]) + "\n"


def main() -> None:
    """Measure the parts that are missing in the file of results, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking", type=Path, required=True)
    parser.add_argument("--layers", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {"parts": {}}
    parts = {f"{part}, {known} known intents": (part, known) for part, known in PARTS}
    if parts.keys() - results["parts"].keys():
        data, results["environment"] = read(arguments.banking, arguments.layers), machine(COMMAND)
        for title, (part, known) in parts.items():
            if title not in results["parts"]:
                results["parts"][title] = measure(data, part, known)
                write_text(PATH, json.dumps(results))
    results["parts"] = {title: results["parts"][title] for title in parts}
    write_text(PATH.with_suffix(".md"), markdown(results))


if __name__ == "__main__":
    main()
