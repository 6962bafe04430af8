"""Softmax, the closed-world head, with the usual scores of its outputs."""

from typing import ClassVar, Literal, Self, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from openradial.errors import HeadError, OptionError, check_choice, check_positive
from openradial.heads.base import Head
from openradial.scorers.base import at_least_float32

SoftmaxScore = Literal["msp", "max_logit", "energy", "entropy"]


class SoftmaxHead(Head):
    r"""Softmax with one of the usual scores of its outputs.

    The loss is the cross-entropy of the outputs; only after training the temperature :math:`T` divides them.

    Args:
        score: ``"msp"``, one minus the maximum softmax probability :math:`1 - \max_k p_k` (Hendrycks and Gimpel 2017);
            ``"max_logit"``, :math:`-\max_k o_k` (Hendrycks et al. 2022); ``"energy"``,
            :math:`-T \log \sum_k e^{o_k / T}` (Liu et al. 2020); ``"entropy"``, :math:`-\sum_k p_k \log p_k`.
        temperature: a number, or ``"fit"``: :meth:`fit` then finds the one that makes held-out known data most likely
            (Guo et al. 2017).

    >>> head = SoftmaxHead(2, temperature=2.0)
    >>> head.probs(torch.tensor([[4.0, 0.0]]))
    tensor([[0.8808, 0.1192]])
    >>> head.unknown_score(torch.tensor([[4.0, 0.0]]))
    tensor([0.1192])
    """

    fitted: ClassVar[tuple[str, ...]] = ("fitted_temperature",)
    fitted_temperature: Tensor | None

    def __init__(
        self, num_classes: int, score: SoftmaxScore = "msp", temperature: float | Literal["fit"] = 1.0
    ) -> None:
        super().__init__(num_classes)
        check_choice("score", score, get_args(SoftmaxScore))
        if isinstance(temperature, str) and temperature != "fit":
            raise OptionError(f"temperature must be a number above 0 or 'fit', got {temperature!r}")
        if temperature != "fit":
            check_positive("temperature", temperature)
            temperature = float(temperature)
        self.score, self.temperature = score, temperature

    def log_probs(self, o: Tensor) -> Tensor:
        return F.log_softmax(self._tempered(o), -1)

    def unknown_score(self, o: Tensor) -> Tensor:
        if self.score == "max_logit":
            self._check(o)
            return -at_least_float32(o).amax(-1)
        tempered = self._tempered(o)
        if self.score == "energy":
            return -self._temperature() * tempered.logsumexp(-1)
        return msp_score(tempered) if self.score == "msp" else entropy_score(tempered)

    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        self._check(o, y)
        return F.cross_entropy(at_least_float32(o), y.long())

    def predict(self, o: Tensor) -> Tensor:
        """Return the class of the largest output, which no temperature changes."""
        self._check(o)
        return o.argmax(-1)

    def fit(self, o: Tensor, y: Tensor) -> Self:
        """Fit the temperature on held-out known data where it is ``"fit"``; training data make it too low."""
        if self.temperature == "fit":
            self.fitted_temperature = o.new_tensor(best_temperature(*self._known(o, y)), dtype=torch.float64)
        return self

    @property
    def is_fitted(self) -> bool:
        return self.temperature != "fit" or super().is_fitted

    def _temperature(self) -> Tensor | float:
        return self.temperature if self.fitted_temperature is None else self.fitted_temperature  # type: ignore[return-value]

    def _tempered(self, o: Tensor) -> Tensor:
        self._check_fitted()
        self._check(o)
        return at_least_float32(o) / self._temperature()


def msp_score(x: Tensor) -> Tensor:
    """Return 1 minus the largest softmax probability, ``(b, k) -> (b,)``, with all digits next to 0.

    >>> msp_score(torch.tensor([[60.0, 0.0], [40.0, 0.0]]))
    tensor([8.7565e-27, 4.2484e-18])
    """
    _, rest = _gaps_and_rest(x)
    return rest / (1 + rest)


def entropy_score(x: Tensor) -> Tensor:
    r"""Return the entropy of the softmax in nats, ``(b, k) -> (b,)``, with all digits next to 0.

    With :math:`g_k = x_k - \max_j x_j` it is :math:`\log \sum_k e^{g_k} - \sum_k p_k g_k`, a sum of positive numbers.

    >>> entropy_score(torch.tensor([[60.0, 0.0], [0.0, 0.0]]))
    tensor([5.3415e-25, 6.9315e-01])
    """
    gaps, rest = _gaps_and_rest(x)
    gaps = gaps.clamp_min(torch.finfo(gaps.dtype).min)  # a probability of 0 adds 0
    return rest.log1p() - (gaps.exp() * gaps).sum(-1) / (1 + rest)


def _gaps_and_rest(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return each number minus the largest, ``(b, k)``, and the sum of the exponentials of all but the largest."""
    top = x.argmax(-1, keepdim=True)
    gaps = x - x.gather(-1, top)  # at most 0
    # the gap of the largest is 0, or NaN, which must stay
    return gaps, gaps.exp().scatter(-1, top, gaps.gather(-1, top)).sum(-1)


def best_temperature(o: Tensor, y: Tensor) -> float:
    r"""Return the most likely temperature, :math:`\arg\min_T -\sum_i \log p(y_i \mid o_i / T)`.

    In :math:`s = 1/T` the negative log-likelihood is convex: Newton's method on its slope, kept inside a bracket.
    """
    rows = o.double()
    rows = rows - rows.amax(1, keepdim=True)  # (n, k) at most 0
    unit = -float(rows.min()) or 1.0
    rows = rows / unit
    target = float(rows.gather(1, y.unsqueeze(1)).mean())
    if target == 0:
        raise HeadError(
            f"the temperature needs examples on both sides, but all {len(rows)} are classified correctly and the best "
            "temperature is 0; fit on more held-out data or give the temperature as a number"
        )
    if target <= float(rows.mean()):
        raise HeadError(
            "the temperature needs outputs that are larger for the right class than on average, but they are not and "
            "the best temperature is infinite; check that the labels belong to the outputs"
        )
    low, high, s = 0.0, float("inf"), 1.0
    for _ in range(200):
        probs = (s * rows).softmax(1)
        means = (probs * rows).sum(1)
        slope = float(means.mean()) - target
        curvature = float(((probs * rows.square()).sum(1) - means.square()).mean())
        low, high = (s, high) if slope < 0 else (low, s)
        step = s - slope / curvature if curvature > 0 else high
        if not low < step < high:
            step = 2 * s if high == float("inf") else (low + high) / 2
        if abs(step - s) <= 1e-12 * s:
            break
        s = step
    return unit / s
