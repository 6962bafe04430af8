"""Missing values, sparse matrices and weights of rows."""

import re

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import make_blobs

from openradial import load
from openradial.errors import DataError, OptionError
from openradial.estimator import RadialClassifier, rows
from openradial.estimator.rows import complete

METHODS = [
    {"hidden": (16,), "max_epochs": 10, "learning_rate": 1e-2, "random_state": 0},
    {"method": "closed-form", "random_state": 0},
]
X, Y = make_blobs(150, n_features=4, centers=3, random_state=0)
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)


@pytest.fixture(params=METHODS, ids=["gradient", "closed-form"])
def options(request):
    return request.param


@pytest.mark.parametrize("standardise", [True, False])
def test_missing_values_are_the_means_of_the_columns_at_fit(options, standardise):
    estimator = RadialClassifier(**options, standardise=standardise).fit(GAPS, Y)
    means = np.array([column[~np.isnan(column)].mean() for column in GAPS.T])
    np.testing.assert_allclose(estimator.means_, means, rtol=1e-12)
    filled = np.where(np.isnan(GAPS), means, GAPS)
    same = RadialClassifier(**options, standardise=standardise).fit(filled, Y)
    np.testing.assert_allclose(estimator.predict_proba(filled), same.predict_proba(filled), atol=1e-9)
    np.testing.assert_allclose(estimator.predict_proba(GAPS), estimator.predict_proba(filled), rtol=1e-9)  # naive means
    assert (estimator.predict(GAPS) == Y).mean() > 0.8


def test_a_bundle_and_partial_fit_keep_the_means(options, tmp_path):
    estimator = RadialClassifier(**options).fit(GAPS, Y)
    path = estimator.to_bundle(tmp_path / "m")
    names = [f"x{i}" for i in range(4)]
    raw = [{name: float(value) for name, value in zip(names, row, strict=True)} for row in GAPS[:20]]
    again = RadialClassifier.from_bundle(path)
    np.testing.assert_array_equal(again.means_, estimator.means_)
    expected = estimator.predict(GAPS[:20]).tolist()
    assert again.predict(GAPS[:20]).tolist() == expected
    assert [int(each.nearest) for each in load(path).predict(raw)] == expected
    means = estimator.means_.copy()
    np.testing.assert_array_equal(estimator.partial_fit(GAPS[:50] + 1, Y[:50]).means_, means)


def test_a_column_of_nan_alone_is_refused():
    with pytest.raises(DataError, match=r"^column 1 has no values, only NaN; remove it$"):
        RadialClassifier().fit([[1.0, np.nan], [2.0, np.nan]], [0, 1])
    estimator = RadialClassifier(method="closed-form").fit(X, Y)
    assert len(estimator.predict([[np.nan] * 4])) == 1  # at prediction it is the mean


def test_infinite_numbers_are_refused():
    with pytest.raises(ValueError, match="infinity"):
        RadialClassifier().fit(np.where(np.isnan(GAPS), np.inf, GAPS), Y)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_matrices_become_dense(options, kind):
    expected = RadialClassifier(**options).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(RadialClassifier(**options).fit(kind(X), Y).predict_proba(kind(X)), expected)


def test_a_sparse_matrix_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(rows, "MOST_NUMBERS", 500)
    message = "a sparse matrix becomes dense, and 150 x 4 numbers are more than 500; reduce its columns first"
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        RadialClassifier().fit(sparse.csr_array(X), Y)
    assert complete(X, None)[0] is X  # dense rows are not limited


CLOSED = {"method": "closed-form", "random_state": 0}


def test_a_weight_of_0_leaves_a_row_out():
    weights = np.where(np.arange(150) % 5 == 0, 0.0, 2.0)
    kept, groups = weights > 0, np.arange(150) // 2
    weighted = RadialClassifier(**CLOSED).fit(X, Y, weights, groups=groups)
    fewer = RadialClassifier(**CLOSED).fit(X[kept], Y[kept], groups=groups[kept])
    np.testing.assert_allclose(weighted.unknown_score(X), fewer.unknown_score(X), rtol=1e-6)  # weights of 2 are of 1
    np.testing.assert_array_equal(weighted.predict(X), fewer.predict(X))


@pytest.mark.parametrize("calibration", ["split", "cross"])
def test_rows_count_as_much_as_their_weights_say(calibration):
    random = np.random.default_rng(0)
    rows, y, fresh = random.normal(size=(400, 2)), np.arange(400) % 2, random.normal(size=(2000, 2))
    weights = np.where(y == 1, 9.0, 1.0) * random.uniform(0.5, 1.5, 400)
    classifier = RadialClassifier(**CLOSED, random_features=0, calibration=calibration)
    shares = [(classifier.fit(rows, y, w).predict(fresh) == 1).mean() for w in (None, weights)]
    assert shares[1] > shares[0] + 0.3


def test_parts_with_weights_add_up():
    weights = np.random.default_rng(0).uniform(0.5, 2, 150)
    options = CLOSED | {"random_features": 0, "standardise": False, "false_reject_rate": None}
    parts = RadialClassifier(**options).partial_fit(X[:70], Y[:70], [0, 1, 2], weights[:70])
    parts.partial_fit(X[70:], Y[70:], sample_weight=weights[70:])
    head = parts.head_
    same = type(head)(head.classes, 4, head.layer.beta).partial_fit(*map(torch.tensor, (X, Y, weights)))
    np.testing.assert_allclose(parts.decision_function(X), same.log_probs(torch.tensor(X)), rtol=1e-4, atol=1e-5)


def test_weights_are_refused_with_a_network_or_without_a_positive_one():
    with pytest.raises(OptionError, match=r"^sample_weight is for method='closed-form'; with method='gradient' use"):
        RadialClassifier().fit(X, Y, np.ones(150))
    with pytest.raises(ValueError, match="Sample weights must contain at least one non-zero number"):
        RadialClassifier(**CLOSED).fit(X, Y, np.zeros(150))
