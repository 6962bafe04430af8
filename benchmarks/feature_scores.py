"""Compare scores of the same features of networks, on known classes that are left out: is it the score that limits us?

python -m benchmarks.feature_scores [--names plain-16-0 plain-16-1 plain-16-2] [--work FOLDER]

The networks are those that ``benchmarks.image_training`` saves in its work folder. The last digit of a name is the pair
of classes that was left out. Scores see the features of the last hidden layer and the outputs. Half-whitened directions
have each principal component of the differences within classes divided by the root of its standard deviation. The
linear classifier that was trained on half of the novel images is no detector: it shows what the features contain.
Writes benchmarks/results/feature_scores.{json,md}.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as TF
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import openradial
from benchmarks.from_scratch import FEATURES, layers_of
from benchmarks.image_training import NOVEL, PAIRS, parts_of
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.metrics import auroc
from openradial.scorers import Combination, NeighbourScorer

REFERENCES = 10_000
BOUND = "linear classifier, trained on novel images"


def bound(inside: Tensor, outside: Tensor) -> float:
    """Return the AUROC of a linear classifier on the halves of both that it was not trained on."""
    x, y = torch.cat([inside, outside]).numpy(), np.repeat([0, 1], [len(inside), len(outside)])
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.array_split(order, 2)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=1000)).fit(x[train], y[train])
    scores = model.decision_function(x[test])
    return auroc(scores[y[test] == 0], scores[y[test] == 1])


@torch.no_grad()
def run(folder: Path, pair: int) -> dict[str, dict[str, float]]:
    """Return the AUROC of each score, for both classes that were left out together and for each of them."""
    train, held_out, novel = parts_of(PAIRS[pair])
    model = openradial.load(folder)
    classes = sorted(train.labels.unique().tolist())
    rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:REFERENCES]
    layers = [layers_of(model, x) for x in (train.inputs[rows], held_out.inputs, novel)]
    labels = torch.tensor([classes.index(int(y)) for y in train.labels[rows]])
    features, outputs = [[each[name].float() for each in layers] for name in (FEATURES, "outputs")]
    directions = [TF.normalize(z, dim=1) for z in features]
    residuals = directions[0] - torch.stack([directions[0][labels == k].mean(0) for k in range(len(classes))])[labels]
    values, vectors = torch.linalg.eigh(residuals.T @ residuals / len(residuals))
    half_whitened = [z @ (vectors / values.clamp_min(1e-9) ** 0.25) for z in directions]

    def near(z: list[Tensor], relative: bool) -> list[Tensor]:
        scorer = NeighbourScorer(1, relative=relative).fit(z[0], labels)
        return [scorer.unknown_score(part) for part in z[1:]]

    def fisher(*scores: list[Tensor]) -> list[Tensor]:  # in fit, other known examples calibrate it
        inside, outside = (torch.stack(part, 1) for part in zip(*scores, strict=True))
        merge = Combination("fisher").fit(inside)
        return [merge.unknown_score(part) for part in (inside, outside)]

    logits, neighbour, relative = [-o.amax(1) for o in outputs[1:]], near(directions, False), near(directions, True)
    scores = {
        "maximum logit": logits,
        "nearest neighbour": neighbour,
        "relative nearest neighbour": relative,
        "nearest neighbour, half-whitened": near(half_whitened, False),
        "relative nearest neighbour, half-whitened": near(half_whitened, True),
        "logit and neighbour (Fisher)": fisher(logits, neighbour),
        "logit and relative neighbour (Fisher)": fisher(logits, relative),
    }
    names = [train.classes[k] for k in PAIRS[pair]]
    groups = {"both": slice(None), **{name: slice(NOVEL * i, NOVEL * (i + 1)) for i, name in enumerate(names)}}
    result = {
        name: {group: auroc(s[0].numpy(), s[1][part].numpy()) for group, part in groups.items()}
        for name, s in scores.items()
    }
    result[BOUND] = {group: bound(features[1], features[2][part]) for group, part in groups.items()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feature_scores", description=__doc__)
    parser.add_argument("--names", nargs="*", default=[f"plain-16-{pair}" for pair in range(len(PAIRS))])
    parser.add_argument("--work", type=Path, default=Path("runs/image_training"), help="folder with the networks")
    options = parser.parse_args()
    results = {name: run(options.work / name, int(name[-1])) for name in options.names}
    header, lines = ["score", *options.names, "mean"], []
    for group in ("both", "hardest"):
        cells = []
        for score in results[options.names[0]]:
            each = [results[name][score] for name in options.names]
            shown = [auc["both"] if group == "both" else min(auc.values()) for auc in each]
            cells.append([score, *(f"{value:.3f}" for value in [*shown, float(np.mean(shown))])])
        title = "AUROC of both classes that were left out:" if group == "both" else "AUROC of the harder one of them:"
        lines += [title, "", *table(header, cells), ""]
    facts = machine("python -m benchmarks.feature_scores --names " + " ".join(options.names))
    (RESULTS / "feature_scores.json").write_text(json.dumps({"machine": facts, "networks": results}, indent=1) + "\n")
    (RESULTS / "feature_scores.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
