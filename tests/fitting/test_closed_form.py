import json

import numpy as np
import pytest
import torch

from openradial import models
from openradial.bundle import describe, load
from openradial.conformal import Rejector
from openradial.data.examples import Examples
from openradial.data.sources import DataSource
from openradial.errors import OptionError
from openradial.evaluation.html_report import render_report
from openradial.export import OnnxModel
from openradial.fitting import FitOptions, fit, prepare
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet, assign_folds, cross_fit
from openradial.fitting.report import GUARANTEES
from openradial.heads import ClosedFormRadialHead
from openradial.recipe import closed_form_recipe
from openradial.scorers import MahalanobisScorer, NeighbourScorer
from tests.fitting.fit_data import write_table

NAMES = ("a", "b", "c")
RECIPE = closed_form_recipe("table", 200, random_features=40)


def draw(n, seed, d=4):
    """Rows of three overlapping classes, float32, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    z = rng.normal(size=(n, d)) + 2.5 * np.eye(3, d)[y]
    return torch.from_numpy(z).float(), torch.from_numpy(y)


def fitted(known, recipe=RECIPE, rate=0.05, seed=0):
    net = models.build("features", known.z.shape[1])
    return calibrate_cross(fit_closed_form(net, recipe, NAMES, known, seed)[0], recipe, rate, known, seed)


def rows_and_labels(n=180, seed=0):
    z, y = draw(n, seed)
    return z.numpy(), np.array(NAMES)[y.numpy()]


@pytest.mark.parametrize("kind", ["table", "points"])
@pytest.mark.parametrize("copies", [1, 2])
def test_new_known_inputs_are_rejected_at_the_asked_rate(kind, copies):
    recipe = closed_form_recipe(kind, 199, random_features=30)
    rejected, out_of_fold, splits = [], [], 24
    for seed in range(splits):
        z, y = draw(199, seed)  # of 199 scores, 10 / 200 lie beyond the threshold
        known = FeatureSet(z.repeat(copies, 1), y.repeat(copies), torch.arange(199).repeat(copies))
        model, decided = fitted(known, recipe, seed=seed)
        rejected.append(float((model.decide(draw(400, 1000 + seed)[0]).labels < 0).double().mean()))
        out_of_fold.append(float((decided.predicted < 0).double().mean()))
    # a threshold of 199 scores scatters by 1.5 %, 400 new inputs by 1.1 %: three standard errors of the mean
    tolerance = 3 * np.hypot(0.015, 0.011) / splits**0.5
    assert np.mean(rejected) == pytest.approx(0.05, abs=tolerance)
    assert np.mean(out_of_fold) == pytest.approx(0.05, abs=tolerance)


def test_thresholds_combination_and_decisions_are_those_of_out_of_fold_scores():
    z, y = draw(120, 0)
    known = FeatureSet(z, y)
    model, decided = fitted(known)
    scorers = model.layer_scorers()[1:]
    assert [type(each) for _, each in scorers] == [NeighbourScorer]
    result = cross_fit(model.head, scorers, known, assign_folds(y), RECIPE.outliers)
    scores = model.combination.unknown_score(result.scores)
    torch.testing.assert_close(decided.scores, scores)
    assert model.rejector.threshold(0.05) == Rejector(0.05).fit(scores).threshold(0.05)
    for fold in range(10):
        here = result.folds == fold
        naive = Rejector(0.05).fit(scores[~here]).decide(scores[here], result.nearest[here])
        assert torch.equal(decided.predicted[here], naive)
    assert torch.equal(decided.nearest, result.nearest)
    assert torch.equal(decided.labels, y)


def test_all_examples_train_the_head_and_are_neighbours():
    z, y = draw(120, 0)
    model, _ = fitted(FeatureSet(z, y))
    assert int(model.head.counts.sum()) == 120
    assert len(model.scorers[1].references) == 120


def test_other_features_have_a_mahalanobis_score():
    z, y = draw(120, 0, d=64)
    model, _ = fitted(FeatureSet(z, y), closed_form_recipe("points", 120))
    assert [type(each) for each in model.scorers] == [ClosedFormRadialHead, MahalanobisScorer]
    assert model.combination is not None
    assert (model.decide(draw(100, 1, d=64)[0] - 8).labels < 0).double().mean() > 0.8


@pytest.mark.parametrize(("d", "directions"), [(8, False), (64, True)])
def test_few_columns_are_not_taken_for_an_embedding(d, directions):
    z, y = draw(120, 0, d=d)
    model = fit((z, y), method="closed-form", baseline=False)
    assert model.metadata["recipe"]["cosine"] is directions


def test_beta_is_given_or_calibrated_on_known_examples_and_outliers():
    known = FeatureSet(*draw(120, 0))
    assert fitted(known, closed_form_recipe("table", 120, random_features=40, beta=3.0))[0].head.layer.beta == 3.0
    assert fitted(known)[0].head.layer.beta != pytest.approx(3.0)


@pytest.mark.parametrize(("n", "copies", "rate"), [(20, 1, 0.05), (20, 5, 0.05), (9, 1, 0.1)])
def test_a_rate_that_needs_more_different_examples_names_one_that_does_not(n, copies, rate):
    z, y = draw(n, 0)
    known = FeatureSet(z.repeat(copies, 1), y.repeat(copies), torch.arange(n).repeat(copies))
    with pytest.raises(
        OptionError, match=rf"a false-reject rate of {rate} takes .* and of {n} different known"
    ) as error:
        fitted(known, rate=rate)
    lowest = float(str(error.value).split("at least ")[1].split(",")[0])
    assert fitted(known, rate=lowest)[0].rejector.false_reject_rate == lowest


def test_the_report_of_arrays_is_out_of_fold_and_states_the_guarantee():
    model = fit(rows_and_labels())
    report = model.report
    assert report.guarantee == GUARANTEES["cross"]
    assert report.false_rejects.examples == 180
    assert dict(report.examples) == {"train": 180}
    assert 0.75 < report.accuracy < 0.99
    head = model.head
    assert report.closed_form["alpha"] == head.fitted_alpha
    assert (report.closed_form["random_features"], report.closed_form["width"]) == (500, float(head.features.width))
    training = model.metadata["training"]
    assert (training["method"], training["alpha"], training["class_weight"]) == ("closed-form", head.fitted_alpha, None)
    assert model.metadata["measured"]["guarantee"] == GUARANTEES["cross"]
    assert json.dumps(report.as_dict())


def test_the_same_seed_gives_the_same_model():
    data = rows_and_labels()
    first, again, other = (fit(data, seed=seed, random_features=20) for seed in (0, 0, 1))
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)


def test_a_held_out_part_can_calibrate_instead():
    model = fit(rows_and_labels(400), calibration="split")
    assert model.report.guarantee == GUARANTEES["split"]
    assert model.report.examples["calibration"] == model.report.examples["report"] == 60
    assert int(model.head.counts.sum()) == model.report.examples["train"] == pytest.approx(220, abs=2)
    assert model.report.false_rejects.examples == 60
    assert model.combination is not None
    few = fit(rows_and_labels(60), calibration="split")
    assert few.combination is None
    assert (
        few.report.notes[0]
        == few.report.weak[0]
        == "19 examples set the threshold; a rate of 5 % is reliable with 57 or more"
    )
    assert "the score of the head alone decides" in few.report.notes[1]


def test_test_data_are_used_for_the_report():
    train, test = (Examples(*draw(n, seed), NAMES) for n, seed in ((150, 0), (90, 1)))
    model = fit(DataSource("rows", "points", train, test), method="closed-form")
    assert model.report.false_rejects.examples == 90
    assert model.report.guarantee == GUARANTEES["cross"]
    assert model.report.accuracy == pytest.approx(
        float((model.decide(test.inputs).nearest == test.labels).float().mean())
    )


def test_novel_classes_words_and_gaps(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=240)
    model = fit(path, label="kind", novel="c2")
    assert model.classes == ("c0", "c1")
    assert model.report.accuracy == 1.0
    assert (model.report.novel.classes, model.report.novel.examples) == (("c2",), 80)
    assert model.report.novel.auroc > 0.99
    rows = [{"length": 0.1, "width": 5.0, "colour": "red"}, {"length": 0.1, "width": None, "colour": "mauve"}]
    assert model.predict(rows[:1]).nearest.tolist() == [0]
    assert np.isfinite(model.predict(rows).unknown_score).all()


def test_a_class_with_one_example_a_constant_column_and_two_classes():
    z, y = rows_and_labels(150)
    z = np.concatenate([z, np.full((150, 1), 7.0)], 1)
    names = np.where(y == "c", "b", y).astype(object)
    names[0] = "rare"
    model = fit((z, names))
    assert model.classes == ("a", "b", "rare")
    assert model.report.notes == model.report.weak == ("1 class has fewer than 5 examples to train with: rare",)
    assert model.report.matrix[2][2] == 0  # without its fold it has never been seen
    two = fit((z[1:], names[1:]), random_features=0)
    assert two.classes == ("a", "b")
    assert two.report.accuracy > 0.8
    assert two.report.closed_form["width"] is None


def test_very_few_examples_are_decided_by_the_head_alone():
    model = fit(rows_and_labels(18), false_reject_rate=0.2)
    assert model.layers == ()
    assert "the score of the head alone decides" in " ".join(model.report.notes)
    with pytest.raises(OptionError, match=r"a false-reject rate of 0\.05 takes 19 examples .* or add examples"):
        fit(rows_and_labels(18))


@pytest.mark.parametrize("class_weight", ["balanced", "sqrt", "auto"])
def test_class_weights_and_what_was_chosen_are_in_the_report(class_weight):
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.06).astype(int)
    z = rng.normal(size=(400, 3)) + 1.3 * y[:, None]
    model = fit((z, y), class_weight=class_weight, random_features=0)
    used = "balanced" if class_weight == "auto" else class_weight
    assert model.report.closed_form["class_weight"] == used
    assert model.metadata["recipe"]["class_weight"] == class_weight
    assert model.metadata["training"]["class_weight"] == used
    plain = fit((z, y), random_features=0)
    assert plain.report.closed_form["class_weight"] is None
    assert model.report.matrix[1][1] > plain.report.matrix[1][1]  # the rare class is found more often


def test_a_model_is_saved_loaded_evaluated_exported_and_described(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=240)
    model = fit(path, label="kind", novel="c2", out=tmp_path / "model", class_weight="auto")
    loaded = load(tmp_path / "model")
    rows = [{"length": 0.1, "width": 5.0, "colour": "red"}, {"length": 90.0, "width": 9.0, "colour": "green"}]
    assert loaded.predict(rows).names == model.predict(rows).names == ["c0", "unknown"]
    x = prepare(FitOptions(str(path), label="kind", novel="c2")).train.inputs
    assert torch.equal(loaded.decide(x).unknown_score, model.decide(x).unknown_score)
    assert loaded.metadata == model.metadata
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "t.csv"]
    loaded.head.partial_fit(x[:2], torch.tensor([0, 1]))  # the sums are in the bundle
    assert int(loaded.head.counts.sum()) == 162

    evaluation = model.evaluate(path, path, label="kind")
    assert evaluation.accuracy.value > 0.99
    assert evaluation.novel_metrics[0].detected > 0.9
    model.export(tmp_path / "model.onnx")
    assert OnnxModel(tmp_path / "model.onnx").predict(rows).names == model.predict(rows).names

    card = (tmp_path / "model" / "card.md").read_text()
    assert "method: closed-form" in card
    assert "score of the head, NeighbourScorer(" in card  # both read one layer
    assert GUARANTEES["cross"] in card
    assert describe(tmp_path / "model").metadata["measured"]["guarantee"] == GUARANTEES["cross"]
    page = render_report(evaluation, model)
    assert "closed-form head on 4 features" in page
    assert GUARANTEES["cross"] in page


def test_a_useless_model_is_called_weak_and_a_good_one_is_not():
    random = np.random.default_rng(0)
    y = np.arange(420) % 7
    noise = random.normal(size=(420, 6))
    weak, good = fit((noise, y)), fit((noise + 8 * np.eye(7, 6)[y], y))
    assert ["accuracy" in each for each in weak.report.weak] == [True, False]
    assert "of left-out classes are called unknown, against 5 % of known ones" in weak.report.weak[1]
    assert weak.report.notes[:2] == weak.report.weak
    assert weak.metadata["measured"]["weak"] == list(weak.report.weak)
    assert (good.report.weak, good.report.notes) == ((), ())
    assert good.report.accuracy > good.report.baseline.accuracy - 0.05
