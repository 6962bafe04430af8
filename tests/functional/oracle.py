"""Distances worked out in extended precision, one class at a time, and inputs that are hard to measure."""

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

LONG = np.longdouble


def exact_distance(row: NDArray[np.floating], k: int, scale: float) -> float:
    """Euclidean distance of one row to ``scale * e_k`` in long double."""
    e = row.astype(LONG)
    e[k] -= LONG(scale)
    return float(np.sqrt(np.square(e).sum()))


def point_at(rng: np.random.Generator, num_classes: int, k: int, scale: float, distance: float) -> torch.Tensor:
    """A float32 output at about ``distance`` from prototype ``k``, in a random direction."""
    direction = rng.standard_normal(num_classes)
    direction *= distance / np.linalg.norm(direction)
    direction[k] += scale
    return torch.from_numpy(direction.astype(np.float32))


@st.composite
def outputs(
    draw: st.DrawFn, max_rows: int = 5, max_classes: int = 9, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Outputs from next to a prototype to far away, with ties and zeros."""
    rows, classes = draw(st.integers(1, max_rows)), draw(st.integers(2, max_classes))
    value = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5, 1 + 1e-6]), st.floats(-1e3, 1e3, allow_subnormal=False))
    numbers = draw(st.lists(value, min_size=rows * classes, max_size=rows * classes))
    return torch.tensor(numbers, dtype=dtype).reshape(rows, classes)


scales = st.sampled_from([0.01, 0.5, 1.0, 3.0, 100.0])
betas = st.floats(1e-3, 1e3)
