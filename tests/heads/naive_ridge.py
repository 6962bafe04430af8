"""Ridge regression to prototypes from its definition, in NumPy and float64, and data for the closed-form head."""

import numpy as np
import torch


def as_float64(z):
    return z.double().numpy() if isinstance(z, torch.Tensor) else np.asarray(z, dtype=np.float64)


def naive_fit(z, y, k, alpha, scale=1.0, weights=None):
    """Weight (k, d) and bias (k,) of weighted ridge regression with an unpenalised bias; ``weights`` are of rows."""
    z, y = as_float64(z), np.asarray(y)
    w = np.ones(len(z)) if weights is None else np.asarray(weights, dtype=np.float64)
    targets = scale * np.eye(k)[y]
    shift = z[0]  # an offset of all rows must not cost digits here either
    centre = shift + w @ (z - shift) / w.sum()
    target_centre = w @ targets / w.sum()
    x, t = z - centre, targets - target_centre
    weight = np.linalg.solve(x.T @ (w[:, None] * x) + alpha * np.eye(z.shape[1]), x.T @ (w[:, None] * t)).T
    return weight, target_centre, centre


def naive_outputs(fit, rows):
    """Outputs (n, k) of what naive_fit returned."""
    weight, target_centre, centre = fit
    return (as_float64(rows) - centre) @ weight.T + target_centre


def naive_leave_one_out(z, y, k, alpha, scale=1.0, weights=None):
    """Fit once without each example, and return its output, (n, k)."""
    made = []
    for i in range(len(z)):
        rest = np.arange(len(z)) != i
        w = None if weights is None else np.asarray(weights)[rest]
        made.append(naive_outputs(naive_fit(z[rest], y[rest], k, alpha, scale, w), z[i : i + 1])[0])
    return np.array(made)


def made_data(n=60, d=5, k=3, seed=0, offset=0.0, dtype=torch.float64):
    """Features and labels; each class has a mean, and every class at least one example."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.cat([torch.arange(k), torch.randint(k, (n - k,), generator=rng)])
    means = 2 * torch.randn(k, d, generator=rng, dtype=torch.float64)
    z = means[y] + torch.randn(n, d, generator=rng, dtype=torch.float64) + offset
    return z.to(dtype), y


def assert_equal(actual, expected, rtol=1e-8):
    """Assert that outputs agree, relative to the largest of them."""
    actual, expected = as_float64(actual), as_float64(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * max(1.0, float(np.abs(expected).max())))
