"""CAC (Miller, Sünderhauf, Milford and Dayoub 2021, "Class Anchor Clustering"): the softmin of distances to anchors."""

import math
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from openradial import functional
from openradial.errors import OptionError, check_choice, check_positive
from openradial.functional.norms import root
from openradial.heads.base import Head, HeadOutput
from openradial.heads.softmax import msp_score
from openradial.scorers.base import at_least_float32

CACScore = Literal["authors", "distance"]


class CACHead(Head):
    r"""Outputs drawn to the anchor of their class, :math:`\alpha e_k`, and away from the others.

    .. math:: \log \Bigl(1 + \sum_{j \ne y} e^{d_y - d_j}\Bigr) + \lambda d_y

    is the loss. Probabilities are the softmin of the distances.

    Args:
        magnitude: the distance :math:`\alpha` of the anchors to the origin.
        anchor_weight: the weight :math:`\lambda` of the distance to the anchor of the class.
        score: ``"authors"``, :math:`\min_j d_j (1 - \text{softmin}_j)`, as published: :meth:`fit` replaces each anchor
            by the mean of the correctly classified outputs of its class, and distances are then those to the means; a
            class without any keeps its anchor and is listed by :attr:`missing_classes`. ``"distance"``: the
            distance to the nearest anchor, which has nothing to fit. The authors' score calls an output far beyond an
            anchor known, because all other anchors are still farther away; the distance does not.

    >>> head = CACHead(2, score="distance")
    >>> head.unknown_score(torch.tensor([[10.0, 0.0], [110.0, 0.0]]))
    tensor([  0., 100.])
    """

    fitted: ClassVar[tuple[str, ...]] = ("centres", "counts")
    centres: Tensor | None
    counts: Tensor | None

    def __init__(
        self, num_classes: int, magnitude: float = 10.0, anchor_weight: float = 0.1, score: CACScore = "authors"
    ) -> None:
        super().__init__(num_classes)
        check_positive("magnitude", magnitude)
        if not 0 <= anchor_weight < math.inf:
            raise OptionError(f"anchor_weight must be a finite number of at least 0, got {anchor_weight!r}")
        check_choice("score", score, ("authors", "distance"))
        self.magnitude, self.anchor_weight, self.score = float(magnitude), float(anchor_weight), score

    def log_probs(self, o: Tensor) -> Tensor:
        """Return the log softmin of the distances: to the anchors, or after :meth:`fit` to the means of the classes."""
        return F.log_softmax(-self._nearest_and_excess(o)[1], -1)

    def distances(self, o: Tensor) -> Tensor:
        """Return the distances to the anchors, or after :meth:`fit` to the class means; ``(b, k) -> (b, k)``."""
        nearest, excess = self._nearest_and_excess(o)
        return nearest + excess

    def unknown_score(self, o: Tensor) -> Tensor:
        return self._score(*self._nearest_and_excess(o))

    def predict(self, o: Tensor) -> Tensor:
        """Return the nearest class, also where rounding makes the log-probabilities of far outputs equal."""
        return self._nearest_and_excess(o)[1].argmin(-1)

    def compute(self, o: Tensor) -> HeadOutput:
        nearest, excess = self._nearest_and_excess(o)
        score = self._score(nearest, excess)
        return HeadOutput(F.log_softmax(-excess, -1), score, excess.argmin(-1), nearest + excess)

    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        self._check(o, y)
        y = y.long()
        d = functional.radial_distances(o, scale=self.magnitude)
        # 1 is the target's term of the sum, so the logarithm is the cross-entropy of the negative distances
        return F.cross_entropy(-d, y) + self.anchor_weight * d.gather(1, y.unsqueeze(1)).mean()

    def fit(self, o: Tensor, y: Tensor) -> Self:
        """Set the centres to the means of correctly classified outputs; the paper uses the training data."""
        if self.score == "distance":
            return self
        o, y = self._known(o, y)
        correct = o.argmax(1) == y  # the largest output is the nearest anchor
        counts = y[correct].bincount(minlength=self.num_classes)
        rows = o[correct].double()
        means = rows.new_zeros(self.num_classes, self.num_classes).index_add(0, y[correct], rows)
        means /= counts.clamp_min(1).unsqueeze(1)
        anchors = self.magnitude * torch.eye(self.num_classes).to(means)
        centres = torch.where(counts.unsqueeze(1) > 0, means, anchors)
        self.centres, self.counts = centres.to(at_least_float32(o).dtype), counts
        return self

    @property
    def is_fitted(self) -> bool:
        return self.score == "distance" or super().is_fitted

    def _score(self, nearest: Tensor, excess: Tensor) -> Tensor:
        if self.score == "distance":
            return nearest.squeeze(-1)
        self._check_fitted()
        # a smaller distance has a larger softmin, so the smallest product is that of the nearest centre
        return nearest.squeeze(-1) * msp_score(-excess)

    def _nearest_and_excess(self, o: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return the distance to the nearest centre ``(b, 1)``, and how much farther each centre is, ``(b, k)``.

        Only the nearest distance is computed directly. The others follow from their excess, without cancellation:

        .. math:: d_j - d_m = \frac{d_j^2 - d_m^2}{d_j + d_m} \qquad d_j^2 - d_m^2 = 2 (a_m - a_j)

        with :math:`a_j = o^T c_j - \lVert c_j \rVert^2 / 2`.
        """
        self._check(o)
        o = at_least_float32(o)
        affinity = self.magnitude * o  # of the anchors, which are equally long
        if self.centres is not None:
            centres = self.centres.to(o)
            with torch.autocast(o.device.type, enabled=False):
                affinity = o @ centres.T - centres.square().sum(1) / 2
        top = affinity.argmax(-1, keepdim=True)
        points = {"scale": self.magnitude} if self.centres is None else {"prototypes": self.centres}
        nearest = functional.radial_loss(o, top.squeeze(1), reduction="none", **points).unsqueeze(1)
        excess = 2 * (affinity.gather(-1, top) - affinity)
        total = root(nearest.square() + excess) + nearest
        return nearest, excess / torch.where(total > 0, total, 1.0)  # both are 0 for the nearest, if o lies on it
