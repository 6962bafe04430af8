"""The layer, its loss, and the last layer of a network."""

from typing import Any

import torch
from torch import Tensor, nn

from openradial import errors
from openradial import functional as F
from openradial.functional.losses import Reduction
from openradial.functional.norms import make_metric
from openradial.functional.probabilities import Cutoff
from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, Prototypes

LOSS_OPTIONS: tuple[str, ...] = ("beta", "scale", "weight", "ignore_index", "reduction", "label_smoothing")
LOSS_OPTIONS += ("prototypes", "metric", "axis_scale", "target_weight")


class RadialLayer(nn.Module):
    """What the outputs of a network mean: distances to prototypes, log-probabilities, probabilities, the loss.

    It has no ``forward``. Networks return outputs, as PyTorch's classifiers return logits; every method takes outputs,
    and log-probabilities are computed on request. ``cutoff`` acts on :meth:`probs` alone, because training through it
    has no gradient.

    >>> layer = RadialLayer(3, beta=2.0)
    >>> layer.probs(torch.tensor([[0.0, 1.0, 0.0]]))
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
        metric: errors.MetricName = "euclidean",
        axis_scale: Tensor | None = None,
        prototypes: Prototypes | Tensor | None = None,
    ) -> None:
        super().__init__()
        errors.check_count("num_classes", num_classes)
        errors.check_positive("beta", beta)
        errors.check_cutoff(cutoff)
        self.num_classes, self.beta, self.cutoff, self.metric = num_classes, float(beta), cutoff, metric
        self.prototypes = as_prototypes(prototypes, scale, num_classes) or AxisPrototypes(num_classes, scale)
        self.register_buffer("axis_scale", axis_scale)
        _check_metric(metric, axis_scale, self.prototypes)

    def forward(self, o: Tensor) -> Tensor:
        """Refuse: what a call should return is not obvious, and log-probabilities are not outputs."""
        raise errors.OptionError(
            "a RadialLayer is not called; use layer.log_probs(o), .probs(o), .distances(o), .loss(o, y)"
        )

    def log_probs(self, o: Tensor) -> Tensor:
        """Return log-probabilities: see :func:`openradial.functional.radial_log_probs`."""
        return F.radial_log_probs(o, beta=self.beta, **self._measure())

    def probs(self, o: Tensor) -> Tensor:
        """Return probabilities, 0 beyond the cut-off: see :func:`openradial.functional.radial_probs`."""
        return F.radial_probs(o, beta=self.beta, cutoff=self.cutoff, **self._measure())

    def distances(self, o: Tensor) -> Tensor:
        """Return the distance to every prototype: see :func:`openradial.functional.radial_distances`."""
        return F.radial_distances(o, **self._measure())

    def nearest(self, o: Tensor, k: int = 1) -> tuple[Tensor, Tensor]:
        """Return distances and classes of the nearest prototypes: see :func:`openradial.functional.radial_nearest`."""
        return F.radial_nearest(o, k, **self._measure())

    def loss(self, o: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
        """Return the distance to the target's prototype: see :func:`openradial.functional.radial_loss`."""
        return F.radial_loss(o, target, beta=self.beta, reduction=reduction, **self._measure())

    def _measure(self) -> dict[str, Any]:
        return {"prototypes": self.prototypes, "metric": self.metric, "axis_scale": self.axis_scale}

    def extra_repr(self) -> str:
        settings = f"num_classes={self.num_classes}, beta={self.beta:g}, metric={self.metric!r}"
        return settings if self.cutoff is None else f"{settings}, cutoff={self.cutoff!r}"


class RadialLoss(nn.Module):
    """The distance to the target's prototype, used like ``nn.CrossEntropyLoss``.

    Takes the outputs of a network and classes, or distributions over the classes, as targets, with the options of
    ``nn.CrossEntropyLoss``: see :func:`openradial.functional.radial_loss`.

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
        label_smoothing: float = 0.0,
        *,
        metric: errors.MetricName = "euclidean",
        axis_scale: Tensor | None = None,
        prototypes: Prototypes | Tensor | None = None,
        target_weight: float = 1.0,
    ) -> None:
        super().__init__()
        errors.check_positive("beta", beta)
        errors.check_choice("reduction", reduction, ("mean", "sum", "none"))
        errors.check_label_smoothing(label_smoothing)
        self.prototypes = as_prototypes(prototypes, scale)
        self.beta, self.scale, self.ignore_index = float(beta), float(scale), ignore_index
        self.label_smoothing, self.target_weight = label_smoothing, float(target_weight)
        self.reduction: Reduction = reduction
        self.metric: errors.MetricName = metric
        self.register_buffer("weight", weight)
        self.register_buffer("axis_scale", axis_scale)
        _check_metric(metric, axis_scale, self.prototypes)

    def forward(self, o: Tensor, target: Tensor) -> Tensor:
        """Return the loss of outputs ``(n, outputs)`` and targets ``(n,)``."""
        return F.radial_loss(o, target, **{name: getattr(self, name) for name in LOSS_OPTIONS})

    def extra_repr(self) -> str:
        settings = f"beta={self.beta:g}, scale={self.scale:g}, metric={self.metric!r}, reduction={self.reduction!r}"
        return settings + (f", label_smoothing={self.label_smoothing:g}" if self.label_smoothing else "")


class RadialLinear(nn.Module):
    """The last layer of a network: an affine map from features to outputs, and a :class:`RadialLayer` to read them.

    Returns outputs, as every network does; ``layer`` computes probabilities and the loss from them.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), RadialLinear(8, 3, beta=2.0))
    >>> o = net(torch.zeros(5, 2))
    >>> net[-1].layer.probs(o).shape, net[-1].layer.loss(o, torch.zeros(5, dtype=torch.long)).shape
    (torch.Size([5, 3]), torch.Size([]))
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
        metric: errors.MetricName = "euclidean",
        axis_scale: Tensor | None = None,
        prototypes: Prototypes | Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        errors.check_count("in_features", in_features)
        self.layer = RadialLayer(
            num_classes, beta, scale, cutoff=cutoff, metric=metric, axis_scale=axis_scale, prototypes=prototypes
        )
        if device is not None:
            self.layer.to(device)
        self.in_features, self.num_classes = in_features, num_classes
        self.affine = nn.Linear(in_features, self.layer.prototypes.num_outputs, bias, device, dtype)

    def forward(self, z: Tensor) -> Tensor:
        """Return the outputs for features, ``(..., in_features) -> (..., outputs)``."""
        return self.affine(z)  # type: ignore[no-any-return]


def as_prototypes(
    prototypes: Prototypes | Tensor | None, scale: float = 1.0, num_classes: int | None = None
) -> Prototypes | None:
    """Return the module for what a user may pass as prototypes, None for those on the axes, checked."""
    errors.check_positive("scale", scale)
    if prototypes is None:
        return None
    errors.check_unscaled(scale)
    if isinstance(prototypes, Tensor):
        prototypes = FixedPrototypes(prototypes)
    if not isinstance(prototypes, Prototypes):
        raise errors.OptionError(
            "prototypes must be None, a (classes, outputs) tensor or a prototypes module, got "
            f"{type(prototypes).__name__}; see openradial.nn.prototypes"
        )
    if num_classes is not None and prototypes.num_classes != num_classes:
        raise errors.OptionError(
            f"num_classes and prototypes must agree: num_classes={num_classes} but {prototypes.num_classes} "
            f"prototypes; pass num_classes={prototypes.num_classes}"
        )
    return prototypes


def _check_metric(metric: errors.MetricName, axis_scale: Tensor | None, prototypes: Prototypes | None) -> None:
    measure = make_metric(metric, axis_scale)
    if axis_scale is None:
        return
    if not axis_scale.is_meta and not bool(((axis_scale > 0) & axis_scale.isfinite()).all()):
        raise errors.OptionError(
            "axis_scale must be finite and above 0 on every axis; use 1.0 for an axis left as it is"
        )
    if prototypes is not None:
        measure.divide(axis_scale.new_empty(prototypes.num_outputs))
