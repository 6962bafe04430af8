import re

import numpy as np
import pytest
import torch

from openradial.errors import OptionError, ShapeError
from openradial.scorers import NormScorer
from tests.scorers.feature_data import data


def naive_excess(z, x, share):
    """The definition, one row and column at a time, in float64."""
    z, x = np.asarray(z, np.float64), np.asarray(x, np.float64)
    mean, variance = z.mean(0), z.var(0)
    scale = np.sqrt((1 - share) * variance + share * variance.mean())
    norm = lambda row: np.sqrt(sum(((v - m) / s) ** 2 for v, m, s in zip(row, mean, scale, strict=True)))  # noqa: E731
    largest = max(norm(row) for row in z)
    return [max(0.0, norm(row) / largest - 1) for row in x]


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_the_excess_equals_the_definition(share):
    z, _, x = data()
    x = torch.cat([x, 3 * x, 100 * x])
    model = NormScorer(share).fit(z)
    np.testing.assert_allclose(model.unknown_score(x), naive_excess(z, x, share), rtol=1e-12, atol=1e-14)


def test_the_training_data_and_everything_between_them_score_zero():
    z, _, _ = data()
    model = NormScorer().fit(z)
    mixed = 0.3 * z + 0.7 * z.flip(0)  # the norm is convex
    assert torch.cat([model.unknown_score(z), model.unknown_score(mixed)]).max() < 1e-15


def test_the_excess_grows_in_proportion_along_every_ray_also_of_constant_columns():
    z, _, _ = data()
    z = torch.cat([z, torch.full((len(z), 1), 7.0).double()], 1)  # a pixel that is never lit
    model = NormScorer().fit(z)
    directions = torch.cat(
        [torch.eye(4), -torch.eye(4), torch.randn(20, 4, generator=torch.Generator().manual_seed(1))]
    )
    steepest = model.scales.max()
    for t in (1e2, 1e4, 1e8, 1e30):
        x = t * directions.double()
        lower = (
            x.norm(dim=1) / (steepest * model.largest) - (model.means.norm() / model.scales.min()) / model.largest - 1
        )
        assert (model.unknown_score(x) >= lower - 1e-12 * lower.abs()).all()
        assert (model.unknown_score(x) > 1).all()
        assert model.unknown_score(x.float()).isfinite().all()


def test_batches_give_the_fit_of_all_rows_far_from_the_origin_too():
    z, _, x = data(n=50)
    together, parts = NormScorer().fit(z + 1e6), NormScorer().fit_batches(lambda: torch.split(z + 1e6, 7))
    torch.testing.assert_close(parts.unknown_score(x + 1e6), together.unknown_score(x + 1e6), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(together.unknown_score(3 * x + 1e6), naive_excess(z, 3 * x, 0.1), rtol=1e-8, atol=1e-8)


def test_equal_rows_are_a_point_with_units_of_one():
    model = NormScorer().fit(torch.ones(3, 2))
    torch.testing.assert_close(model.unknown_score(torch.tensor([[1.0, 1.0], [4.0, 5.0]])), torch.tensor([0.0, 4.0]))


@pytest.mark.parametrize("shrinkage", [0, -0.1, 1.5, True, "oas"])
def test_a_shrinkage_that_could_ignore_a_direction_is_refused(shrinkage):
    with pytest.raises(OptionError, match=re.escape(repr(shrinkage))):
        NormScorer(shrinkage)


def test_no_rows_are_refused():
    with pytest.raises(ShapeError, match="at least one"):
        NormScorer().fit_batches(lambda: [])
