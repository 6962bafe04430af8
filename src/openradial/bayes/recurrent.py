"""Recurrent layers whose weights are Gaussians: one draw serves all time steps."""

from typing import Any

from torch import nn

from openradial.bayes.layers import START, BayesLayer, make_random, own_names, tensor_of
from openradial.bayes.priors import PAPER_PRIOR, Prior


class _Recurrent(BayesLayer):
    """What the three kinds share; arguments, inputs and results are those of the plain layer."""

    _flat_weights_names: list[str]

    def __init__(self, *args: Any, prior: Prior = PAPER_PRIOR, sigma: float = START, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        make_random(self, own_names(self), prior, sigma)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # The plain layer keeps a list of its weights. A twin has the list of those drawn, and is forgotten with it.
        drawn = self.drawn() if self.draws else {}
        weights = [drawn[name] if name in drawn else tensor_of(self, name) for name in self._flat_weights_names]
        twin = object.__new__(type(self))
        twin.__dict__ |= self.__dict__ | {"_flat_weights": weights}
        return self.plain.forward(twin, *args, **kwargs)

    def _update_flat_weights(self) -> None:
        """The twin's weights are right already."""


class BayesGRU(_Recurrent, nn.GRU):
    """``nn.GRU`` with Gaussian weights, see :class:`BayesLayer`.

    >>> import torch
    >>> states, last = BayesGRU(12, 64, batch_first=True)(torch.zeros(5, 20, 12))
    >>> states.shape, last.shape
    (torch.Size([5, 20, 64]), torch.Size([1, 5, 64]))
    """

    plain = nn.GRU


class BayesLSTM(_Recurrent, nn.LSTM):
    """``nn.LSTM`` with Gaussian weights, see :class:`BayesLayer`."""

    plain = nn.LSTM


class BayesRNN(_Recurrent, nn.RNN):
    """``nn.RNN`` with Gaussian weights, see :class:`BayesLayer`."""

    plain = nn.RNN
