import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, recall_score

from benchmarks.imbalance import markdown
from paper.imbalance import LOSSES, POWERS, balanced_subset, class_weights, results, select_weights


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 4, 60), rng.integers(0, 3, 60)  # the last class is never predicted
    scores = results(torch.tensor(y), torch.tensor(predicted), 4)
    assert scores["accuracy"] == pytest.approx((y == predicted).mean())
    assert scores["macro_f1"] == pytest.approx(f1_score(y, predicted, average="macro"))
    assert scores["recall"] == pytest.approx(recall_score(y, predicted, average=None))


def test_class_weights_are_one_over_the_size_of_the_class_or_its_root():
    labels = torch.tensor([0] * 16 + [1] * 4)
    assert class_weights(labels, 2, POWERS["none"]) is None
    assert class_weights(labels, 2, POWERS["balanced"]).tolist() == [1 / 16, 1 / 4]
    assert class_weights(labels, 2, POWERS["sqrt"]).tolist() == [1 / 4, 1 / 2]


def test_a_balanced_subset_has_as_many_examples_of_each_class_as_the_rarest():
    labels = torch.tensor([0] * 9 + [1] * 3 + [2] * 5)
    subset = balanced_subset(labels, seed=1)
    assert len(subset.unique()) == 9
    assert torch.bincount(labels[subset]).tolist() == [3, 3, 3]
    assert not torch.equal(subset, balanced_subset(labels, seed=2))


def test_weights_are_select_weights_for_each_loss_on_validation_documents():
    rows = [
        {"loss": "softmax", "weights": "none", "validation_macro_f1": [0.99], "macro_f1": [0.1]},
        {"loss": "squared", "weights": "none", "validation_macro_f1": [0.5], "macro_f1": [0.9]},
        {"loss": "squared", "weights": "sqrt", "validation_macro_f1": [0.6], "macro_f1": [0.2]},
    ]
    assert select_weights(rows) == {"softmax": "none", "squared": "sqrt"}


def test_every_loss_and_weight_is_measured_drawn_and_in_the_table(tiny_record, tiny_figure):
    record = tiny_record("imbalance")
    found, figure = tiny_figure("imbalance")
    ways = [(loss, weights) for loss in LOSSES for weights in POWERS]
    assert [(row["loss"], row["weights"]) for row in found["compared"]] == ways
    assert [row["loss"] for row in found["balanced"]] == list(LOSSES)
    assert {row["loss"]: row["weights"] for row in found["final"]}.items() <= select_weights(found["compared"]).items()
    *scores, recall = figure.axes
    assert ["accuracy" in scores[0].get_ylabel(), "macro-F1" in scores[1].get_ylabel()] == [True, True]
    order = np.argsort(found["training_documents"], kind="stable")
    for line, row in zip(recall.lines, found["compared"][:: len(POWERS)], strict=True):
        assert line.get_ydata() == pytest.approx(100 * np.mean(row["recall"], axis=0)[order])
    text = markdown(record)
    assert all(f"| {loss} | {weights} |" in text for loss, weights in ways)
