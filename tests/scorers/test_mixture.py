import re
import sys

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from openradial.errors import MissingError, OptionError
from openradial.heads import load_head, save_head
from openradial.scorers import MixtureScorer
from tests.scorers.feature_data import data, log_mixture


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_a_mixture_scores_what_scikit_learn_and_the_definition_do(covariance):
    z, _, x = data(n=200)
    scores = MixtureScorer(3, covariance, seed=5).fit(z).unknown_score(x)
    oracle = GaussianMixture(3, covariance_type=covariance, random_state=5, max_iter=200).fit(z.numpy())
    np.testing.assert_allclose(scores, -oracle.score_samples(x.numpy()), rtol=1e-10)
    covariances = oracle.covariances_ if covariance == "full" else [np.diag(v) for v in oracle.covariances_]
    expected = [-log_mixture(row, oracle.weights_, oracle.means_, covariances) for row in x.numpy()]
    np.testing.assert_allclose(scores, expected, rtol=1e-10)


def test_a_loaded_mixture_scores_without_scikit_learn(tmp_path, monkeypatch):
    z, _, x = data()
    model = MixtureScorer(2).fit(z)
    save_head(model, tmp_path / "head")
    for name in ("sklearn", "sklearn.mixture"):
        monkeypatch.setitem(sys.modules, name, None)
    loaded = load_head(tmp_path / "head")
    assert torch.equal(loaded.unknown_score(x), model.unknown_score(x))
    message = (
        "fitting a MixtureScorer needs the package sklearn, which is not installed; run: pip install "
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
        MixtureScorer(**options)


def test_a_mixture_needs_a_row_per_component():
    z, _, _ = data()
    message = (
        "a mixture needs at least 2 rows and one per component, got 4 rows for 5 components; take fewer components or "
        "more rows"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        MixtureScorer(5).fit(z[:4])


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
        MixtureScorer(1, regularisation=1e-300).fit(1e3 * z)
