"""Parzen windows: a density of radial basis functions (Bishop 1994, on novelty detection)."""

import math
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import check_choice, check_count, check_positive, require
from openradial.scorers.bandwidth import Kernels, likelihood_bandwidth, neighbour_bandwidth
from openradial.scorers.density import AT_ONCE, Density, check_features, squared_distances


class ParzenDensity(Density):
    r"""Minus the log of a density that is a sum of Gaussians around known examples.

    :math:`p(z) = \sum_j w_j \, \mathcal N(z; c_j, h^2 I)`. The centres are all known rows, each with the weight 1/n.
    With ``centres=m`` they are m of them, drawn at random with ``seed`` (``choose="subset"``), or the means of m
    clusters weighted by their sizes (``"kmeans"``, which needs scikit-learn).

    The bandwidth h is given, or found by a ``rule``. ``"likelihood"`` takes the h under which each row is most likely
    given the others: leave-one-out likelihood, in which exact copies of a row are left out with it. ``"neighbours"``
    takes the mean distance of a row to its k nearest others, averaged over the rows, a rule that goes back to Bishop;
    in many dimensions it is far wider. Of large sets a random sample of the rows decides.

    >>> known = torch.tensor([[-1.0], [1.0]])
    >>> ParzenDensity(bandwidth=1.0).fit(known).unknown_score(torch.tensor([[0.0], [9.0]]))
    tensor([ 1.4189, 33.6121])
    """

    fitted: ClassVar[tuple[str, ...]] = ("points", "log_weights", "fitted_bandwidth")
    points: Tensor
    log_weights: Tensor
    fitted_bandwidth: Tensor

    def __init__(
        self,
        bandwidth: float | None = None,
        *,
        rule: Literal["likelihood", "neighbours"] = "likelihood",
        k: int = 10,
        centres: int | None = None,
        choose: Literal["subset", "kmeans"] = "subset",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if bandwidth is not None:
            check_positive("bandwidth", bandwidth)
        if centres is not None:
            check_count("centres", centres)
        check_choice("rule", rule, ("likelihood", "neighbours"))
        check_choice("choose", choose, ("subset", "kmeans"))
        check_count("k", k)
        check_count("seed", seed, least=0)
        self.bandwidth, self.rule, self.k = bandwidth, rule, int(k)
        self.centres, self.choose, self.seed = centres, choose, int(seed)

    def settings(self) -> dict[str, Any]:
        return {
            "bandwidth": self.bandwidth,
            "rule": self.rule,
            "k": self.k,
            "centres": self.centres,
            "choose": self.choose,
            "seed": self.seed,
        }

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Place the Gaussians and find their width; the labels are not looked at."""
        check_features(z)
        rows = z.detach().double()
        kernels = self._kernels(rows)
        bandwidth = self.bandwidth
        if bandwidth is None and self.rule == "likelihood":
            bandwidth = likelihood_bandwidth(rows, kernels, self.seed)
        elif bandwidth is None:
            bandwidth = neighbour_bandwidth(rows, self.k, self.seed)
        self.points, self.log_weights = kernels.points, kernels.counts.log() - kernels.counts.sum().log()
        self.fitted_bandwidth = rows.new_tensor(bandwidth)
        return self

    @property
    def width(self) -> int:
        return self.points.shape[1]

    def _kernels(self, rows: Tensor) -> Kernels:
        count = len(rows)
        if self.centres is None or self.centres >= count:
            return Kernels(rows.clone(), rows.new_ones(count), torch.arange(count, device=rows.device))
        if self.choose == "kmeans":
            return _clusters(rows, self.centres, self.seed)
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))[: self.centres].sort().values
        owner = torch.full((count,), -1).index_copy(0, chosen, torch.arange(len(chosen)))
        return Kernels(rows[chosen.to(rows.device)], rows.new_ones(len(chosen)), owner.to(rows.device))

    def _score(self, z: Tensor) -> Tensor:
        squared = self.fitted_bandwidth.double().square()
        exponents = self.log_weights - squared_distances(z, self.points.double()) / (2 * squared)  # (b, m)
        return self.width / 2 * (2 * math.pi * squared).log() - exponents.logsumexp(1)

    def _rows_at_once(self) -> int:
        return max(1, AT_ONCE // len(self.points))


def _clusters(rows: Tensor, count: int, seed: int) -> Kernels:
    cluster = require("sklearn.cluster", "sklearn", "choose='kmeans'")
    found = cluster.KMeans(count, n_init=1, random_state=seed).fit_predict(rows.cpu().numpy())
    labels = torch.unique(torch.as_tensor(found, device=rows.device).long(), return_inverse=True)[1]
    counts = labels.bincount().to(rows)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, labels, rows)
    return Kernels(sums / counts.unsqueeze(1), counts, labels)
