import re

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf
from sklearn.covariance import oas as sklearn_oas

from openradial.errors import DTypeError, OptionError, ShapeError, TargetError
from openradial.scorers import ClassStatistics, MahalanobisScorer
from tests.scorers.feature_data import data


def naive_mahalanobis(z, y, x, share, relative, normalise=False):
    """The definitions of Lee et al., Ren et al. and Mueller and Hein, one row and class at a time."""
    z, y, x = np.asarray(z), np.asarray(y), np.asarray(x)
    if normalise:
        z, x = (np.stack([row / (np.sqrt(sum(row**2)) or 1.0) for row in rows]) for rows in (z, x))
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


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mahalanobis_equals_the_definition(share, relative, normalise):
    z, y, x = data()
    z[3] = x[2] = 0.0
    model = MahalanobisScorer(relative=relative, normalise=normalise, shrinkage=share)
    expected = naive_mahalanobis(z, y, x, share, relative, normalise)
    np.testing.assert_allclose(model.fit(z, y).unknown_score(x), expected, rtol=1e-9, atol=1e-9)
    rows = torch.nn.functional.normalize(z, dim=1) if normalise else z
    model.fit_statistics(ClassStatistics.of(rows, y, 5))  # two classes without examples
    np.testing.assert_allclose(model.unknown_score(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(200, 4), (20, 30)])
@pytest.mark.parametrize("shrinkage", ["ledoit-wolf", "oas"])
def test_the_covariance_is_shrunk_as_scikit_learn_does(shrinkage, n, d):
    z, y, x = data(n=n, d=d)
    means = torch.stack([z[y == label].mean(0) for label in range(3)])
    estimate = {"ledoit-wolf": sklearn_ledoit_wolf, "oas": sklearn_oas}[shrinkage]
    share = estimate((z - means[y]).numpy(), assume_centered=True)[1]
    assert 0 < share < 1
    model = MahalanobisScorer(shrinkage=shrinkage).fit(z, y)
    expected = naive_mahalanobis(z, y, x, share, False)
    np.testing.assert_allclose(model.unknown_score(x), expected, rtol=1e-9)
    if shrinkage == "oas":
        model.fit_statistics(ClassStatistics.of(z, y, 3))
        np.testing.assert_allclose(model.unknown_score(x), expected, rtol=1e-9)


def test_one_feature_is_shrunk_to_itself():
    z, y, x = data(d=1)
    expected = MahalanobisScorer(shrinkage=0.0).fit(z, y).unknown_score(x)
    torch.testing.assert_close(MahalanobisScorer(shrinkage="oas").fit(z, y).unknown_score(x), expected)


def test_only_directions_count_after_normalising():
    z, y, x = data()
    model = MahalanobisScorer(normalise=True).fit(z, y)
    expected = model.unknown_score(x)
    for factor in (1e-300, 1e-3, 1e300):
        torch.testing.assert_close(model.unknown_score(factor * x), expected, rtol=1e-9, atol=1e-9)
    lengths = torch.logspace(-3, 3, len(z), dtype=torch.float64).unsqueeze(1)
    refitted = MahalanobisScorer(normalise=True).fit(lengths * z, y)
    torch.testing.assert_close(refitted.unknown_score(x), expected, rtol=1e-9, atol=1e-9)
    zero = model.unknown_score(torch.zeros(1, 3))
    assert zero.isfinite().all()


def test_statistics_of_parts_fit_the_same_model():
    z, y, x = data()
    z, x = z + 100, x + 100
    expected = MahalanobisScorer(relative=True, shrinkage="oas").fit(z, y)
    parts = [ClassStatistics.of(z[at::3], y[at::3], 3) for at in range(3)]
    model = MahalanobisScorer(relative=True, shrinkage="oas").fit_statistics(parts[2] + parts[0] + parts[1])
    torch.testing.assert_close(model.unknown_score(x), expected.unknown_score(x), rtol=1e-9, atol=1e-9)
    assert model.settings() == {"relative": True, "normalise": False, "shrinkage": "oas"}


def test_statistics_that_cannot_be_used_are_refused():
    z, y, _ = data()
    some = ClassStatistics.of(z, y, 3)
    message = "shrinkage='ledoit-wolf' needs features, got statistics; take 'oas' or a number"
    with pytest.raises(OptionError, match=f"^{message}$"):
        MahalanobisScorer().fit_statistics(some)
    model = MahalanobisScorer(shrinkage="oas", relative=True)
    with pytest.raises(ShapeError, match=r"^statistics must hold at least one example to learn from, got none$"):
        model.fit_statistics(some - some)
    with pytest.raises(OptionError, match=r"^a relative distance needs two classes, got one"):
        model.fit_statistics(ClassStatistics.of(z, 0 * y, 3))
    with pytest.raises(OptionError, match=r"^the covariance of the features is singular with shrinkage='oas'"):
        model.fit_statistics(ClassStatistics.of(z[:5] + 0.1, torch.arange(5), 5))
    assert not model.is_fitted


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
    message = f"shrinkage must be 'ledoit-wolf', 'oas' or a number from 0 to 1, got {shrinkage!r}"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        MahalanobisScorer(shrinkage=shrinkage)


@pytest.mark.parametrize(
    ("spoil", "shrinkage"),
    [
        (lambda z: torch.cat([z, z[:, :1] + z[:, 1:2]], 1), 0.0),
        (lambda z: torch.cat([z, torch.zeros(80, 1)], 1), 0.0),
        (lambda z: z[:3], 0.0),
        (lambda z: torch.ones(80, 2), "ledoit-wolf"),
        (lambda z: torch.ones(80, 2), "oas"),
    ],
    ids=["dependent", "constant", "few", "nothing varies", "nothing varies, oas"],
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
    with pytest.raises(OptionError, match=r"^a relative distance needs two classes, got one; give labels or"):
        MahalanobisScorer(relative=True).fit(z)
