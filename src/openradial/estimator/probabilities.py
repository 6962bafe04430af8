"""Log-probabilities of a radial head as the rows of ``predict_proba``, and the beta that makes them true."""

import torch
from torch import Tensor

from openradial.conformal import fit_beta
from openradial.errors import HeadError, OptionError, ShapeError
from openradial.heads import SoftmaxHead


def closed_world(log_probs: Tensor) -> Tensor:
    """Probabilities of rows that belong to one of the classes, ``(n, k) -> (n, k)``: each row sums to 1.

    >>> closed_world(torch.tensor([[0.0, -1.0], [-8.0, -9.0]]))
    tensor([[0.7311, 0.2689],
            [0.7311, 0.2689]])
    """
    return log_probs.softmax(-1)


def open_world(log_probs: Tensor) -> Tensor:
    """Probabilities of rows that may belong to none of the classes, ``(n, k) -> (n, k)``: each sums to at most 1.

    The nearest class has its radial probability. The others have theirs too, or less where that is more than is left.

    >>> open_world(torch.tensor([[0.0, -1.0], [-0.5, -1.0], [-8.0, -9.0]]))
    tensor([[1.0000e+00, 0.0000e+00],
            [6.0653e-01, 3.6788e-01],
            [3.3546e-04, 1.2341e-04]])
    """
    probs = log_probs.exp()
    best, place = probs.max(-1, keepdim=True)
    others = probs.scatter(-1, place, 0.0)
    total = others.sum(-1, keepdim=True)
    share = ((1 - best) / total.clamp_min(torch.finfo(total.dtype).tiny)).clamp_max(1)
    return (others * share).scatter(-1, place, best)


def true_beta(distances: Tensor, y: Tensor, *, is_open: bool) -> float:
    """The beta with which held-out rows are most likely, under :func:`open_world` or :func:`closed_world`."""
    try:
        if is_open:
            return fit_beta(distances, y).beta
        head = SoftmaxHead(distances.shape[1], temperature="fit").fit(-distances, y)
    except (HeadError, ShapeError) as error:
        raise OptionError(
            f"beta='fit' needs held-out rows of which some are predicted wrongly, and found no best beta in "
            f"{len(y)} rows; hold out more (calibration_fraction), or use beta='safe'"
        ) from error
    assert head.fitted_temperature is not None
    return 1 / float(head.fitted_temperature)
