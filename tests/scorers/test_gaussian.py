import re
import sys

import numpy as np
import pytest
import torch
from density_data import data, log_mixture
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf
from sklearn.mixture import GaussianMixture

from openradial.errors import DTypeError, MissingError, OptionError, ShapeError, TargetError
from openradial.heads import load_head, save_head
from openradial.scorers import GaussianMixtureDensity, MahalanobisDensity


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_a_mixture_scores_what_scikit_learn_and_the_definition_do(covariance):
    z, _, x = data(n=200)
    scores = GaussianMixtureDensity(3, covariance, seed=5).fit(z).unknown_score(x)
    oracle = GaussianMixture(3, covariance_type=covariance, random_state=5, max_iter=200).fit(z.numpy())
    np.testing.assert_allclose(scores, -oracle.score_samples(x.numpy()), rtol=1e-10)
    covariances = oracle.covariances_ if covariance == "full" else [np.diag(v) for v in oracle.covariances_]
    expected = [-log_mixture(row, oracle.weights_, oracle.means_, covariances) for row in x.numpy()]
    np.testing.assert_allclose(scores, expected, rtol=1e-10)


def test_a_loaded_mixture_scores_without_scikit_learn(tmp_path, monkeypatch):
    z, _, x = data()
    model = GaussianMixtureDensity(2).fit(z)
    save_head(model, tmp_path / "head")
    for name in ("sklearn", "sklearn.mixture"):
        monkeypatch.setitem(sys.modules, name, None)
    loaded = load_head(tmp_path / "head")
    assert torch.equal(loaded.unknown_score(x), model.unknown_score(x))
    message = (
        "fitting a GaussianMixtureDensity needs the package sklearn, which is not installed; run: pip install "
        "'openradial[sklearn]'"
    )
    with pytest.raises(MissingError, match=f"^{re.escape(message)}$"):
        loaded.fit(z)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": 0}, "components must be a whole number of at least 1, got 0"),
        ({"covariance": "tied"}, "covariance must be one of 'full', 'diag', got 'tied'"),
        ({"regularisation": 0.0}, "regularisation must be a finite number above 0, got 0.0"),
        ({"iterations": 0}, "iterations must be a whole number of at least 1, got 0"),
        ({"seed": 0.5}, "seed must be a whole number of at least 0, got 0.5"),
    ],
)
def test_mixture_settings_out_of_range_are_refused(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        GaussianMixtureDensity(**options)


def test_a_mixture_needs_a_row_per_component():
    z, _, _ = data()
    message = (
        "a mixture needs at least 2 rows and one per component, got 4 rows for 5 components; take fewer components or "
        "more rows"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        GaussianMixtureDensity(5).fit(z[:4])


@pytest.mark.parametrize("seed", range(12))
def test_a_singular_mixture_names_the_way_out(seed):
    # LAPACK itself notices about two of three of them
    z = torch.randn(80, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    z[:, 1] = z[:, 0]
    message = (
        "the covariances of the mixture are singular with regularisation=1e-300; take a larger one, fewer components "
        "or covariance='diag'"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        GaussianMixtureDensity(1, regularisation=1e-300).fit(1e3 * z)


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
    scores = MahalanobisDensity(relative=relative, shrinkage=share).fit(z, y).unknown_score(x)
    np.testing.assert_allclose(scores, naive_mahalanobis(z, y, x, share, relative), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(200, 4), (20, 30)])
def test_the_covariance_is_shrunk_as_scikit_learn_does(n, d):
    z, y, x = data(n=n, d=d)
    means = torch.stack([z[y == label].mean(0) for label in range(3)])
    share = sklearn_ledoit_wolf((z - means[y]).numpy(), assume_centered=True)[1]
    assert 0 < share < 1
    scores = MahalanobisDensity().fit(z, y).unknown_score(x)
    np.testing.assert_allclose(scores, naive_mahalanobis(z, y, x, share, False), rtol=1e-9)


def test_a_class_mean_is_at_distance_zero():
    z, y, _ = data()
    means = torch.stack([z[y == label].mean(0) for label in range(3)])
    scores = MahalanobisDensity().fit(z, y).unknown_score(means)
    torch.testing.assert_close(scores, torch.zeros(3, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("relative", [False, True])
def test_mahalanobis_does_not_depend_on_the_units_of_the_features(relative):
    z, y, x = data()
    change = torch.tensor([[1e6, 0.0, 0.0], [3.0, 1.0, 0.0], [0.0, 1e-4, 1e-5]], dtype=torch.float64)
    plain = MahalanobisDensity(relative=relative, shrinkage=0.0).fit(z, y).unknown_score(x)
    changed = MahalanobisDensity(relative=relative, shrinkage=0.0).fit(z @ change, y).unknown_score(x @ change)
    torch.testing.assert_close(changed, plain, rtol=1e-5, atol=1e-5)


def test_classes_without_examples_are_left_out_and_no_labels_are_one_class():
    z, y, x = data()
    expected = MahalanobisDensity().fit(z, y).unknown_score(x)
    assert torch.equal(MahalanobisDensity().fit(z, 5 * y + 2).unknown_score(x), expected)
    one = MahalanobisDensity().fit(z).unknown_score(x)
    assert torch.equal(MahalanobisDensity().fit(z, torch.zeros_like(y)).unknown_score(x), one)


def test_relative_distances_ignore_what_does_not_tell_classes_apart():
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(4000) % 2
    noise = torch.randn(4000, 6, generator=rng, dtype=torch.float64)
    z = noise + 20 * torch.eye(6, dtype=torch.float64)[0] * y.unsqueeze(1)
    odd = torch.tensor([[0.0, 9.0, 0.0, 0.0, 0.0, 0.0], [10.0, 0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    plain, relative = (MahalanobisDensity(relative=r).fit(z, y).unknown_score(odd) for r in (False, True))
    assert plain[0] > 70
    assert relative[0] < 10 < relative[1]


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1, "oracle", True, None])
def test_shrinkage_out_of_range_is_refused(shrinkage):
    message = f"shrinkage must be 'ledoit-wolf' or a number from 0 to 1, got {shrinkage!r}"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        MahalanobisDensity(shrinkage=shrinkage)


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
        MahalanobisDensity(shrinkage=shrinkage).fit(rows, y[: len(rows)])


def test_shrinkage_makes_dependent_features_usable():
    z, y, x = data()
    wide = MahalanobisDensity().fit(torch.cat([z, z], 1), y)
    assert wide.unknown_score(torch.cat([x, x], 1)).isfinite().all()
    assert wide.unknown_score(torch.cat([x, -x], 1)).min() > 100


def test_labels_that_are_no_classes_are_refused():
    z, y, _ = data()
    with pytest.raises(TargetError, match=r"^labels must be classes from 0 to 1, got -1 in row 0$"):
        MahalanobisDensity().fit(z, y - 1)
    with pytest.raises(ShapeError, match=r"^labels must have the shape \(80,\), one per row, got \(79,\)$"):
        MahalanobisDensity().fit(z, y[1:])
    with pytest.raises(DTypeError, match=r"^labels must be whole numbers, got torch\.float32"):
        MahalanobisDensity().fit(z, y.float())
    with pytest.raises(DTypeError, match=r"^labels must be a torch\.Tensor, got list"):
        MahalanobisDensity().fit(z, y.tolist())
    with pytest.raises(OptionError, match=r"^a relative distance needs at least two classes, got one; give labels or"):
        MahalanobisDensity(relative=True).fit(z)
