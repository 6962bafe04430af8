import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, top_k_accuracy_score

from openradial.errors import OptionError
from openradial.metrics import accuracy, bootstrap, open_f1, top_k_accuracy
from tests.metrics.metric_oracles import f1_by_classes, open_world


def labels_and_predictions(seed, num_classes=6, rows=200):
    random = np.random.default_rng(seed)
    labels = random.integers(-1, num_classes, rows)
    return labels, np.where(random.random(rows) < 0.7, labels, random.integers(-1, num_classes, rows))


@given(case=open_world(), data=st.data())
def test_the_best_k_are_the_first_k_of_a_stable_sort(case, data):
    scores, labels, _ = case
    labels = [max(y, 0) for y in labels]
    k = data.draw(st.integers(1, len(scores[0])))
    best = [sorted(range(len(row)), key=lambda j, row=row: -row[j])[:k] for row in scores]
    assert top_k_accuracy(scores, labels, k) == np.mean([y in first for y, first in zip(labels, best, strict=True)])


@given(open_world())
def test_the_best_one_is_the_argmax(case):
    scores, labels, _ = case
    labels = [max(y, 0) for y in labels]
    assert top_k_accuracy(scores, labels) == accuracy(labels, np.argmax(scores, axis=1))


@given(open_world())
def test_open_f1_is_the_mean_over_the_classes_and_unknown(case):
    probs, labels, predictions = case
    assert open_f1(labels, predictions, len(probs[0])) == pytest.approx(
        f1_by_classes(labels, predictions, len(probs[0]))
    )


@given(open_world())
def test_open_f1_of_the_truth_is_one(case):
    probs, labels, _ = case
    assert open_f1(labels, labels, len(probs[0])) == 1


@pytest.mark.parametrize("seed", range(3))
def test_labels_are_compared_as_by_scikit_learn(seed):
    labels, predictions = labels_and_predictions(seed)
    assert accuracy(labels, predictions) == pytest.approx(accuracy_score(labels, predictions))
    assert open_f1(labels, predictions, 6) == pytest.approx(f1_score(labels, predictions, average="macro"))


@pytest.mark.parametrize("k", [1, 2, 5, 6])
@pytest.mark.filterwarnings("ignore:'k'.*will result in a perfect score")
def test_top_k_accuracy_agrees_with_scikit_learn(k):
    random = np.random.default_rng(k)
    scores, labels = random.normal(size=(200, 6)), random.integers(0, 6, 200)
    assert top_k_accuracy(scores, labels, k) == pytest.approx(
        top_k_accuracy_score(labels, scores, k=k, labels=np.arange(6))
    )


def test_impossible_classes_may_have_the_log_probability_minus_infinity():
    assert top_k_accuracy([[-np.inf, 0.0], [-np.inf, -np.inf]], [1, 0]) == 1


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (0, "k must be a whole number of at least 1, got 0"),
        (3, "k must be at most the number of classes: k=3 but 2 classes"),
    ],
)
def test_an_impossible_k_is_refused(k, message):
    with pytest.raises(OptionError, match=message):
        top_k_accuracy([[0.5, 0.5]], [0], k)


@pytest.mark.parametrize("dtype", [str, object])
@pytest.mark.parametrize("seed", range(3))
def test_names_count_as_their_numbers_do(dtype, seed):
    labels, predictions = labels_and_predictions(seed)
    names = np.array(["zebra", "cat", "dog", "emu", "fox", "gnu", "unknown"], dtype)  # -1 finds the last one
    named = names[labels], names[predictions]
    assert accuracy(*named) == accuracy(labels, predictions)
    assert open_f1(*named) == pytest.approx(open_f1(labels, predictions, 6))
    assert bootstrap(accuracy, *named, samples=20) == bootstrap(accuracy, labels, predictions, samples=20)
    assert bootstrap(open_f1, *named, samples=20) == pytest.approx(
        bootstrap(open_f1, labels, predictions, num_classes=6, samples=20)
    )


def test_the_number_of_classes_changes_no_f1():
    labels, predictions = labels_and_predictions(0)
    assert open_f1(labels, predictions) == open_f1(labels, predictions, 6) == open_f1(labels, predictions, 60)
