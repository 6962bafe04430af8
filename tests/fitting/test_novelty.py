import numpy as np
import pytest
import torch

from openradial import models
from openradial.conformal import Rejector
from openradial.errors import OptionError
from openradial.fitting import fit
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet, assign_folds
from openradial.fitting.novelty import (
    RATES,
    Choice,
    LeftOut,
    choose_rate,
    classes_by_round,
    expected_detection,
    macro_f1,
)
from openradial.metrics import auroc
from openradial.recipe import closed_form_recipe
from openradial.scorers import Combination

NAMES = tuple("abcdefg")


def draw(n, classes=7, spread=3.0, seed=0, d=8):
    """Rows of classes around random means, float32, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    z = rng.normal(size=(n, d)) + spread * np.eye(classes, d)[y]
    return FeatureSet(torch.from_numpy(z).float(), torch.from_numpy(y))


def fitted(known, recipe, classes=NAMES):
    """A calibrated model, and the scores of left-out classes."""
    net = models.build("features", known.z.shape[1])
    model, left_out = fit_closed_form(net, recipe, classes, known)
    return calibrate_cross(model, recipe, 0.05, known)[0], left_out


def detection(known, recipe, classes=NAMES):
    model, left_out = fitted(known, recipe, classes)
    return expected_detection(model, 0.05, left_out)


def made_scores(novel_at, n=4_000, seed=0):
    """Three positive scores and a projection, column 3; novel examples are larger in some columns."""
    rng = np.random.default_rng(seed)
    is_novel = torch.arange(n) % 2 == 1
    logs = torch.from_numpy(rng.normal(size=(n, 4)))
    for column, shift in novel_at.items():
        logs[is_novel, column] += shift
    labels = torch.arange(n) % 7
    return LeftOut(logs[:, :3].exp(), labels, is_novel, logs[:, 3].exp(), labels)


@pytest.mark.parametrize(
    ("novel_at", "score", "weights"),
    [
        ({0: 1.0, 1: 2.0}, "distance", (1.0, 2.0, 0.0)),
        ({0: 1.5, 2: 1.5}, "distance", (1.0, 0.0, 1.0)),
        ({3: 2.0, 1: 1.0}, "projection", (2.0, 1.0, 0.0)),
    ],
)
def test_score_and_weights_are_those_that_separate_left_out_classes_best(novel_at, score, weights):
    choice = made_scores(novel_at).choose("distance", (1.0, 1.0, 1.0))
    assert (choice.score, choice.weights) == (score, weights)


def test_other_weights_than_the_default_must_be_clearly_better():
    assert made_scores({0: 1.5, 2: 1.5}).choose("distance", (1.0, 0.0, 1.1))[:2] == ("distance", (1.0, 0.0, 1.1))


def test_the_default_score_stays_unless_the_other_is_clearly_better():
    weights = (1.0, 0.0, 1.0)
    assert made_scores({2: 3.0}).choose("projection", weights).score == "projection"
    assert made_scores({0: 3.0, 2: 1.0}).choose("projection", weights).score == "distance"


def test_the_distance_to_the_data_always_counts():
    for novel_at in ({0: 3.0}, {3: 3.0}):
        assert any(made_scores(novel_at).choose("distance", (1.0, 0.0, 1.0)).weights[1:])


def test_zeros_and_constants_do_not_break_the_choice():
    left_out = made_scores({0: 3.0})
    left_out.scores[:5, 2] = 0.0
    left_out.scores[:, 1] = 0.0
    assert left_out.choose("distance", (1.0, 0.0, 1.0))[:2] == (
        "distance",
        (1.0, 0.0, 1.0),
    )  # a column without a value above 0
    left_out.scores[:, 1] = 2.0
    assert left_out.choose("distance", (1.0, 1.0, 1.0)).auroc > 0.9


def test_the_chosen_scores_are_selected():
    left_out = made_scores({})
    selected = left_out.select(Choice("projection", (1.0, 0.0, 2.0), 0.5))
    assert torch.equal(selected.scores, torch.stack([left_out.projections, left_out.scores[:, 2]], 1))


def test_a_score_without_weight_is_not_part_of_the_model():
    known = draw(350, spread=6.0)
    model, left_out = fitted(known, closed_form_recipe("table", 350, random_features=60))
    weights = model.combination.settings()["weights"]
    assert left_out.scores.shape[1] == len(model.layers) == len(weights)
    assert min(weights) > 0


@pytest.mark.parametrize("kind", ["table", "points"])
def test_left_out_classes_are_scored_by_a_classifier_fitted_without_them(kind):
    recipe, known = closed_form_recipe(kind, 210, random_features=40), draw(210)
    model, left_out = fitted(known, recipe)
    estimate = expected_detection(model, 0.05, left_out)
    folds, usual, novel, labels = assign_folds(known.y), [], [], []
    for fold, classes in enumerate(classes_by_round(known.y, 7, 5)):
        left = torch.isin(known.y, classes)
        kept = ~left & (folds != fold)
        # a new head that does not know these classes, with the choices that were made once from all data
        present, y = torch.unique(known.y[kept], return_inverse=True)
        head = recipe.make_closed_form_head([NAMES[k] for k in present], 8)
        head.features, head._kept_alpha, head.score = model.head.features, model.head.fitted_alpha, model.head.score
        head.partial_fit(known.z[kept], y)
        others = [type(each)(**each.settings()).fit(known.z[kept], y) for each in list(model.scorers)[1:]]

        def score(rows, scorers=(head, *others)):
            return torch.stack([each.unknown_score(known.z[rows]).double() for each in scorers], 1)

        usual.append(score(~left & (folds == fold)))
        novel.append(score(left))
        labels.append(known.y[left])
    merge = Combination(**model.combination.settings()).fit(torch.cat(usual))
    usual, novel, labels = (
        merge.unknown_score(torch.cat(usual)),
        merge.unknown_score(torch.cat(novel)),
        torch.cat(labels),
    )
    rejected = Rejector(0.05).fit(usual).rejects(novel)
    assert estimate.examples == len(novel)
    assert estimate.auroc == pytest.approx(auroc(usual, novel), abs=1e-4)
    assert estimate.detected == pytest.approx(float(rejected.double().mean()), abs=2 / len(novel))
    for k in labels.unique().tolist():
        share = float(rejected[labels == k].double().mean())
        assert estimate.by_class[NAMES[k]] == pytest.approx(share, abs=1 / 30 + 1e-9)


def test_the_estimate_is_near_the_detection_of_classes_that_are_really_novel():
    differences = []
    for seed in range(6):
        data = draw(560, classes=8, spread=3.5, seed=seed)
        is_known = data.y < 7
        recipe = closed_form_recipe("table", 490, random_features=100)
        known = FeatureSet(data.z[is_known], data.y[is_known])
        model, left_out = fitted(known, recipe)
        real = float((model.decide(data.z[~is_known]).labels < 0).double().mean())
        differences.append(expected_detection(model, 0.05, left_out).detected - real)
    # 70 novel examples scatter by 6 %, thresholds by about as much: two standard errors of the mean of six
    assert np.mean(differences) == pytest.approx(0, abs=0.08)


def test_separate_classes_are_detected_and_noise_is_not():
    recipe = closed_form_recipe("table", 350, random_features=100)
    good, bad = (draw(350, spread=spread) for spread in (9.0, 0.0))
    assert detection(good, recipe).detected > 0.9
    useless = detection(bad, recipe)
    assert useless.detected < 0.12
    assert useless.auroc == pytest.approx(0.5, abs=0.06)


def test_the_model_is_not_changed():
    recipe, known = closed_form_recipe("table", 210, random_features=40), draw(210)
    model, left_out = fitted(known, recipe)
    before = model.decide(known.z)
    expected_detection(model, 0.05, left_out)
    after = model.decide(known.z)
    assert torch.equal(before.unknown_score, after.unknown_score)
    assert torch.equal(before.labels, after.labels)


def test_the_score_of_the_head_alone_is_used_where_the_model_uses_it():
    recipe = closed_form_recipe("table", 210, random_features=40, layers=())
    known = draw(210, spread=6.0)
    assert detection(known, recipe).detected > 0.5


def test_there_is_no_estimate_for_few_classes_or_examples():
    recipe, known = closed_form_recipe("table", 200, random_features=20), draw(200, classes=5)
    assert detection(known, recipe, NAMES[:5]) is None
    few = draw(28)
    assert detection(few, recipe) is None


@pytest.mark.parametrize(
    ("counts", "rounds", "sizes"),
    [
        ([10] * 6, 5, [1] * 5),
        ([10] * 77, 5, [15] * 5),
        ([10] * 77, 3, [15] * 3),
        ([2_000] * 10, 5, [1] * 5),  # more rows than may be left out: one class per round
        ([1_000] * 20, 5, [1] * 5),
        ([500] * 40, 5, [2] * 5),
    ],
)
def test_classes_are_left_out_in_rounds_without_repetition(counts, rounds, sizes):
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    made = classes_by_round(y, len(counts), rounds)
    assert [len(classes) for classes in made] == sizes
    assert len(torch.cat(made).unique()) == sum(sizes)
    assert not torch.equal(torch.cat(made), torch.cat(classes_by_round(y, len(counts), rounds, seed=1)))


def test_a_class_of_more_than_half_of_the_examples_is_not_left_out():
    y = torch.cat([torch.zeros(40), torch.arange(1, 6).repeat(7)]).long()
    for seed in range(5):
        assert torch.cat(classes_by_round(y, 6, seed=seed)).sort().values.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("calibration", ["cross", "split"])
def test_fit_reports_the_estimate_and_saves_it(calibration, tmp_path):
    known = draw(420, spread=8.0)
    model = fit((known.z.numpy(), known.y.numpy()), calibration=calibration, out=tmp_path / "m", baseline=False)
    expected = model.report.expected_detection
    assert expected.detected > 0.8
    assert set(expected.by_class) == set(expected.classes)
    assert model.report.as_dict()["expected_detection"]["by_class"] == expected.by_class
    saved = model.metadata["measured"]["expected_detection"]
    assert saved == {
        "classes": list(expected.classes),
        "examples": expected.examples,
        "auroc": expected.auroc,
        "detected": expected.detected,
    }
    assert "expected\\_detection" in (tmp_path / "m" / "card.md").read_text()
    assert model.report.weak == model.report.notes == ()


@pytest.mark.parametrize("column", [8, -1])
def test_inputs_that_differ_in_a_middle_layer_or_bands_alone_are_found_and_novel_classes_too(column):
    data = draw(420, spread=6.0)
    middle = torch.from_numpy(np.random.default_rng(1).normal(size=(420, 20))).float()
    known = FeatureSet(data.z, data.y, layers={"middle": middle[:, :13], "bands": middle[:, 13:]})
    recipe = closed_form_recipe("images", 420, layers=("outputs", "middle", "bands"))
    net = models.build("features", 28, num_middle=20)
    model, left_out = fit_closed_form(net, recipe, NAMES, known)
    model, _ = calibrate_cross(model, recipe, 0.05, known)
    assert model.layers[-2:] == ("middle", "bands")
    assert left_out.scores.shape[1] == len(model.layers)
    usual = torch.cat([draw(420, spread=6.0, seed=2).z, middle], 1)
    same = model.decide(usual)
    usual[:, column] = 20.0
    far = model.decide(usual)
    assert (far.labels == -1).double().mean() > 0.99
    assert (same.labels == -1).double().mean() < 0.1
    assert expected_detection(model, 0.05, left_out).auroc > 0.9


def naive_macro_f1(labels, nearest, rejected, is_novel):
    """Repeat each known row once per novel row and the other way round, so that both kinds are as many."""
    repeats = np.where(is_novel, (~is_novel).sum(), is_novel.sum())
    truth = np.repeat(np.where(is_novel, 99, labels), repeats)
    answer = np.repeat(np.where(rejected, 99, nearest), repeats)
    values = []
    for k in np.unique(truth):
        right = ((truth == k) & (answer == k)).sum()
        values.append(2 * right / ((truth == k).sum() + (answer == k).sum()))
    return np.mean(values)


def test_macro_f1_counts_unknown_as_a_class_and_novel_rows_as_much_as_known_ones():
    rng = np.random.default_rng(0)
    labels, nearest = rng.integers(0, 5, 60), rng.integers(0, 5, 60)
    nearest[:40] = labels[:40]
    is_novel, rejected = np.isin(labels, [0, 3]), rng.random(60) < 0.4
    parts = (labels, nearest, rejected, is_novel)
    assert macro_f1(*map(torch.from_numpy, parts)) == pytest.approx(naive_macro_f1(*parts), rel=1e-12)


@pytest.mark.parametrize(("spread", "least", "most"), [(12.0, 0.01, 0.02), (4.0, 0.05, 0.2)])
def test_the_rate_is_low_where_novel_classes_are_apart_and_higher_where_they_are_not(spread, least, most):
    known = draw(1_400, spread=spread)
    recipe = closed_form_recipe("table", 1_400, random_features=100)
    model, left_out = fit_closed_form(models.build("features", 8), recipe, NAMES, known)
    rate, note = choose_rate(model, left_out, 1_400)
    assert least <= rate <= most
    assert note.startswith(
        f"a false-reject rate of {100 * rate:g} % is chosen by the macro-F1 of left-out known classes"
    )
    assert choose_rate(model, left_out, 1_400) == (rate, note)


def test_rates_that_have_too_few_examples_are_not_tried():
    left_out = made_scores({0: 1.0})
    model = fitted(draw(210), closed_form_recipe("table", 210, random_features=40, layers=()))[0]
    assert "1 % " not in choose_rate(model, left_out, 30)[1].replace("0.1 % ", "")
    with pytest.raises(OptionError, match="has too few examples, 3, to choose from; give a number"):
        choose_rate(model, left_out, 3)


@pytest.mark.parametrize("calibration", ["cross", "split"])
def test_fit_chooses_the_rate_and_says_why(calibration, tmp_path):
    known = draw(700, spread=5.0)
    options = {"false_reject_rate": "auto", "calibration": calibration, "baseline": False}
    model = fit((known.z.numpy(), known.y.numpy()), out=tmp_path / "m", **options)
    rate = model.rejector.false_reject_rate
    assert rate in RATES
    assert f"a false-reject rate of {100 * rate:g} % is chosen" in " ".join(model.report.notes)
    assert model.metadata["measured"]["false_reject_rate"]["asked"] == rate


def test_the_rate_cannot_be_chosen_from_few_classes_or_for_a_network_that_is_trained():
    known = draw(200, classes=5)
    rows = known.z.numpy(), known.y.numpy()
    with pytest.raises(OptionError, match=r"it needs 6 known classes, and time for that; give a number, such as 0.05"):
        fit(rows, false_reject_rate="auto", method="closed-form")
    for options in ({"method": "gradient"}, {"epochs": 1}):
        with pytest.raises(OptionError, match=r"false_reject_rate='auto' is for closed form.*; give a number"):
            fit(rows, false_reject_rate="auto", **options)
    with pytest.raises(OptionError, match="false_reject_rate must be a number above 0 and below 1, got 'most'"):
        fit(rows, false_reject_rate="most")
