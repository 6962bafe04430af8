"""The radial head: distances to the prototypes of the classes."""

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from openradial.errors import DataError, MetricName, OptionError, check_choice
from openradial.functional import radial_loss
from openradial.functional.norms import make_metric
from openradial.functional.probabilities import Cutoff
from openradial.heads.base import Head, HeadOutput
from openradial.nn import RadialLayer
from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, LearnedPrototypes, Prototypes, SimplexPrototypes

RadialScore = Literal["distance", "probability", "projection"]
RadialLossName = Literal["distance", "squared", "rescaled"]
POINTS = "prototypes.points"


class RadialHead(Head):
    r"""A :class:`~openradial.RadialLayer` as a head: :math:`\log p(y = k \mid x) = -\beta d_k`.

    Args:
        beta: how fast the probability falls with the distance.
        scale: distance of the axis prototypes to the origin.
        score: ``"distance"``, that of the nearest prototype, or ``"probability"``, 1 minus the probability of the
            nearest prototype, with the cut-off. In float32 the second is 1 for all inputs beyond ``17.4 / beta``. Or
            ``"projection"``, ``exp(-o_k / scale)`` of the largest output, with axis prototypes: after the squared loss
            ``o_k / scale`` estimates the probability of class k. An output beyond a prototype is then not unknown.
        loss: ``"distance"``, the paper's :math:`\beta d_y`; ``"squared"``, :math:`d_y^2`; or ``"rescaled"``, that with
            :math:`\sqrt K` as ``target_weight``, for many classes, see :func:`openradial.functional.radial_loss`.

    The other arguments are those of :class:`~openradial.RadialLayer`. There is nothing to fit.

    >>> head = RadialHead(2)
    >>> o = torch.tensor([[1.0, 0.0], [4.0, 4.0]])
    >>> head.predict(o), head.unknown_score(o)
    (tensor([0, 0]), tensor([0., 5.]))
    """

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
        score: RadialScore = "distance",
        loss: RadialLossName = "distance",
    ) -> None:
        super().__init__(num_classes)
        check_choice("score", score, ("distance", "probability", "projection"))
        check_choice("loss", loss, get_args(RadialLossName))
        self.score, self.loss_name = score, loss
        self.target_weight = self.num_classes**0.5 if loss == "rescaled" else 1.0
        self.layer = RadialLayer(
            self.num_classes, beta, scale, cutoff=cutoff, metric=metric, axis_scale=axis_scale, prototypes=prototypes
        )

    @property
    def num_outputs(self) -> int:
        return self.layer.prototypes.num_outputs

    def distances(self, o: Tensor) -> Tensor:
        """Return the distance to every prototype, ``(b, outputs) -> (b, k)``."""
        return self.layer.distances(self._outputs(o))

    def log_probs(self, o: Tensor) -> Tensor:
        return self._log_probs(self.distances(o))

    def probs(self, o: Tensor) -> Tensor:
        """Return the probabilities, 0 beyond the cut-off; ``(b, outputs) -> (b, k)``."""
        return self.layer.probs(self._outputs(o))

    def unknown_score(self, o: Tensor) -> Tensor:
        o = self._outputs(o)
        return self._score(o, self.layer.nearest(o)[0].squeeze(-1))

    def predict(self, o: Tensor) -> Tensor:
        """Return the nearest prototype, also where rounding makes the log-probabilities of far outputs equal."""
        return self.layer.nearest(self._outputs(o))[1].squeeze(-1)

    def compute(self, o: Tensor, far: Tensor | None = None) -> HeadOutput:
        """Return all results of a batch; ``far``, ``(b,)``, are coordinates on one more axis, without a prototype.

        Every distance is then at least ``far``, and every probability at most ``exp(-beta * far)``, whatever the
        outputs are. The class stays the same.
        """
        return self.compute_from(self._outputs(o), far)

    def compute_from(self, o: Tensor, far: Tensor | None = None) -> HeadOutput:
        """Return what :meth:`compute` does for the outputs whose distances count."""
        d = self.layer.distances(o)
        # between equally long prototypes the outputs decide also where rounding makes far distances equal
        by_outputs = isinstance(self.layer.prototypes, AxisPrototypes) and self.layer.axis_scale is None
        labels = o.argmax(-1) if by_outputs else d.argmin(-1)
        if far is not None:
            d = self._beyond(d, far.unsqueeze(-1))
        nearest = d.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        score = self._score(o, nearest)
        if far is not None and self.score == "projection":
            score = self._beyond(score, far)
        return HeadOutput(self._log_probs(d), score, labels, d)

    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        o = self._outputs(o, y)
        if self.loss_name == "squared":
            return (self.layer.loss(o, y.long(), "none") / self.layer.beta).square().mean()
        if self.loss_name == "rescaled":
            options: Any = {"metric": "squared_euclidean", "prototypes": self.layer.prototypes}
            return radial_loss(o, y, target_weight=self.target_weight, **options)
        return self.layer.loss(o, y.long())

    def settings(self) -> dict[str, Any]:
        return {
            "num_classes": self.num_classes,
            "beta": self.layer.beta,
            "cutoff": self.layer.cutoff if self.layer.cutoff in (None, "disjoint") else float(self.layer.cutoff),
            "metric": self.layer.metric,
            "prototypes": _describe(self.layer.prototypes),
            "score": self.score,
            "loss": self.loss_name,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the matrix of the prototypes, where there is one, and ``axis_scale``."""
        return dict(self.layer.state_dict())

    def restore(self, tensors: Mapping[str, Tensor]) -> Self:
        both = (self.tensors(), tensors)
        wanted, given = ({name: tuple(tensor.shape) for name, tensor in sorted(each.items())} for each in both)
        if wanted != given:
            raise DataError(f"this RadialHead takes tensors of the shapes {wanted}, got {given}")
        self.layer.load_state_dict(dict(tensors))
        return self

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        others = {name: value for name, value in settings.items() if name != "prototypes"}
        prototypes = _make_prototypes(settings["num_classes"], settings["prototypes"], tensors)
        head = cls(**others, prototypes=prototypes, axis_scale=tensors.get("axis_scale"))
        return head.restore(tensors)

    def extra_repr(self) -> str:
        return f"score={self.score!r}, loss={self.loss_name!r}"

    def _outputs(self, o: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the outputs whose distances count, here those of the network; raise unless they fit the labels."""
        self._check(o, y)
        return o

    def _beyond(self, d: Tensor, far: Tensor) -> Tensor:
        """Return the distances of outputs that are moved by ``far`` along an axis without a prototype."""
        metric, far = make_metric(self.layer.metric, None), far.to(d).expand_as(d)
        legs = torch.stack([d.sqrt() if metric.name == "squared_euclidean" else d, far], -1)
        return metric.length(legs)

    def _log_probs(self, d: Tensor) -> Tensor:
        scaled = -self.layer.beta * d
        return torch.where(d.isinf(), scaled, scaled.clamp_min(torch.finfo(d.dtype).min))  # finite for finite distances

    def _score(self, o: Tensor, nearest: Tensor) -> Tensor:
        """Return the unknown score of outputs, ``(b, k)``, at these distances to the nearest prototype, ``(b,)``."""
        if self.score == "distance":
            return nearest
        if self.score == "projection":
            if not isinstance(self.layer.prototypes, AxisPrototypes):
                raise OptionError("score='projection' needs axis prototypes; use score='distance'")
            return projection(o, self.layer.prototypes.scale)
        missing, radius = -torch.expm1(-self.layer.beta * nearest), self.layer.cutoff  # 1 - p
        if radius == "disjoint":
            metric = make_metric(self.layer.metric, self.layer.axis_scale)
            radius = self.layer.prototypes.geometry().half_separation(metric)
        return missing if radius is None else torch.where(nearest >= radius, 1.0, missing)


def projection(o: Tensor, scale: float) -> Tensor:
    """Return ``exp(-o_k / scale)`` of the largest output, ``(b, k) -> (b,)``: small where a class is probable."""
    return (-o.amax(-1) / scale).exp()


def _describe(prototypes: Prototypes) -> dict[str, Any]:
    """Return the settings of prototypes as JSON can hold them; their points are a tensor."""
    kind = type(prototypes)
    if kind is FixedPrototypes:
        return {"kind": "FixedPrototypes"}
    if isinstance(prototypes, (AxisPrototypes, SimplexPrototypes, LearnedPrototypes)):
        return {"kind": kind.__name__, "scale": prototypes.scale}
    message = f"a head can be saved with the prototypes of openradial.nn.prototypes, got {kind.__name__}"
    raise OptionError(f"{message}; use FixedPrototypes(prototypes.matrix())")


def _make_prototypes(num_classes: int, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Prototypes:
    kind = facts["kind"]
    if kind in ("AxisPrototypes", "SimplexPrototypes"):
        return (AxisPrototypes if kind == "AxisPrototypes" else SimplexPrototypes)(num_classes, facts["scale"])
    points = tensors[POINTS]
    if kind == "LearnedPrototypes":
        return LearnedPrototypes(num_classes, points.shape[1], facts["scale"], dtype=points.dtype)
    if kind == "FixedPrototypes":
        return FixedPrototypes(points)
    raise DataError(f"there are no prototypes {kind!r}")
