"""How rows are divided: nothing serves twice, and identical rows and groups stay together."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from openradial.conformal.calibration import examples_needed
from openradial.data.examples import Examples
from openradial.estimator import RadialClassifier
from openradial.estimator.rows import GroupedExamples, Seen

QUICK = {"hidden": (16,), "max_epochs": 15, "learning_rate": 1e-2, "random_state": 0, "false_reject_rate": None}
labels_of_rows = st.lists(st.integers(0, 4), min_size=1, max_size=150)


def grouped(labels, groups=None, rows=None):
    rows = np.arange(len(labels)) if rows is None else rows
    inputs = torch.as_tensor(rows).float().unsqueeze(1)
    return GroupedExamples.of(Examples(inputs, torch.as_tensor(labels), tuple("abcde")), groups)


def naive_components(rows, groups):
    """Rows that are linked by a common value or a common group, one after the other."""
    component = list(range(len(rows)))
    for i in range(len(rows)):
        for j in range(i):
            if rows[i] == rows[j] or groups[i] == groups[j]:
                old, new = component[i], component[j]
                component = [new if value == old else value for value in component]
    return component


@given(labels_of_rows, st.sampled_from([0.02, 0.05, 0.3]), st.integers(0, 99))
def test_no_held_out_row_serves_twice(labels, rate, seed):
    held_out = grouped(labels)
    for_scores, for_rejector = held_out.split_for_scores(rate, seed)
    if for_scores is None:
        assert for_rejector is held_out.examples
        return
    assert len(for_scores) >= 20
    assert len(for_rejector) >= examples_needed(rate)
    together = torch.cat([for_scores.inputs, for_rejector.inputs]).flatten().tolist()
    assert sorted(together) == list(range(len(labels)))


@given(labels_of_rows, st.integers(1, 60), st.integers(1, 60), st.integers(0, 99))
def test_a_group_is_in_one_part_only(labels, different_rows, different_groups, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(different_rows, size=len(labels))
    groups = rng.integers(different_groups, size=len(labels))
    for given_groups in (None, groups):
        known = grouped(labels, given_groups, rows)
        kept, taken = known.split(0.4, seed)
        assert len(kept.examples) + len(taken.examples) == len(labels)
        assert not set(kept.groups) & set(taken.groups)
        assert not set(kept.examples.inputs.flatten().tolist()) & set(taken.examples.inputs.flatten().tolist())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20))
def test_rows_are_joined_by_a_common_value_or_a_common_group(pairs):
    rows, groups = (list(column) for column in zip(*pairs, strict=True))
    joined = grouped([0] * len(rows), [f"patient {group}" for group in groups], rows)
    wanted = naive_components(rows, groups)
    assert [[a == b for b in joined.groups] for a in joined.groups] == [[a == b for b in wanted] for a in wanted]
    assert joined.count() == len(set(wanted))


def test_rows_of_all_parts_are_as_likely_to_be_remembered(monkeypatch):
    monkeypatch.setattr("openradial.estimator.rows.REFERENCES", 100)
    rows = torch.arange(2000.0).unsqueeze(1)
    seen = Seen.of(rows[:200], seed=0)
    for part in range(1, 10):
        seen = seen.joined(Seen.of(rows[200 * part : 200 * part + 200], seed=part))
    assert len(seen.rows) == 100
    late = int((seen.rows >= 1000).sum())
    assert 30 <= late <= 70  # half of them, 4 deviations


def test_rows_that_were_drawn_before_stand_for_those_they_were_drawn_from(monkeypatch):
    monkeypatch.setattr("openradial.estimator.rows.REFERENCES", 200)
    counts = []
    for seed in range(20):
        early, late = torch.arange(200.0)[:, None], torch.arange(200.0, 400.0)[:, None]
        both = Seen.among(early, 600).joined(Seen.of(late, seed))  # 600 rows and 200 others
        counts.append(int((both.rows < 200).sum()))
    assert np.mean(counts) == pytest.approx(150, abs=10)


def test_rows_that_come_again_do_not_displace_others(monkeypatch):
    monkeypatch.setattr("openradial.estimator.rows.REFERENCES", 40)
    rows = torch.arange(30.0).unsqueeze(1)
    seen = Seen.of(rows, seed=0)
    for seed in range(1, 5):
        seen = seen.joined(Seen.of(rows, seed))
    assert sorted(seen.rows.flatten().tolist()) == rows.flatten().tolist()


def rejected(fit_rows, fit_labels, fresh, groups=None):
    """The share of fresh known rows that is rejected, for 8 seeds; 5 % is asked for."""
    options = QUICK | {"hidden": (32,), "max_epochs": 10, "false_reject_rate": 0.05, "calibration_fraction": 0.3}
    shares = []
    for seed in range(8):
        classifier = RadialClassifier(**options | {"random_state": seed}).fit(fit_rows, fit_labels, groups=groups)
        assert classifier.classifier_.combination is not None  # neighbours count
        shares.append((classifier.predict(fresh) == -1).mean())
    return shares


def wide_tolerance(calibrated, fresh, fits):
    """3 deviations of the mean share, for 5 %: that of a fit follows a beta-binomial distribution."""
    variance = 0.05 * 0.95 * (1 / fresh + 1 / (calibrated + 2))
    return 3 * math.sqrt(variance / fits)


@pytest.fixture(scope="module")
def points():
    """Known rows in 20 dimensions, where a row that was trained on is much nearer than any other."""
    return make_blobs(1700, n_features=20, centers=4, cluster_std=6.0, random_state=0)


def test_the_rate_holds_where_every_row_comes_twice(points):
    """Copies of held-out rows among the training rows would make fresh rows look unknown."""
    X, y = points
    shares = rejected(np.repeat(X[:500], 2, 0), np.repeat(y[:500], 2), X[500:])
    # 150 different rows are held out, 100 of them for the rejector; copies may add one of them to the share
    assert np.mean(shares) == pytest.approx(0.05, abs=wide_tolerance(100, 1200, 8) + 1 / 101)


def test_the_rate_holds_for_new_groups():
    """Rows of a group lie close together: had fit separated them, held-out rows would have near neighbours."""
    rng = np.random.default_rng(0)
    X, y = make_blobs(1500, n_features=20, centers=4, cluster_std=6.0, random_state=0)
    near = X[:300].repeat(3, 0) + 0.05 * rng.normal(size=(900, 20))
    groups = np.char.add("patient ", np.repeat(np.arange(300), 3).astype(str))
    shares = rejected(near, y[:300].repeat(3), X[300:], groups)
    # 90 groups are held out, 60 of them for the rejector
    assert np.mean(shares) == pytest.approx(0.05, abs=wide_tolerance(60, 1200, 8) + 1 / 61)
    assert np.mean(rejected(near, y[:300].repeat(3), X[300:])) > 0.1


def test_identical_rows_are_not_separated_by_early_stopping(monkeypatch):
    X, y = make_blobs(60, n_features=4, centers=3, random_state=0)
    parts = []

    def fit(net, objective, known, validation, **options):
        parts.extend([known.examples, validation.examples])
        raise KeyboardInterrupt

    monkeypatch.setattr("openradial.estimator.gradient.fit", fit)
    with pytest.raises(KeyboardInterrupt):
        RadialClassifier(**QUICK, early_stopping=True).fit(np.repeat(X, 3, 0), np.repeat(y, 3))
    known, validation = ({tuple(row) for row in part.inputs.tolist()} for part in parts)
    assert len(known) + len(validation) == 60
    assert not known & validation
