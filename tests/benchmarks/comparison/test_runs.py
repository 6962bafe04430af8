import json
import statistics
from dataclasses import replace

import pytest
import torch

from benchmarks.comparison import METHODS, Comparison, LayerScore, compare
from benchmarks.comparison import runs as steps
from benchmarks.comparison.methods import DISTANCE, NEAR, RECIPE, Method, Scores, measured
from benchmarks.comparison.report import groups, markdown, summarised
from openradial import metrics
from openradial.errors import OptionError, TrainingError
from openradial.heads import RadialHead
from openradial.scorers import MahalanobisScorer, NeighbourScorer

FEW = tuple(m for m in METHODS if m.name in ("softmax: msp", "DOC", "ours: distance + neighbour"))


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setitem(steps.QUICK, "digits", 1)
    return Comparison("digits", splits=1, quick=True, methods=FEW)


def test_a_comparison_measures_every_method_and_goes_on_without_training_again(tmp_path, short, monkeypatch):
    rows = compare(short, tmp_path)
    assert [row["method"] for row in rows] == [method.name for method in FEW]
    for row in rows:
        numbers = [row["accuracy"], row["ece"], row["false_reject_rate"], *row["novel"]["other classes"].values()]
        assert all(0 <= number <= 1 for number in numbers)
    monkeypatch.setattr(steps, "trained", None)
    assert compare(short, tmp_path) == rows


def test_the_cost_of_a_network_is_known_after_a_stop_too(tmp_path, short):
    (softmax, *_) = compare(short, tmp_path)
    (tmp_path / "digits-split0.json").unlink()  # stopped between training and measuring
    (again, *_) = compare(short, tmp_path)
    assert 0 < softmax["training_seconds"] <= again["training_seconds"]


def test_a_folder_that_holds_another_comparison_is_not_overwritten(tmp_path, short):
    (tmp_path / "digits-split0.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"digits-split0.json is not the result of a run .*; delete it"):
        compare(short, tmp_path)
    (tmp_path / "digits-split0.json").write_text(json.dumps({"run": {"job": {}}, "rows": []}))
    with pytest.raises(TrainingError, match="was made with other settings; set them back"):
        compare(short, tmp_path)


def test_choosing_runs_on_left_out_classes_alone(short):
    keys = [key for key, *_ in replace(short, choosing=True).protocols()]
    assert keys == ["digits-leftout0"]
    assert [key for key, *_ in Comparison("mnist", splits=1, choosing=True).protocols()] == ["mnist-leftout0"]


def test_a_comparison_of_nothing_is_refused():
    with pytest.raises(OptionError, match="there is nothing to compare on"):
        Comparison("digits", splits=0)
    with pytest.raises(OptionError, match="data must be one of"):
        Comparison("letters")


def made_sets(n=120):
    torch.manual_seed(0)
    y = torch.arange(n) % 3
    o = torch.nn.functional.one_hot(y, 3) + 0.2 * torch.randn(n, 3)
    names = ("train", "fit", "calibration", "test")
    sets = {name: {"outputs": o[i::4], "fully connected": o[i::4] * 2} for i, name in enumerate(names)}
    sets["far"] = {"outputs": torch.randn(20, 3) + 3, "fully connected": torch.randn(20, 3) + 3}
    return sets, {name: y[i::4] for i, name in enumerate(names)}


def test_scorers_learn_from_training_data_alone():
    seen = []

    class Watching(NeighbourScorer):
        def fit(self, z, y=None):
            seen.append(z)
            return super().fit(z, y)

    sets, labels = made_sets()
    scores = Scores(sets, labels, 3)
    part = LayerScore("watched", "fully connected", lambda _: Watching(k=2))
    merged = Method("both", RECIPE, (DISTANCE, part), "standardised")
    scores.merged(merged)
    scores.merged(merged)
    assert len(seen) == 1
    assert torch.equal(seen[0], sets["train"]["fully connected"])


@pytest.mark.parametrize("name", ["softmax: Mahalanobis++", "softmax: relative Mahalanobis++"])
def test_mahalanobis_scores_of_directions_are_compared(name):
    sets, labels = made_sets()
    (method,) = [method for method in METHODS if method.name == name]
    score = Scores(sets, labels, 3).merged(method)["far"]
    scorer = MahalanobisScorer(normalise=True, relative="relative" in name)
    train, far = (sets[part]["fully connected"] for part in ("train", "far"))
    assert torch.equal(score, scorer.fit(train, labels["train"]).unknown_score(far))
    longer = {part: {layer: 9 * rows for layer, rows in layers.items()} for part, layers in sets.items()}
    torch.testing.assert_close(Scores(longer, labels, 3).merged(method)["far"], score, rtol=1e-4, atol=1e-4)


def test_the_numbers_of_a_row_are_those_of_the_metrics():
    sets, labels = made_sets()
    method = Method("distance", "radial", (DISTANCE,))
    (row,) = measured([method], RadialHead(3), Scores(sets, labels, 3), ["far"])
    head = RadialHead(3)
    known, far = (head.unknown_score(sets[name]["outputs"]).numpy() for name in ("test", "far"))
    correct = (sets["test"]["outputs"].argmax(1) == labels["test"]).numpy()
    assert row["accuracy"] == correct.mean()
    assert row["novel"]["far"]["auroc"] == metrics.auroc(known, far)
    assert row["novel"]["far"]["oscr"] == metrics.oscr(known, far, correct)
    assert row["novel"]["far"]["detected"] == 1.0


def test_a_layer_that_a_network_lacks_leaves_its_methods_out(short):
    places = {"outputs", *short.training.layers}
    assert "convolution" not in places
    assert NEAR.layer in places


def hand_made(method, protocol, seed, value):
    novel = {"far": {"auroc": value, "fpr95": 1 - value, "oscr": value / 2, "detected": value}}
    facts = {"method": method, "protocol": protocol, "seed": seed, "training_seconds": 1.0}
    return facts | {"accuracy": value, "ece": 0.1, "false_reject_rate": 0.05, "novel": novel}


def test_the_table_shows_mean_and_twice_the_deviation():
    rows = [hand_made("a", "mnist", seed, value) for seed, value in enumerate((0.9, 0.8, 0.7))]
    (entry,) = summarised(rows)
    assert entry["novel"]["far"]["auroc"] == pytest.approx([0.8, 2 * statistics.stdev([0.9, 0.8, 0.7])])
    spread = "0.8000 ± 0.2000"
    cells = [spread, spread, "0.2000 ± 0.2000", "0.4000 ± 0.1000", spread, "0.0500 ± 0.0000", "0.1000 ± 0.0000", "1"]
    assert f"| a | {' | '.join(cells)} |" in markdown(rows)


def test_the_mean_over_novel_sets_stands_before_them():
    row = hand_made("a", "mnist", 0, 0.9)
    row["novel"]["near"] = row["novel"]["far"] | {"auroc": 0.7}
    assert "| method | accuracy | mean AUROC | far: AUROC |" in markdown([row])
    assert "| a | 0.9000 | 0.8000 | 0.9000 |" in markdown([row])


def test_splits_of_classes_are_one_group_and_one_run_has_no_deviation():
    rows = [hand_made("a", "mnist", 0, 0.9), *(hand_made("a", f"mnist, split {i}", i, 0.8) for i in range(2))]
    assert {name: len(own) for name, own in groups(rows).items()} == {"mnist": 1, "mnist, splits of classes": 2}
    assert "| a | 0.9000 | 0.9000 | 0.1000 |" in markdown(rows)
