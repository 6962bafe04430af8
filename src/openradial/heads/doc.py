"""DOC (Shu, Xu and Liu 2017, "DOC: Deep Open Classification of Text Documents"): one classifier per class."""

from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from openradial.errors import check_positive
from openradial.heads.base import Head
from openradial.scorers.base import at_least_float32


class DOCHead(Head):
    r"""One sigmoid per class against the rest, and a threshold per class from a Gaussian around 1.

    :meth:`fit` takes the probabilities :math:`p` that the examples of class i get for class i, mirrors each at 1
    (:math:`1 + (1 - p)`), and calls the standard deviation of both :math:`\sigma_i`. An input is unknown if
    :math:`p_i < t_i` for all i, with :math:`t_i = \max(0.5, 1 - \alpha \sigma_i)`.

    ``unknown_score`` is :math:`-\max_i (p_i - t_i)`: it is above 0 exactly for the inputs that DOC rejects. The loss
    is the sum of the binary cross-entropies of all classes. A class without examples has the threshold 0.5 and is
    listed by :attr:`missing_classes`.

    >>> head = DOCHead(2).fit(torch.tensor([[3.0, -3.0], [-3.0, 3.0]]), torch.tensor([0, 1]))
    >>> head.thresholds
    tensor([0.8577, 0.8577])
    >>> head.decide(torch.tensor([[4.0, -4.0], [-4.0, -4.0]]))
    tensor([ 0, -1])
    """

    fitted: ClassVar[tuple[str, ...]] = ("sigma", "counts")
    sigma: Tensor | None
    counts: Tensor | None

    def __init__(self, num_classes: int, alpha: float = 3.0) -> None:
        super().__init__(num_classes)
        check_positive("alpha", alpha)
        self.alpha = float(alpha)

    def log_probs(self, o: Tensor) -> Tensor:
        self._check(o)
        return F.logsigmoid(at_least_float32(o))

    def unknown_score(self, o: Tensor) -> Tensor:
        self._check(o)
        # -(p - t) as (1 - p) - (1 - t): next to 1 it is the distance to 1 that has digits
        lack = torch.sigmoid(-at_least_float32(o))  # (b, k)
        return (lack - self._allowances().to(lack)).amin(-1)

    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        self._check(o, y)
        o, at = at_least_float32(o), y.long().unsqueeze(1)
        wrong = o.scatter(1, at, -o.gather(1, at))  # (b, k) the logit of the wrong answer of each classifier
        return -F.logsigmoid(-wrong).sum(1).mean()

    def fit(self, o: Tensor, y: Tensor) -> Self:
        """Fit the spread of the probabilities of each class; the paper uses the training data."""
        o, y = self._known(o, y)
        lack = torch.sigmoid(-o.double().gather(1, y.unsqueeze(1))).squeeze(1)  # (n,) 1 - p
        counts = y.bincount(minlength=self.num_classes)
        squares = lack.new_zeros(self.num_classes).index_add(0, y, lack.square())
        # a point and its mirror image lie equally far from 1, so the mean of all squares is that of one side
        sigma = (squares / counts.clamp_min(1)).sqrt().to(at_least_float32(o).dtype)
        self.sigma, self.counts = torch.where(counts > 0, sigma, torch.inf), counts
        return self

    def predict(self, o: Tensor) -> Tensor:
        """Return the class of the largest output, also where rounding makes sigmoids equal."""
        self._check(o)
        return o.argmax(-1)

    def decide(self, o: Tensor) -> Tensor:
        """Return the class of each input, or -1 where DOC rejects it (or cannot tell, on NaN); ``(b, k) -> (b,)``."""
        return torch.where(self.unknown_score(o) <= 0, self.predict(o), -1)

    @property
    def thresholds(self) -> Tensor:
        """The probability that each class must reach, ``(k,)``."""
        return 1 - self._allowances()

    def _allowances(self) -> Tensor:
        """Return 1 minus the thresholds."""
        self._check_fitted()
        assert self.sigma is not None
        return (self.alpha * self.sigma).clamp_max(0.5)
