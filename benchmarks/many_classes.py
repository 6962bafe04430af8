"""Which score of photographs gets weaker with more classes: 20 and 82 known classes of Tiny-ImageNet.

python -m benchmarks.many_classes --tiny PATH (ten minutes on one core if the features are cached)

Novel classes: the splits of benchmarks.pretrained. Left-out classes: training images of classes that are known in its
first split; 25 of the 82 are left out, and 20 or the other 57 are known, 32 images of each to fit and 8 to test. A
default may be chosen on left-out classes alone. Writes benchmarks/results/many_classes.{json,md}.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.photos import fit_photographs, published
from benchmarks.pretrained import LAST, SPLITS, TINY, logistic, selected_c, tiny
from benchmarks.run import RESULTS, table
from openradial.files import write_text
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet, assign_folds, cross_fit
from openradial.heads.radial import projection
from openradial.heads.ridge import solve
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.recipe import OUTPUTS, closed_form_recipe
from openradial.scorers import Combination, MahalanobisScorer, NeighbourScorer, Scorer

COMMAND = "python -m benchmarks.many_classes --tiny PATH"
COUNTS = (20, 82)  # known classes
CHOICES, LEFT_OUT, TEST = 5, 25, 8  # choices of left-out classes, their number, test images of a known class
RATE, FOLDS = 0.05, 5
TEMPERATURES, PENALTIES = (0.05, 0.2), (0.3, 3.0)  # of the energy of outputs; times the penalty that fit chooses
SHRUNK = 0.6  # a larger share of the identity than fit takes
ROOTS, PUBLISHED = "roots", "published"  # features
WEIGHTS = {"1/4": (4.0, 1.0), "1/2": (2.0, 1.0), "1": (1.0, 1.0)}  # of the head and the other score
SUMS = [  # of a score of the head and another one
    (f"{ROOTS}: projection", f"{ROOTS}: Mahalanobis"),
    (f"{ROOTS}: projection", f"{ROOTS}: nearest neighbour"),
    (f"{ROOTS}: projection", f"{ROOTS}: Mahalanobis, shrunk by 0.6"),
    (f"{ROOTS}: energy at 0.05", f"{ROOTS}: Mahalanobis"),
    (f"{PUBLISHED}: projection", f"{PUBLISHED}: Mahalanobis"),
    (f"{PUBLISHED}: projection", f"{ROOTS}: Mahalanobis"),
    (f"{PUBLISHED}: projection", f"{ROOTS}: Mahalanobis, shrunk by 0.6"),
    (f"{PUBLISHED}: energy at 0.05", f"{ROOTS}: Mahalanobis"),
]
Pair = tuple[Tensor, Tensor]  # scores of training examples and of test examples
Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # training features and labels, test features and labels, -1 for novel


def novel_rows(path: Path, count: int, seed: int) -> Rows:
    """Return features and labels of a split of benchmarks.pretrained."""
    (z, labels), (x, truth) = tiny(path)
    code = torch.full((200,), -1)
    drawn = torch.randperm(200, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    code[drawn] = torch.arange(count)
    y = code[labels]
    return z[y >= 0], y[y >= 0], x, code[truth]


def left_out_rows(path: Path, count: int, seed: int) -> Rows:
    """Return training images of the first split's known classes, some of which are left out."""
    z, labels = tiny(path)[0]
    classes = torch.randperm(200, generator=torch.Generator().manual_seed(0))[: max(COUNTS)]
    drawn = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(100 + seed))]
    known = drawn[LEFT_OUT : LEFT_OUT + count].sort().values
    code = torch.full((200,), -2)
    code[drawn[:LEFT_OUT]], code[known] = -1, torch.arange(len(known))
    y, is_test = code[labels], torch.arange(len(labels)) % TINY["train"] >= TINY["train"] - TEST
    fits, tests = (y >= 0) & ~is_test, (y == -1) | (y >= 0) & is_test
    return z[fits], y[fits], z[tests], y[tests]


def head_scores(o: Tensor) -> dict[str, Tensor]:
    """Return unknown scores above 0 of the outputs of a closed-form head with prototypes at distance 1."""
    squares = o.square().sum(1) - 2 * o.amax(1) + 1
    found = {"projection": projection(o, 1.0), "distance": squares.clamp_min(1e-12).sqrt()}
    return found | {f"energy at {t}": (-t * (o / t).logsumexp(1)).exp() for t in TEMPERATURES}


def columns(z: Tensor, y: Tensor, x: Tensor, t: Tensor, seed: int) -> tuple[dict[str, Pair], float]:
    """Return every score of training examples without themselves and of test examples, and the accuracy."""
    recipe = closed_form_recipe("images", len(z))
    head = recipe.make_closed_form_head(tuple(map(str, range(int(y.max()) + 1))), z.shape[1], seed).fit(z, y)
    scorers: dict[str, Scorer] = {"Mahalanobis": MahalanobisScorer(normalise=True, shrinkage="oas")}
    scorers[f"Mahalanobis, shrunk by {SHRUNK}"] = MahalanobisScorer(normalise=True, shrinkage=SHRUNK)
    scorers["nearest neighbour"] = NeighbourScorer(1, normalise=True)
    pairs = [(OUTPUTS, scorer) for scorer in scorers.values()]
    out = cross_fit(head, pairs, FeatureSet(z, y), assign_folds(y, FOLDS, None, seed), (), seed)
    found = {}
    for at, (name, scorer) in enumerate(scorers.items(), start=1):
        found[name] = out.scores[:, at], scorer.fit(z, y).unknown_score(x).double()
    outputs = head.outputs(x.double())
    without, new = head_scores(head.leave_one_out(z, y)), head_scores(outputs)
    found |= {name: (without[name], new[name]) for name in new}
    for factor in PENALTIES:
        weight, bias = solve(head.sums.statistics, factor * float(head.fitted_alpha or 0))
        scores = projection(x.double() @ weight.T + bias, 1.0)
        found[f"projection, {factor:g} times the penalty"] = scores, scores
    return found, accuracy(outputs, t)


def fitted(rows: Rows, seed: int) -> dict[str, Tensor]:
    """Return the scores of a classifier that is fitted as openradial.fit does, and of one without the far layers."""
    z, y, x, _ = rows
    names, known = tuple(map(str, range(int(y.max()) + 1))), FeatureSet(z[:, :LAST], y)
    recipe = closed_form_recipe("images", len(z), len(names))
    plain = fit_closed_form(Features(LAST), recipe, names, known, seed)[0]
    plain = calibrate_cross(plain, recipe, RATE, known, seed)[0]
    full = fit_photographs(z, y, LAST, seed)[0]
    return {
        "openradial": full.decide(x).unknown_score,
        "openradial without middle layer and octaves": plain.decide(x[:, :LAST]).unknown_score,
    }


def measure(rows: Rows, seed: int) -> dict[str, float]:
    """Return the AUROC of every score, and accuracies."""
    z, y, x, t = rows
    found, values, right = dict[str, Pair](), fitted(rows, seed), dict[str, float]()
    inputs = {ROOTS: (z[:, :LAST], x[:, :LAST]), PUBLISHED: (published(z, LAST), published(x, LAST))}
    for kind, (a, b) in inputs.items():
        scores, right[f"accuracy, ridge on {kind}"] = columns(a, y, b, t, seed)
        found |= {f"{kind}: {name}": pair for name, pair in scores.items()}
        relative = MahalanobisScorer(relative=True, normalise=True, shrinkage=SHRUNK).fit(a, y)
        values[f"{kind}: relative Mahalanobis, shrunk by {SHRUNK}"] = relative.unknown_score(b)
        logits = logistic(a, y, selected_c(a, y))(b)
        right[f"accuracy, logistic regression on {kind}"] = accuracy(logits, t)
        values[f"{kind}: logistic regression, energy"] = -logits.logsumexp(1)
        values[f"{kind}: logistic regression, maximum logit"] = -logits.amax(1)
    values |= {name: new for name, (_, new) in found.items()}
    for head, other in SUMS:
        for share, weights in WEIGHTS.items():
            merge = Combination("standardised", weights=weights)
            merge.fit(torch.stack([found[head][0], found[other][0]], 1))
            score = merge.unknown_score(torch.stack([found[head][1], found[other][1]], 1))
            values[f"{head} + {share} {other}"] = score
    return {name: auroc(score[t >= 0], score[t < 0]) for name, score in values.items()} | right


def accuracy(outputs: Tensor, t: Tensor) -> float:
    return float((outputs.argmax(1) == t)[t >= 0].double().mean())


def cases(path: Path) -> Iterator[tuple[str, int, Rows]]:
    """Yield the name of a case, the number of the run and its data."""
    for count in COUNTS:
        rest = min(count, max(COUNTS) - LEFT_OUT)
        for seed in range(CHOICES):
            yield f"{rest} known, {LEFT_OUT} left out", seed, left_out_rows(path, rest, seed)
    for count in COUNTS:
        for seed in range(SPLITS):
            yield f"{count} known, {200 - count} novel", seed, novel_rows(path, count, seed)


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    results: dict[str, Any] = {"environment": machine(COMMAND), "runs": {}}
    for case, seed, rows in cases(parser.parse_args().tiny):
        results["runs"].setdefault(case, []).append(measure(rows, seed))
        Console().print(case, seed, {name: round(value, 4) for name, value in results["runs"][case][-1].items()})
    write(results)


def write(results: dict[str, Any]) -> None:
    """Write the results, with a table of means."""
    runs, environment = results["runs"], results["environment"]
    names = list(next(iter(runs.values()))[0])
    rows = [[name, *(f"{fmean(run[name] for run in each):.3f}" for each in runs.values())] for name in names]
    lines = [
        "Mean AUROC of photographs of Tiny-ImageNet by score, features of efficientnet_lite0, 40 images per class.",
        f"Left out: {CHOICES} choices among the known classes of the first split, training images alone, {TEST} of 40",
        f"held out; defaults may be chosen on these columns. Novel: the {SPLITS} splits of `benchmarks.pretrained`.",
        "Roots are openradial's features; what follows the colon is computed on the features before it. Sums are of",
        "standardised logarithms, as openradial adds them; openradial is the classifier that `fit` makes.",
        "",
        *table(["score", *runs], rows),
        "",
        f"`{COMMAND}`, {environment['cpu']}, {environment['date']}",
    ]
    write_text(RESULTS / "many_classes.json", json.dumps(results, indent=1))
    write_text(RESULTS / "many_classes.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
