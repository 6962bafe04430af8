import sys

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from openradial.fitting import baseline, fit
from openradial.fitting.baseline import fit_baseline
from openradial.fitting.cross import FeatureSet, assign_folds
from openradial.metrics import auroc


def draw(n, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    z = np.column_stack([rng.normal(size=(n, 4)) + 2 * np.eye(classes, 4)[y], np.full(n, 3.0)])  # one is constant
    return FeatureSet(torch.from_numpy(z * [1, 100, 1, 1, 1]).float(), torch.from_numpy(y))


def pipeline(z, y):
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(z.double().numpy(), y.numpy())


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_logistic_regression_out_of_fold(classes):
    known, novel = draw(150, classes), FeatureSet(torch.randn(40, 5) - 1, torch.zeros(40).long())
    made, notes = fit_baseline(known, novel=novel)
    folds, right, scores, unknown = assign_folds(known.y, 5), [], [], []
    for fold in range(5):
        model = pipeline(known.z[folds != fold], known.y[folds != fold])
        test = known.z[folds == fold].double().numpy()
        right += (model.predict(test) == known.y[folds == fold].numpy()).tolist()
        for rows, target in ((test, scores), (novel.z.double().numpy(), unknown)):
            logits = model.decision_function(rows)
            target += (-abs(logits) if classes == 2 else -logits.max(1)).tolist()
    assert (made.name, made.examples, notes) == ("logistic regression", 150, ())
    assert made.accuracy == pytest.approx(np.mean(right), abs=1e-9)
    assert made.auroc == pytest.approx(auroc(scores, unknown), abs=2e-3)


def test_examples_for_a_report_are_predicted_by_one_fit():
    known, report = draw(150), draw(80, seed=1)
    made, _ = fit_baseline(known, report)
    expected = pipeline(known.z, known.y).predict(report.z.double().numpy()) == report.y.numpy()
    assert (made.accuracy, made.auroc, made.examples) == (pytest.approx(expected.mean()), None, 80)


def test_of_large_data_one_fold_or_none_is_measured(monkeypatch):
    known = draw(150)
    monkeypatch.setattr(baseline, "ONE_FOLD", 150 * 5 * 3)
    assert fit_baseline(known)[0].examples == 30
    monkeypatch.setattr(baseline, "MOST", 150 * 5 * 3 - 1)
    made, notes = fit_baseline(known)
    assert made is None
    assert "would take too long" in notes[0]


def test_it_need_not_converge(monkeypatch):
    monkeypatch.setattr(baseline, "STEPS", 1)  # warnings are errors here
    assert 0 < fit_baseline(draw(150))[0].accuracy < 1
    few = FeatureSet(draw(40).z, torch.arange(40) % 30)
    assert fit_baseline(few)[0].accuracy < 0.5


def test_without_scipy_a_note_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    made, notes = fit_baseline(draw(60))
    assert made is None
    assert "pip install 'openradial[sklearn]'" in notes[0]


def test_one_class_in_a_fold_is_a_note():
    known = draw(60, classes=2)
    y = torch.zeros(60, dtype=torch.int64)
    y[7] = 1
    made, notes = fit_baseline(FeatureSet(known.z, y))
    assert made is None
    assert "needs two classes" in notes[0]


def test_fit_reports_it_unless_it_is_left_out():
    known = draw(150)
    data = (known.z.numpy(), known.y.numpy())
    model = fit(data, random_features=30)
    assert model.report.baseline == fit_baseline_of(model, data)
    assert model.metadata["measured"]["baseline"]["accuracy"] == model.report.baseline.accuracy
    assert fit(data, random_features=30, baseline=False).report.baseline is None
    late = fit(data, random_features=30, time_limit=60)  # after the rest, not beside it
    assert late.report.baseline == model.report.baseline


def fit_baseline_of(model, data):
    z = model.preprocessing.transform(torch.from_numpy(data[0]))
    return fit_baseline(FeatureSet(z, torch.from_numpy(data[1])))[0]


@pytest.mark.parametrize("classes", [2, 3])
def test_its_logits_are_those_of_scikit_learn(classes):
    known = draw(150, classes)
    x = torch.nn.functional.normalize(known.z[:, :4], dim=0) * 12
    weights = baseline.logistic_regression(x, known.y)
    expected = LogisticRegression(max_iter=100).fit(x.double().numpy(), known.y.numpy()).decision_function(x.numpy())
    logits = (x.double() @ weights[:, :-1].T + weights[:, -1]).numpy()
    actual = logits[:, 1] - logits[:, 0] if classes == 2 else logits
    np.testing.assert_allclose(actual, expected, atol=0.02)  # the optimiser stops at a gradient of 1e-4
