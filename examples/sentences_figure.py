"""How probable is the answer to a sentence of an intent that was never learned?

Logistic regression and openradial are fitted to the same features of the same sentences, a part of BANKING77: 24
intents. Both then answer test sentences of these intents, and sentences of 12 others. Draws the winning probabilities,
and lists the first novel sentence of the first intents with both answers.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

import openradial
from openradial import encoders, metrics
from openradial.evaluation.plots import KNOWN_COLOR, NOVEL_COLOR

DATA = Path(__file__).parent / "banking77"
CONFIDENT, SHOWN = 0.9, 5
Answers = tuple[NDArray[np.str_], NDArray[np.float64]]  # the class of each sentence, and its probability


def read(name: str) -> tuple[list[str], list[str]]:
    """Return sentences and their intents."""
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["category"] for row in rows]


def logistic_regression(encoder: str, inputs: list[list[str]]) -> list[Answers]:
    """Fit to standardised features of the training sentences, and answer others."""
    texts, y = read("train.csv")
    network = encoders.load(encoder)
    cache = encoders.FeatureCache(network.key)  # fit reads it too
    z, *others = (encoders.encode(network, each, cache=cache)[0].numpy() for each in (texts, *inputs))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(z, y)
    return [(model.predict(each), model.predict_proba(each).max(1)) for each in others]


def radial(encoder: str, inputs: list[list[str]]) -> list[Answers]:
    """Fit a model, and answer sentences with an intent or unknown."""
    model = openradial.fit(DATA / "train.csv", label="category", encoder=encoder, baseline=False, show_progress=False)
    predictions = [model.predict(each) for each in inputs]
    return [(np.array(each.names), each.probability.astype(np.float64)) for each in predictions]


def draw(answers: dict[str, list[Answers]], sentences: list[str]) -> Figure:
    """Draw a histogram per method, and below them sentences of novel intents with both answers."""
    figure = plt.figure(figsize=(7.2, 4.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(2.1, 1)).flat
    panels = top.subplots(1, 2, sharey=True)
    for ax, (method, (known, novel)) in zip(panels, answers.items(), strict=True):
        for (_, probs), color in ((known, KNOWN_COLOR), (novel, NOVEL_COLOR)):
            share = np.full(len(probs), 100 / len(probs))
            style: dict[str, Any] = {"facecolor": to_rgba(color, 0.5), "edgecolor": color, "linewidth": 1.5}
            ax.hist(probs, 20, range=(0, 1), weights=share, histtype="stepfilled", **style)
        ax.set(xlim=(0, 1), xlabel="winning probability", ylabel="share of examples (%)")
        ax.set_title(method, fontweight="bold")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].legend(["24 known intents", "12 novel intents"], frameon=False, loc="upper center")
    panels[1].set_ylabel("")
    ax = bottom.subplots()
    ax.axis("off")
    cells = [["sentence of a novel intent", *answers]]
    for i, text in enumerate(sentences):
        shown = [f"{names[i]}, {probs[i]:.2f}" for names, probs in (each[1] for each in answers.values())]
        cells.append([text if len(text) <= 44 else f"{text[:42].rstrip()} …", *shown])
    table = ax.table(cells, cellLoc="left", edges="open", bbox=(0, 0, 1, 1), colWidths=(0.37, 0.32, 0.31))
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    for column in range(3):
        table[0, column].get_text().set_fontweight("bold")
    return figure


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Fit both, draw, and return the measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the picture (default: demo)")
    parser.add_argument("--encoder", default="minilm", help="of the sentences (default: minilm)")
    options = parser.parse_args(argv)
    (known, _), (novel, intents) = read("test.csv"), read("novel.csv")
    first = [intents.index(intent) for intent in list(dict.fromkeys(intents))[:SHOWN]]  # in the order of the file
    rest = [i for i in range(len(novel)) if i not in first]
    inputs = [known, [novel[i] for i in first + rest]]
    methods = {"logistic regression": logistic_regression, "openradial": radial}
    answers = {name: method(options.encoder, inputs) for name, method in methods.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    draw(answers, inputs[1][:SHOWN]).savefig(options.out / "sentences.png", dpi=200)
    measures = {}
    for name, ((_, usual), (labels, unusual)) in answers.items():
        measures[f"{name}, AUROC of the winning probability"] = metrics.auroc(-usual, -unusual)
        measures[f"{name}, known with p > {CONFIDENT}"] = float((usual > CONFIDENT).mean())
        measures[f"{name}, novel with p > {CONFIDENT}"] = float((unusual > CONFIDENT).mean())
        measures[f"{name}, novel called unknown"] = float((labels == "unknown").mean())
    for name, value in measures.items():
        print(f"{name:<60} {100 * value:5.1f} %")
    return measures


if __name__ == "__main__":
    main()
