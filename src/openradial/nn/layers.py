"""The layer, its loss, and the two as the end of a network."""

from typing import TypedDict

import torch
from torch import Tensor, nn

from openradial import functional as F
from openradial.errors import OptionError, check_choice, check_count, check_cutoff, check_positive
from openradial.functional.losses import Reduction
from openradial.functional.norms import METRICS, MetricName, check_axis_scale, make_metric
from openradial.functional.probabilities import Cutoff
from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, Prototypes

__all__ = ["RadialLayer", "RadialLinear", "RadialLoss"]


class _Measure(TypedDict):
    prototypes: Prototypes
    metric: MetricName
    axis_scale: Tensor | None


class RadialLayer(nn.Module):
    """Outputs to log-probabilities: see :func:`openradial.functional.radial_log_probs`.

    ``nn.NLLLoss`` on the result is the paper's loss; :meth:`loss` is the same, faster. ``cutoff`` acts on
    :meth:`probs` alone, because training through it has no gradient.

    >>> layer = RadialLayer(3, beta=2.0)
    >>> layer(torch.tensor([[0.0, 1.0, 0.0]])).exp()
    tensor([[0.0591, 1.0000, 0.0591]])
    """

    axis_scale: Tensor | None

    def __init__(
        self,
        num_classes: int,
        beta: float = 1.0,
        scale: float = 1.0,
        *,
        cutoff: Cutoff = None,
        metric: MetricName = "euclidean",
        axis_scale: Tensor | None = None,
        prototypes: Prototypes | Tensor | None = None,
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        check_positive("beta", beta)
        check_choice("metric", metric, METRICS)
        check_cutoff(cutoff)
        self.num_classes, self.beta, self.cutoff, self.metric = num_classes, float(beta), cutoff, metric
        self.prototypes = _as_prototypes(prototypes, scale) or AxisPrototypes(num_classes, scale)
        if self.prototypes.num_classes != num_classes:
            raise OptionError(
                f"num_classes and prototypes must agree: num_classes={num_classes} but {self.prototypes.num_classes} "
                f"prototypes; pass num_classes={self.prototypes.num_classes}"
            )
        self.register_buffer("axis_scale", axis_scale)
        _check_axis_scale(axis_scale, metric, self.prototypes)

    def forward(self, o: Tensor) -> Tensor:
        return F.radial_log_probs(o, beta=self.beta, **self._measure())

    def probs(self, o: Tensor) -> Tensor:
        """Probabilities, cut off where a cut-off is set: see :func:`openradial.functional.radial_probs`."""
        return F.radial_probs(o, beta=self.beta, cutoff=self.cutoff, **self._measure())

    def distances(self, o: Tensor) -> Tensor:
        """Distance to every prototype: see :func:`openradial.functional.radial_distances`."""
        return F.radial_distances(o, **self._measure())

    def nearest(self, o: Tensor, k: int = 1) -> tuple[Tensor, Tensor]:
        """Distances and classes of the nearest prototypes: see :func:`openradial.functional.radial_nearest`."""
        return F.radial_nearest(o, k, **self._measure())

    def loss(self, o: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
        """Distance to the target's prototype: see :func:`openradial.functional.radial_loss`."""
        return F.radial_loss(o, target, beta=self.beta, reduction=reduction, **self._measure())

    def _measure(self) -> _Measure:
        return {"prototypes": self.prototypes, "metric": self.metric, "axis_scale": self.axis_scale}

    def extra_repr(self) -> str:
        settings = f"num_classes={self.num_classes}, beta={self.beta:g}, metric={self.metric!r}"
        return settings if self.cutoff is None else f"{settings}, cutoff={self.cutoff!r}"


class RadialLoss(nn.Module):
    """Distance to the target's prototype, used like ``nn.CrossEntropyLoss``.

    See :func:`openradial.functional.radial_loss`.

    >>> RadialLoss(beta=2.0)(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
    tensor(2.8284)
    """

    weight: Tensor | None
    axis_scale: Tensor | None

    def __init__(
        self,
        beta: float = 1.0,
        scale: float = 1.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        *,
        metric: MetricName = "euclidean",
        axis_scale: Tensor | None = None,
        prototypes: Prototypes | Tensor | None = None,
    ) -> None:
        super().__init__()
        check_positive("beta", beta)
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        check_choice("metric", metric, METRICS)
        self.prototypes = _as_prototypes(prototypes, scale)
        self.beta, self.scale, self.ignore_index = float(beta), float(scale), ignore_index
        self.reduction: Reduction = reduction
        self.metric: MetricName = metric
        self.register_buffer("weight", weight)
        self.register_buffer("axis_scale", axis_scale)
        _check_axis_scale(axis_scale, metric, self.prototypes)

    def forward(self, o: Tensor, target: Tensor) -> Tensor:
        return F.radial_loss(
            o,
            target,
            beta=self.beta,
            scale=self.scale,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            prototypes=self.prototypes,
            metric=self.metric,
            axis_scale=self.axis_scale,
        )

    def extra_repr(self) -> str:
        return f"beta={self.beta:g}, scale={self.scale:g}, metric={self.metric!r}, reduction={self.reduction!r}"


class RadialLinear(nn.Module):
    """The last layer of a network: an affine map to outputs, then :class:`RadialLayer`.

    ``forward`` gives log-probabilities, :meth:`outputs` the point ``o`` that heads and losses work on, and
    :meth:`probs` the probabilities, cut off where a cut-off is set.

    >>> RadialLinear(8, 3)(torch.zeros(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        beta: float = 1.0,
        scale: float = 1.0,
        *,
        bias: bool = True,
        cutoff: Cutoff = None,
        metric: MetricName = "euclidean",
        axis_scale: Tensor | None = None,
        prototypes: Prototypes | Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("in_features", in_features)
        self.layer = RadialLayer(
            num_classes, beta, scale, cutoff=cutoff, metric=metric, axis_scale=axis_scale, prototypes=prototypes
        )
        if device is not None:
            self.layer.to(device)
        self.in_features, self.num_classes = in_features, num_classes
        self.affine = nn.Linear(in_features, self.layer.prototypes.num_outputs, bias, device, dtype)

    def outputs(self, z: Tensor) -> Tensor:
        """The affine map alone: features to outputs."""
        return self.affine(z)  # type: ignore[no-any-return]

    def probs(self, z: Tensor) -> Tensor:
        """Features to probabilities: see :meth:`RadialLayer.probs`."""
        return self.layer.probs(self.affine(z))

    def loss(self, z: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
        """Features to loss: see :meth:`RadialLayer.loss`."""
        return self.layer.loss(self.affine(z), target, reduction)

    def forward(self, z: Tensor) -> Tensor:
        return self.layer(self.affine(z))  # type: ignore[no-any-return]


def _as_prototypes(prototypes: Prototypes | Tensor | None, scale: float) -> Prototypes | None:
    check_positive("scale", scale)
    if prototypes is None:
        return None
    if scale != 1.0:
        raise OptionError(
            f"scale belongs to the axis prototypes, but prototypes are given: got scale={scale!r}; scale them instead"
        )
    if isinstance(prototypes, Tensor):
        return FixedPrototypes(prototypes)
    if not isinstance(prototypes, Prototypes):
        raise OptionError(
            "prototypes must be None, a (classes, outputs) tensor or a prototypes module, got "
            f"{type(prototypes).__name__}; see openradial.nn.prototypes"
        )
    return prototypes


def _check_axis_scale(axis_scale: Tensor | None, metric: MetricName, prototypes: Prototypes | None) -> None:
    measure = make_metric(metric, axis_scale)
    if axis_scale is None:
        return
    if not axis_scale.is_meta:
        check_axis_scale(axis_scale)
    if prototypes is not None:
        measure.divide(axis_scale.new_empty(prototypes.num_outputs))
