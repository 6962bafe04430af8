import json
from dataclasses import astuple

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.fitting.report import (
    GUARANTEES,
    ClassAccuracy,
    Decided,
    FitReport,
    LeftOutReport,
    NovelReport,
    class_accuracies,
    confused,
    confusion_matrix,
    decide,
    make_report,
    weaknesses,
)
from openradial.heads import RadialHead
from openradial.metrics import auroc

LABELS, NEAREST = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0, 2])
DECIDED = Decided(LABELS, torch.tensor([0, -1, 1, 1, 0, 2]), NEAREST, torch.arange(6.0))
NAMES = ("a", "b", "c")


@pytest.fixture
def model():
    known = torch.eye(3)[torch.arange(30) % 3] + 0.1 * torch.randn(30, 3)
    return OpenClassifier(nn.Identity(), RadialHead(3), rejector=Rejector(0.1), classes=NAMES).calibrate([known])


def test_confusions_are_counted():
    matrix = np.zeros((3, 3), int)
    for true, nearest in zip(LABELS.tolist(), NEAREST.tolist(), strict=True):
        matrix[true, nearest] += 1
    assert (confusion_matrix(LABELS, NEAREST, 3).numpy() == matrix).all()
    assert [astuple(pair) for pair in confused(DECIDED, NAMES)] == [("a", "b", 2), ("b", "a", 1)]


def test_the_hardest_classes_have_the_lowest_accuracy(model):
    hard = make_report(model, DECIDED, None, (), examples={}, seconds=1.0).hardest
    assert [(each.name, each.examples) for each in hard] == [("a", 3), ("b", 2)]
    assert (hard[0].accuracy, hard[0].rejected) == pytest.approx((1 / 3, 1 / 3))


def test_rejections_of_each_class_have_the_interval_of_clopper_and_pearson():
    random = np.random.default_rng(0)
    labels, rejected = torch.from_numpy(random.integers(0, 3, 200)), torch.from_numpy(random.random(200) < 0.1)
    made = class_accuracies(labels, labels, rejected, (*NAMES, "empty"))
    assert [each.name for each in made] == list(NAMES)
    for k, each in enumerate(made):
        count, total = int(rejected[labels == k].sum()), int((labels == k).sum())
        assert (each.accuracy, each.rejected, each.examples) == (1, count / total, total)
        expected = stats.beta.ppf([0.025, 0.975], [count, count + 1], [total - count + 1, total - count])
        assert (each.rejected_low, each.rejected_high) == pytest.approx(tuple(expected), rel=1e-8)


def test_a_report_has_all_classes(model):
    report = make_report(model, DECIDED, None, (), examples={}, seconds=1.0)
    assert [each.name for each in report.per_class] == list(NAMES)
    assert report.as_dict()["per_class"][2] == {
        "name": "c",
        "accuracy": 1.0,
        "rejected": 0.0,
        "examples": 1,
        "rejected_low": 0.0,
        "rejected_high": pytest.approx(0.975),
    }


def summary(accuracy=0.9, share=0.5, total=400, novel=None, expected=None, **examples):
    """A report on two classes, of which the first has this share of the examples."""
    first = round(share * total)
    classes = tuple(ClassAccuracy(name, accuracy, 0.05, n, 0, 1) for name, n in (("a", first), ("b", total - first)))
    parts = {
        "novel": novel and NovelReport(("x",), 50, 0.6, novel),
        "expected_detection": expected and LeftOutReport(("a",), 50, 0.6, expected, {"a": expected}),
    }
    counts = {"train": 400} | examples
    empty = {"false_rejects": None, "matrix": None, "confused": (), "hardest": (), "seconds": 1.0}
    return FitReport(accuracy=accuracy, **empty, examples=counts, per_class=classes, **parts)


def reasons(report, rate=0.05, counts=(200, 200)):
    return weaknesses(report, rate, ("a", "b"), torch.tensor(counts))


@pytest.mark.parametrize(
    "report",
    [
        summary(),
        summary(share=0.85),  # the interval of 90 % of 400 begins at 86.6 %
        summary(novel=0.4, expected=0.01),  # novel examples count for more than an estimate
        summary(expected=0.15),
        summary(calibration=57),
    ],
)
def test_a_good_model_is_not_called_weak(report):
    assert reasons(report) == ()


@pytest.mark.parametrize(
    ("report", "counts", "sentence"),
    [
        (summary(share=0.88), (200, 200), "accuracy 90.0 % on 400 inputs is not clearly above 88.0 %"),
        (summary(accuracy=0.53), (200, 200), "accuracy 53.0 % on 400 inputs is not clearly above 50.0 %"),
        (summary(total=6), (200, 200), "accuracy 90.0 % on 6 inputs is not clearly above 50.0 %"),
        (summary(novel=0.017), (200, 200), "only 1.7 % of the examples of novel classes are called unknown"),
        (summary(expected=0.14), (200, 200), "only 14.0 % of the examples of left-out classes are called unknown"),
        (summary(calibration=56), (200, 200), "56 examples set the threshold; a rate of 5 % is reliable with 57"),
        (summary(train=40), (20, 20), "40 examples set the threshold"),
        (summary(), (200, 4), "1 class has fewer than 5 examples to train with: b"),
        (summary(), (1, 4), "2 classes have fewer than 5 examples to train with: a, b"),
    ],
)
def test_a_weak_model_is_called_weak_in_a_sentence(report, counts, sentence):
    (reason,) = reasons(report, counts=counts)
    assert sentence in reason


def test_every_reason_is_named():
    assert len(reasons(summary(accuracy=0.5, expected=0.05, train=30), counts=(2, 2))) == 4


def test_decisions_are_those_of_the_classifier(model):
    x, y = torch.randn(9, 3), torch.arange(9) % 3
    decided, alone = decide(model, [(x[:4], y[:4]), (x[4:], y[4:])]), model.decide(x)
    assert torch.equal(decided.labels, y)
    assert torch.equal(decided.predicted, alone.labels)
    torch.testing.assert_close(decided.scores, alone.unknown_score)


def test_a_report_has_the_numbers_of_known_and_novel_examples(model):
    novel = Decided(torch.tensor([0, 1]), torch.tensor([-1, 2]), torch.tensor([0, 2]), torch.tensor([9.0, 2.5]))
    report = make_report(model, DECIDED, novel, ("d", "e"), examples={"train": 3}, seconds=1.0, notes=("few",))
    assert report.accuracy == 0.5
    assert (report.novel.classes, report.novel.examples, report.novel.detected) == (("d", "e"), 2, 0.5)
    assert report.novel.auroc == auroc(DECIDED.scores, novel.scores)
    assert report.false_rejects.asked == 0.1
    assert report.matrix == ((1, 2, 0), (1, 1, 0), (0, 0, 1))
    values = json.loads(json.dumps(report.as_dict()))
    assert values["confused"][0] == {"true": "a", "predicted": "b", "examples": 2}
    assert values["notes"] == ["few"]


def test_the_matrix_of_many_classes_is_left_out(model):
    many = OpenClassifier(nn.Identity(), RadialHead(13), rejector=model.rejector)
    assert make_report(many, DECIDED, None, (), examples={}, seconds=1.0).matrix is None


def test_without_examples_for_a_report_there_are_no_numbers(model):
    report = make_report(model, None, None, (), examples={"train": 3}, seconds=1.0)
    assert (report.accuracy, report.false_rejects, report.confused) == (None, None, ())


def test_a_report_states_its_guarantee(model):
    report = make_report(model, DECIDED, None, (), examples={}, seconds=1.0)
    assert (report.guarantee, report.closed_form) == (GUARANTEES["split"], None)
    assert "at most the asked share" in GUARANTEES["split"]
    assert "without a proven bound" in GUARANTEES["cross"]
    assert "about twice that share" in GUARANTEES["cross"]
    assert report.as_dict()["guarantee"] == GUARANTEES["split"]
