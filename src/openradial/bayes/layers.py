"""Layers whose weights are Gaussians."""

from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as TF
from torch.nn.parameter import UninitializedParameter

from openradial.bayes.priors import PAPER_PRIOR, Prior, rho_of, sigma_of
from openradial.errors import OptionError, check_choice

Sampling = Literal["weights", "local", "flipout"]
START = 0.005  # standard deviation of every weight before training: small against the signal
KINDS: dict[type[nn.Module], type["BayesLayer"]] = {}  # the Bayesian class of each plain layer


class BayesLayer(nn.Module):
    r"""A layer with a Gaussian for each weight: the parameter ``name`` is its mean, ``name_rho`` gives its deviation.

    .. math:: w = \mu + \sigma\, \varepsilon, \qquad \sigma = \log(1 + e^\rho), \quad \varepsilon \sim N(0, 1)

    In training mode each call draws new weights; in evaluation mode the layer is the plain one with the means as its
    weights. The arguments are those of the plain layer, ``prior``, ``sigma`` (with which every weight starts), and for
    linear and convolutional layers ``sampling``. Where a rho has no elements the weights are used unchanged: so
    :class:`~openradial.bayes.Posterior` runs a network with drawn weights. Drawn weights are not stored on the layer.
    """

    plain: ClassVar[type[nn.Module]]  # the layer without spread: the last base class
    prior: Prior
    random: tuple[str, ...]  # parameters that are means; a dot leads into a part of the layer
    start: float
    sampling: Sampling = "weights"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        plain = cls.__bases__[-1]
        if issubclass(plain, nn.Module) and not issubclass(plain, BayesLayer):
            cls.plain = plain
            KINDS.setdefault(plain, cls)

    def __init__(
        self,
        *args: Any,
        prior: Prior = PAPER_PRIOR,
        sigma: float = START,
        sampling: Sampling = "weights",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.make_random(trained_names(self), prior, sigma, sampling, {})

    def make_random(
        self, names: tuple[str, ...], prior: Prior, sigma: float, sampling: Sampling, made: dict[Tensor, nn.Parameter]
    ) -> None:
        """Add a rho for each parameter; ``made`` holds those of parameters that layers share."""
        check_choice("sampling", sampling, get_args(Sampling) if isinstance(self, AffineLayer) else ("weights",))
        if not isinstance(prior, Prior):
            raise OptionError(f"prior must be a ScaleMixturePrior or a GaussianPrior, got {type(prior).__name__}")
        self.prior, self.start, self.random = prior, float(sigma), names
        if sampling != "weights":
            self.sampling = sampling
        for name in names:
            mean = tensor_of(self, name)
            if mean not in made:
                made[mean] = nn.Parameter(torch.full_like(mean.detach(), rho_of(sigma)))
            path, _, last = name.rpartition(".")
            self.get_submodule(path).register_parameter(f"{last}_rho", made[mean])

    @property
    def draws(self) -> bool:
        """Whether a call draws weights."""
        return self.training and bool(self.random) and tensor_of(self, f"{self.random[0]}_rho").numel() > 0

    def counted(self, name: str) -> Tensor | None:
        """Return 1 for random weights, 0 for those that stay at their mean; None if all are random."""
        return None

    def deviations(self, name: str) -> Tensor:
        """Return the standard deviations of one parameter."""
        sigma, counted = sigma_of(tensor_of(self, f"{name}_rho")), self.counted(name)
        return sigma if counted is None else sigma * counted

    def drawn(self) -> dict[str, Tensor]:
        """Return one draw of all weights, by name."""
        means = {name: tensor_of(self, name) for name in self.random}
        return {name: mean + self.deviations(name) * torch.randn_like(mean) for name, mean in means.items()}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.draws:
            return super().forward(*args, **kwargs)
        return functional_call(self, given(self.drawn()), args, kwargs, tie_weights=False)

    def reset_parameters(self) -> None:
        super().reset_parameters()  # type: ignore[misc]
        for name in getattr(self, "random", ()):
            nn.init.constant_(tensor_of(self, f"{name}_rho"), rho_of(self.start))

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [super().extra_repr(), str(self.prior)]))


def given(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights for ``functional_call``: each with an empty rho, so that nothing is added to them."""
    return weights | {f"{name}_rho": weight.new_empty(0) for name, weight in weights.items()}


def tensor_of(module: nn.Module, name: str) -> Tensor:
    """Return a parameter, or its replacement by ``functional_call``."""
    path, _, last = name.rpartition(".")
    tensor = getattr(module.get_submodule(path), last)
    assert isinstance(tensor, Tensor)
    return tensor


def trained_names(layer: nn.Module, *, recurse: bool = False) -> tuple[str, ...]:
    """Return the trained parameters of a layer, which can be random."""
    parameters = dict(layer.named_parameters(recurse=recurse))
    if any(isinstance(parameter, UninitializedParameter) for parameter in parameters.values()):
        raise OptionError(f"a {type(layer).__name__} does not know its inputs yet; run one batch through the network")
    return tuple(name for name, parameter in parameters.items() if parameter.requires_grad)


class AffineLayer(BayesLayer):
    """Layers that are affine in their weights, for which noise can also be drawn per example.

    ``sampling``: ``"weights"`` draws one set of weights for the batch, as in the paper; ``"local"`` draws the outputs,
    which are Gaussian too (Kingma et al. 2015); ``"flipout"`` flips the signs of one draw at random for each example
    (Wen et al. 2018). The gradients of the last two are less noisy, and take twice the arithmetic.
    """

    weight: Tensor
    bias: Any

    def run(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Apply the layer with given weights."""
        return TF.linear(x, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        if not self.draws:
            return self.run(x, self.weight, self.bias)
        if self.sampling == "weights":
            drawn = self.drawn()
            return self.run(x, drawn.get("weight", self.weight), drawn.get("bias", self.bias))
        mean = self.run(x, self.weight, self.bias)
        if self.sampling == "local":
            variance = self._noise(x.square(), {name: self.deviations(name).square() for name in self.random})
            # the root has no slope at 0, where an input of zeros meets a layer without bias
            deviation = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
            return mean + deviation * torch.randn_like(mean)
        steps = {name: self.deviations(name) * torch.randn_like(tensor_of(self, name)) for name in self.random}
        return mean + self._noise(x * self._signs(x), steps) * self._signs(mean)

    def _noise(self, x: Tensor, parts: dict[str, Tensor]) -> Tensor:
        """Apply the layer with its random parameters alone."""
        weight = parts["weight"] if "weight" in parts else torch.zeros_like(self.weight)
        return self.run(x, weight, parts.get("bias"))

    def _signs(self, x: Tensor) -> Tensor:
        """Return random signs per example and unit."""
        return torch.where(torch.rand_like(x) < 0.5, -1.0, 1.0).to(x)


class BayesLinear(AffineLayer, nn.Linear):
    """``nn.Linear`` with Gaussian weights, see :class:`BayesLayer`.

    >>> layer = BayesLinear(2, 3)
    >>> x = torch.ones(5, 2)
    >>> layer(x).shape, bool((layer(x) == layer(x)).any())
    (torch.Size([5, 3]), False)
    >>> bool((layer.eval()(x) == layer(x)).all())
    True
    """


class _Conv(AffineLayer):
    kernel_size: Any
    _conv_forward: Any

    def run(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        o: Tensor = self._conv_forward(x, weight, bias)
        return o

    def _signs(self, x: Tensor) -> Tensor:
        axes = len(self.kernel_size)
        # (b, c, 1, ...): all positions of an image share the weights
        return super()._signs(x.new_zeros(*x.shape[:-axes], *(1,) * axes))


class BayesConv1d(_Conv, nn.Conv1d):
    """``nn.Conv1d`` with Gaussian weights, see :class:`BayesLayer`.

    >>> BayesConv1d(2, 3, kernel_size=5)(torch.zeros(4, 2, 20)).shape
    torch.Size([4, 3, 16])
    """


class BayesConv2d(_Conv, nn.Conv2d):
    """``nn.Conv2d`` with Gaussian weights, see :class:`BayesLayer`.

    >>> BayesConv2d(1, 10, kernel_size=5, sampling="flipout")(torch.zeros(4, 1, 28, 28)).shape
    torch.Size([4, 10, 24, 24])
    """


class BayesEmbedding(BayesLayer, nn.Embedding):
    """``nn.Embedding`` with Gaussian weights, see :class:`BayesLayer`; the row of ``padding_idx`` stays fixed.

    >>> BayesEmbedding(100, 8, padding_idx=0)(torch.tensor([[5, 7, 0]]))[0, 2].abs().sum()
    tensor(0., grad_fn=<SumBackward0>)
    """

    def counted(self, name: str) -> Tensor | None:
        if self.padding_idx is None:
            return None
        rows = torch.arange(self.num_embeddings, device=self.weight.device)
        return (rows != self.padding_idx).to(self.weight.dtype)[:, None]  # (n, 1)


class _Recurrent(BayesLayer):
    """Recurrent layers: one draw serves all time steps; inputs and results are those of the plain layer."""

    _flat_weights_names: list[str]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # the plain layer keeps a list of its weights; a temporary twin has the list of the drawn ones
        drawn = self.drawn() if self.draws else {}
        weights = [drawn[name] if name in drawn else tensor_of(self, name) for name in self._flat_weights_names]
        twin = object.__new__(type(self))
        twin.__dict__ |= self.__dict__ | {"_flat_weights": weights}
        return self.plain.forward(twin, *args, **kwargs)

    def _update_flat_weights(self) -> None:
        """Do nothing: the weights of the twin are already set."""


class BayesGRU(_Recurrent, nn.GRU):
    """``nn.GRU`` with Gaussian weights, see :class:`BayesLayer`.

    >>> states, last = BayesGRU(12, 64, batch_first=True)(torch.zeros(5, 20, 12))
    >>> states.shape, last.shape
    (torch.Size([5, 20, 64]), torch.Size([1, 5, 64]))
    """


class BayesLSTM(_Recurrent, nn.LSTM):
    """``nn.LSTM`` with Gaussian weights, see :class:`BayesLayer`."""


class BayesRNN(_Recurrent, nn.RNN):
    """``nn.RNN`` with Gaussian weights, see :class:`BayesLayer`."""


def check_network(network: object) -> None:
    """Raise unless ``network`` is a network."""
    if isinstance(network, type):
        raise OptionError(f"expected a network, got the class {network.__name__}; pass an object of it")
    if not isinstance(network, nn.Module):
        raise OptionError(f"expected an nn.Module, got {type(network).__name__}; pass the network itself")
