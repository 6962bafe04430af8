import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_ridge import assert_equal, made_data, naive_fit, naive_leave_one_out
from sklearn.linear_model import Ridge

from openradial.errors import OptionError
from openradial.heads.ridge import GRID, Affine, RidgePath, alphas, best_alpha, solve, squared_errors
from openradial.scorers.base import limited_threads
from openradial.scorers.statistics import ClassStatistics

WEIGHTS = torch.tensor([1.0, 2.5, 0.3], dtype=torch.float64)
weighted = pytest.mark.parametrize("class_weight", [None, WEIGHTS], ids=["plain", "weights"])
shapes = pytest.mark.parametrize(("n", "d"), [(40, 5), (12, 20), (21, 20), (20, 20)])


def statistics_of(z, y, class_weight=None, k=3):
    return ClassStatistics.of(z, y, k, class_weight)


def row_weights(class_weight, y):
    return None if class_weight is None else class_weight[y]


@weighted
@shapes
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_solution_is_that_of_the_definition(class_weight, n, d, scale):
    z, y = made_data(n, d)
    affine = solve(statistics_of(z, y, class_weight), 0.7, scale)
    weight, target_centre, centre = naive_fit(z, y, 3, 0.7, scale, row_weights(class_weight, y))
    assert_equal(affine.weight, weight)
    assert_equal(affine.bias, target_centre - weight @ centre)
    theirs = Ridge(alpha=0.7).fit(z.numpy(), scale * np.eye(3)[y], sample_weight=row_weights(class_weight, y))
    assert_equal(affine.weight, theirs.coef_)
    assert_equal(affine.bias, theirs.intercept_)


@shapes
@pytest.mark.parametrize("alpha", [0.1, 10.0])
@pytest.mark.parametrize(("class_weight", "has_rows"), [(None, False), (None, True), (WEIGHTS, False)])
def test_leave_one_out_is_that_of_the_definition(class_weight, n, d, alpha, has_rows):
    z, y = made_data(n, d)
    statistics, weights = statistics_of(z, y, class_weight), row_weights(class_weight, y)
    path = RidgePath.of(statistics, z - statistics.mean if has_rows else None)
    o = path.leave_one_out(path.project(z), y, alpha, weights)
    expected = naive_leave_one_out(z, y, 3, alpha, weights=weights)
    assert_equal(o, expected)
    assert_equal(squared_errors(o, y), ((expected - np.eye(3)[y]) ** 2).sum(1))


@given(st.integers(2, 25), st.integers(1, 12), st.integers(0, 20), st.floats(-2, 3), st.floats(0.1, 10))
def test_leave_one_out_of_any_data(n, d, seed, power, weight):
    rng, alpha = torch.Generator().manual_seed(seed), 10**power
    z, y = torch.randn(n, d, generator=rng, dtype=torch.float64), torch.randint(3, (n,), generator=rng)
    class_weight = torch.tensor([1.0, weight, 1 / weight], dtype=torch.float64)
    path = RidgePath.of(statistics_of(z, y, class_weight))
    o = path.leave_one_out(path.project(z), y, alpha, class_weight[y])
    assert_equal(o, naive_leave_one_out(z, y, 3, alpha, weights=class_weight[y]))


def generalised_cross_validation(z, y, alpha, weights=None):
    """The definition: the mean squared error, divided by the square of 1 - the mean leverage."""
    z, t, n = z.numpy(), np.eye(3)[y], len(z)
    w = np.ones(n) if weights is None else weights.numpy()
    x = np.sqrt(w)[:, None] * (z - w @ z / w.sum())
    root = np.sqrt(w)[:, None]
    hat = x @ np.linalg.solve(x.T @ x + alpha * np.eye(z.shape[1]), x.T) + root @ root.T / w.sum()
    residual = root * t - hat @ (root * t)
    return (residual**2).sum() / w.sum() / (1 - np.trace(hat) / n) ** 2


@weighted
@shapes
@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_generalised_cross_validation_is_that_of_the_definition(class_weight, n, d, alpha):
    z, y = made_data(n, d)
    actual = RidgePath.of(statistics_of(z, y, class_weight)).generalised_cross_validation(alpha)
    assert actual == pytest.approx(generalised_cross_validation(z, y, alpha, row_weights(class_weight, y)), rel=1e-8)


def test_generalised_cross_validation_has_digits_where_the_solution_interpolates():
    rng = torch.Generator().manual_seed(0)
    z, y = torch.randn(20, 60, generator=rng, dtype=torch.float64), torch.arange(20) % 3
    path, x = RidgePath.of(statistics_of(z, y)), z.numpy() - z.numpy().mean(0)
    # for alpha to 0 the residual is alpha (K + alpha)^-1 t and 1 - hat is alpha (K + alpha)^-1, both without the mean
    values, vectors = np.linalg.eigh(x @ x.T)
    values, vectors = values[1:], vectors[:, 1:]
    t = vectors.T @ np.eye(3)[y]
    limit = ((t / values[:, None]) ** 2).sum() / 20 / ((1 / values).sum() / 20) ** 2
    for power in (-4, -6, -8):
        assert path.generalised_cross_validation(10.0**power) == pytest.approx(limit, rel=1e-4)


def test_penalties_grow_with_the_scatter():
    z, y = made_data()
    statistics = statistics_of(z, y)
    unit = float(torch.linalg.eigvalsh(statistics.scatter).mean())
    assert alphas(statistics) == pytest.approx([unit * each for each in GRID])
    assert alphas(statistics_of(10 * z, y)) == pytest.approx([100 * each for each in alphas(statistics)])
    assert alphas(statistics_of(torch.ones(9, 2), torch.arange(9) % 3)) == list(GRID)


def test_dependent_features_need_a_larger_penalty():
    z, y = made_data()
    statistics = statistics_of(1e4 * torch.cat([z, z], 1), y)
    with pytest.raises(OptionError, match="alpha=1e-30 is too small; choose a larger one"):
        solve(statistics, 1e-30)
    assert solve(statistics, 1.0).weight.isfinite().all()


def test_a_map_is_cast_once_for_each_dtype():
    affine, casts = Affine(torch.eye(2).double(), torch.zeros(2).double()), {}
    first = affine.to(torch.zeros(1), casts)
    assert first.weight.dtype == first.bias.dtype == torch.float32
    assert affine.to(torch.ones(3), casts) is first
    assert affine.to(torch.zeros(1).double(), casts).weight is affine.weight
    assert affine.to(torch.zeros(1, device="meta"), casts).weight.device.type == "meta"
    assert len(casts) == 3


@pytest.mark.parametrize("n", [6, 20])  # examples, fewer and more than features
def test_an_eigendecomposition_is_computed_by_one_thread(monkeypatch, n):
    """On a busy machine two threads took 90 s for what one does in 5 s: they wait for each other at every column."""
    threads, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: threads.append(torch.get_num_threads()) or eigh(matrix))
    z, y = made_data(n, 10)
    statistics = statistics_of(z, y)
    with limited_threads(2):
        RidgePath.of(statistics, z - statistics.mean)
        assert torch.get_num_threads() == 2
    assert threads == [1]


def test_alpha_is_not_that_of_a_false_minimum_where_near_duplicates_interpolate():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    z = torch.randn(60, 80, generator=generator, dtype=torch.float64) + 1.5 * torch.eye(3, 80)[y]
    z[57:] = z[:3] + 1e-6 * torch.randn(3, 80, generator=generator, dtype=torch.float64)
    statistics = statistics_of(z, y)
    path = RidgePath.of(statistics, z - statistics.mean)
    # generalised cross-validation is near 0 for the smallest alpha, where the leave-one-out error is a local minimum
    assert path.generalised_cross_validation(alphas(statistics)[0]) < 0.01
    errors = [squared_errors(path.leave_one_out(path.project(z), y, each), y).mean() for each in alphas(statistics)]
    error, alpha = best_alpha(statistics, z, y, is_all=True)
    assert error == pytest.approx(float(min(errors)))
    assert alpha == pytest.approx(alphas(statistics)[int(torch.stack(errors).argmin())])
