import json
from dataclasses import astuple

import numpy as np
import pytest
import torch
from torch import nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.fitting.report import GUARANTEES, Decided, confused, confusion_matrix, decide, hardest, make_report
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


def test_the_hardest_classes_have_the_lowest_accuracy():
    hard = hardest(DECIDED, NAMES)
    assert [(each.name, each.examples) for each in hard] == [("a", 3), ("b", 2)]
    assert (hard[0].accuracy, hard[0].rejected) == pytest.approx((1 / 3, 1 / 3))


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
