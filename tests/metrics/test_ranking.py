import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from openradial.errors import ShapeError
from openradial.metrics import auroc

SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=20)


@given(known=SCORES, novel=SCORES)
def test_auroc_is_the_share_of_pairs_in_the_right_order(known, novel):
    pairs = [(n > k) + (n == k) / 2 for n in novel for k in known]
    assert auroc(known, novel) == pytest.approx(np.mean(pairs))


def test_auroc_agrees_with_scikit_learn():
    random = np.random.default_rng(0)
    known, novel = random.normal(size=500), random.normal(1, size=300).round(1)
    is_novel = np.repeat([0, 1], [500, 300])
    assert auroc(known, novel) == pytest.approx(roc_auc_score(is_novel, np.concatenate([known, novel])))


def test_infinite_scores_have_their_place():
    assert auroc([0.0, 1.0], [np.inf]) == 1.0


@pytest.mark.parametrize(
    ("known", "novel", "message"),
    [
        ([], [1.0], r"known must be a list of at least one score, got shape \(0,\)"),
        ([1.0], [[1.0]], r"novel must be a list of at least one score, got shape \(1, 1\)"),
        ([1.0], [0.0, np.nan], "novel must be numbers, got nan at place 1"),
    ],
)
def test_what_is_no_list_of_scores_is_refused(known, novel, message):
    with pytest.raises(ShapeError, match=message):
        auroc(known, novel)
