import re

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf

from openradial.errors import DTypeError, OptionError, ShapeError, TargetError
from openradial.scorers import MahalanobisScorer
from tests.scorers.feature_data import data


def naive_mahalanobis(z, y, x, share, relative):
    """The definitions of Lee et al. and Ren et al., one row and class at a time."""
    z, y, x = np.asarray(z), np.asarray(y), np.asarray(x)
    means = {label: z[y == label].mean(0) for label in set(y.tolist())}

    def shrunk(deviations):
        covariance = sum(np.outer(v, v) for v in deviations) / len(deviations)
        return (1 - share) * covariance + share * np.trace(covariance) / len(covariance) * np.eye(len(covariance))

    inverse = np.linalg.inv(shrunk([row - means[label] for row, label in zip(z, y.tolist(), strict=True)]))
    overall = np.linalg.inv(shrunk([row - z.mean(0) for row in z]))
    scores = []
    for row in x:
        nearest = min((row - mean) @ inverse @ (row - mean) for mean in means.values())
        scores.append(nearest - relative * ((row - z.mean(0)) @ overall @ (row - z.mean(0))))
    return scores


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mahalanobis_equals_the_definition(share, relative):
    z, y, x = data()
    scores = MahalanobisScorer(relative=relative, shrinkage=share).fit(z, y).unknown_score(x)
    np.testing.assert_allclose(scores, naive_mahalanobis(z, y, x, share, relative), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(200, 4), (20, 30)])
def test_the_covariance_is_shrunk_as_scikit_learn_does(n, d):
    z, y, x = data(n=n, d=d)
    means = torch.stack([z[y == label].mean(0) for label in range(3)])
    share = sklearn_ledoit_wolf((z - means[y]).numpy(), assume_centered=True)[1]
    assert 0 < share < 1
    scores = MahalanobisScorer().fit(z, y).unknown_score(x)
    np.testing.assert_allclose(scores, naive_mahalanobis(z, y, x, share, False), rtol=1e-9)


def test_a_class_mean_is_at_distance_zero():
    z, y, _ = data()
    means = torch.stack([z[y == label].mean(0) for label in range(3)])
    scores = MahalanobisScorer().fit(z, y).unknown_score(means)
    torch.testing.assert_close(scores, torch.zeros(3, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("relative", [False, True])
def test_mahalanobis_does_not_depend_on_the_units_of_the_features(relative):
    z, y, x = data()
    change = torch.tensor([[1e6, 0.0, 0.0], [3.0, 1.0, 0.0], [0.0, 1e-4, 1e-5]], dtype=torch.float64)
    plain = MahalanobisScorer(relative=relative, shrinkage=0.0).fit(z, y).unknown_score(x)
    changed = MahalanobisScorer(relative=relative, shrinkage=0.0).fit(z @ change, y).unknown_score(x @ change)
    torch.testing.assert_close(changed, plain, rtol=1e-5, atol=1e-5)


def test_classes_without_examples_are_left_out_and_no_labels_are_one_class():
    z, y, x = data()
    expected = MahalanobisScorer().fit(z, y).unknown_score(x)
    assert torch.equal(MahalanobisScorer().fit(z, 5 * y + 2).unknown_score(x), expected)
    one = MahalanobisScorer().fit(z).unknown_score(x)
    assert torch.equal(MahalanobisScorer().fit(z, torch.zeros_like(y)).unknown_score(x), one)


def test_relative_distances_ignore_what_does_not_tell_classes_apart():
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(4000) % 2
    noise = torch.randn(4000, 6, generator=rng, dtype=torch.float64)
    z = noise + 20 * torch.eye(6, dtype=torch.float64)[0] * y.unsqueeze(1)
    odd = torch.tensor([[0.0, 9.0, 0.0, 0.0, 0.0, 0.0], [10.0, 0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    plain, relative = (MahalanobisScorer(relative=r).fit(z, y).unknown_score(odd) for r in (False, True))
    assert plain[0] > 70
    assert relative[0] < 10 < relative[1]


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1, "oracle", True, None])
def test_shrinkage_out_of_range_is_refused(shrinkage):
    message = f"shrinkage must be 'ledoit-wolf' or a number from 0 to 1, got {shrinkage!r}"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        MahalanobisScorer(shrinkage=shrinkage)


@pytest.mark.parametrize(
    ("spoil", "shrinkage"),
    [
        (lambda z: torch.cat([z, z[:, :1] + z[:, 1:2]], 1), 0.0),
        (lambda z: torch.cat([z, torch.zeros(80, 1)], 1), 0.0),
        (lambda z: z[:3], 0.0),
        (lambda z: torch.ones(80, 2), "ledoit-wolf"),
    ],
    ids=["dependent", "constant", "few", "nothing varies"],
)
def test_a_singular_covariance_names_the_way_out(spoil, shrinkage):
    z, y, _ = data()
    rows = spoil(z)
    message = (
        f"the covariance of the features is singular with shrinkage={shrinkage!r}; take a larger shrinkage, or "
        "features that vary"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        MahalanobisScorer(shrinkage=shrinkage).fit(rows, y[: len(rows)])


def test_shrinkage_makes_dependent_features_usable():
    z, y, x = data()
    wide = MahalanobisScorer().fit(torch.cat([z, z], 1), y)
    assert wide.unknown_score(torch.cat([x, x], 1)).isfinite().all()
    assert wide.unknown_score(torch.cat([x, -x], 1)).min() > 100


def test_labels_that_are_no_classes_are_refused():
    z, y, _ = data()
    with pytest.raises(TargetError, match=r"^labels must be classes from 0 to 1, got -1 in row 0$"):
        MahalanobisScorer().fit(z, y - 1)
    with pytest.raises(ShapeError, match=r"^labels must have the shape \(80,\), one per row, got \(79,\)$"):
        MahalanobisScorer().fit(z, y[1:])
    with pytest.raises(DTypeError, match=r"^labels must be whole numbers, got torch\.float32"):
        MahalanobisScorer().fit(z, y.float())
    with pytest.raises(DTypeError, match=r"^labels must be a torch\.Tensor, got list"):
        MahalanobisScorer().fit(z, y.tolist())
    with pytest.raises(OptionError, match=r"^a relative distance needs at least two classes, got one; give labels or"):
        MahalanobisScorer(relative=True).fit(z)
